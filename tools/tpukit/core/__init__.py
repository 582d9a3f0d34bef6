"""Errors, clock, fence, paths, quantities and package data. Imports nothing else of tpukit."""
