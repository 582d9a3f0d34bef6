"""The progress file: always complete, cheap, and never fatal to a training run."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.host.progress import LINE, Progress
from tpukit.places import progress as reader


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


class Scalar:
    """A value of NumPy or JAX: a number in all but its type."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)


class Count(Scalar):
    def __index__(self):
        return self.value


def test_update_values_of_array_libraries_are_written_as_plain_numbers(tmp_path, clock):
    path = tmp_path / "progress"
    Progress(str(path), clock=clock).update({"step": Count(7), "loss": Scalar(2.5), "saved": Count(5)})
    said = reader.read(path, time.time())
    assert (said.step, said.loss, said.saved) == (7, 2.5, 5)


@pytest.mark.parametrize(
    "value", [object(), [1], 10**400, 1j, Scalar("x")], ids=["object", "list", "huge", "complex", "text"]
)
def test_update_value_that_is_no_number_costs_only_itself(tmp_path, clock, value):
    path = tmp_path / "progress"
    Progress(str(path), clock=clock).update({"step": 3, "loss": value})
    said = reader.read(path, time.time())
    assert (said.step, said.loss) == (3, None)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "step": st.integers(0, 2**63 - 1) | st.none(),
            "saved": st.integers(0, 2**63 - 1) | st.none(),
            "loss": st.floats() | st.none(),
            "steps_per_s": st.floats() | st.none(),
        },
    )
)
def test_update_whatever_a_program_reports_is_read_back(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("host") / "progress"
    Progress(str(path)).update(values)
    said = reader.read(path, time.time())
    finite = {name: None if value is None or not math.isfinite(value) else value for name, value in values.items()}
    assert (said.step, said.loss, said.steps_per_s) == tuple(
        finite.get(name) for name in ("step", "loss", "steps_per_s")
    )
    assert said.saved == (-1 if finite.get("saved") is None else finite["saved"])
    assert time.time() - said.moved < 60


def test_update_line_of_the_log_is_read_as_the_file_is(tmp_path, clock, capsys):
    path = tmp_path / "progress"
    Progress(str(path), lines=1.0, clock=clock).update({"step": 3, "loss": 2.5, "saved": 2})
    line = capsys.readouterr().out.strip()
    now = time.time()
    assert reader.parse(line.removeprefix(LINE), now).step == reader.read(path, now).step == 3
