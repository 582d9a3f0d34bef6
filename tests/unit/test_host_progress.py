"""The progress file: always whole, cheap, and never the end of a training run."""

import json
import math

import pytest

from tpukit.host.progress import Progress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_update_first_value_is_written_at_once(tmp_path, clock):
    Progress(str(tmp_path / "progress"), clock=clock).update({"step": 1, "loss": 2.5})
    written = json.loads((tmp_path / "progress").read_text())
    assert (written["step"], written["loss"]) == (1, 2.5)
    assert written["time"] > 0


def test_update_many_in_a_moment_write_once_and_flush_writes_the_latest(tmp_path, clock):
    path = tmp_path / "progress"
    progress = Progress(str(path), clock=clock)
    for step in range(100):
        progress.update({"step": step})
    assert json.loads(path.read_text())["step"] == 0
    progress.flush()
    assert json.loads(path.read_text())["step"] == 99


def test_update_after_the_interval_writes_again(tmp_path, clock):
    path = tmp_path / "progress"
    progress = Progress(str(path), clock=clock)
    progress.update({"step": 1})
    clock.now = 0.3
    progress.update({"step": 2})
    assert json.loads(path.read_text())["step"] == 2


def test_update_keeps_what_was_said_before(tmp_path, clock):
    path = tmp_path / "progress"
    progress = Progress(str(path), clock=clock)
    progress.update({"step": 1, "saved": 0})
    progress.update({"step": 2})
    progress.flush()
    assert json.loads(path.read_text())["saved"] == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_update_loss_that_is_no_number_stays_readable_json(tmp_path, clock, value):
    path = tmp_path / "progress"
    Progress(str(path), clock=clock).update({"step": 1, "loss": value})
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["loss"] is None


def test_update_where_nothing_can_be_written_warns_once_and_recovers(tmp_path, clock, caplog):
    folder = tmp_path / "gone"
    progress = Progress(str(folder / "progress"), clock=clock)
    progress.update({"step": 1})
    clock.now = 1.0
    progress.update({"step": 2})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    folder.mkdir()
    progress.flush()
    assert json.loads((folder / "progress").read_text())["step"] == 2


def test_update_without_a_path_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    progress = Progress("")
    progress.update({"step": 1})
    progress.flush()
    assert list(tmp_path.iterdir()) == []
