"""The process that carries a program to its first step. It needs JAX and libtpu, and imports nothing else of tpukit.

Nothing is executed on TPU devices: they are compile-only. The interception sits on a few internal functions of JAX, so
the versions in the environment's constraints file are part of this code.
"""
