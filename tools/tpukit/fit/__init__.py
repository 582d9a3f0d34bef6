"""Compile a job's program with the real TPU compiler, on a machine without a TPU.

The compiler lives in an environment of its own in the cache folder. A worker process there runs the user's unchanged
program up to its first step on compile-only devices; everything else here is plain data: figures of the chips,
estimates, and findings.
"""
