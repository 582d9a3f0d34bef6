"""Extraction of activations beside transformers and by a fleet. Its cases run in a process of their own: one that has
JAX in it warns of every fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("activations_cases.py")


@pytest.mark.jax
def test_extraction_passes_each_of_its_cases():
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(CASES)]
    ran = subprocess.run(pytest_, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
