"""Extraction of activations: results equal to transformers, and a fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import own_process


@pytest.mark.jax
def test_extraction_passes_each_of_its_cases():
    own_process.passes(Path(__file__).with_name("activations_cases.py"), 3600)
