"""Process that runs a program to its first step. It needs JAX and libtpu, and imports nothing else of tpukit.

Devices are compile-only, so nothing is executed on TPUs. The interception depends on a few internal functions of JAX,
so the versions in the environment's constraints file are part of this code.
"""
