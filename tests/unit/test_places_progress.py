"""Progress that any program may have written."""

import json

import pytest

from tpukit.places.progress import Progress, read


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "null", '"x"', '{"step": "3", "loss": [], "saved": 1.5, "time": null}']
)
def test_read_nonsense_is_no_progress(tmp_path, text):
    (tmp_path / "progress").write_text(text)
    assert read(tmp_path / "progress") == Progress()


def test_read_takes_what_it_knows(tmp_path):
    said = {"step": 3, "loss": 2.5, "steps_per_s": 1.5, "saved": 2, "time": 9.0, "other": "x"}
    (tmp_path / "progress").write_text(json.dumps(said))
    assert read(tmp_path / "progress") == Progress(3, 2.5, 1.5, 2, 9.0)
