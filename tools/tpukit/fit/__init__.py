"""Compile a job's program with the real TPU compiler, on a machine without a TPU.

The compiler has its own environment in the cache folder. A worker process there runs the unchanged program up to its
first step on compile-only devices. Everything else here is plain data: figures of the chips, estimates and findings.
"""
