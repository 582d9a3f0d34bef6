"""Retries for changes that Google has not propagated yet: shortly after a bootstrap, and never otherwise."""

from __future__ import annotations

import pytest

from tpukit.cluster import propagation
from tpukit.cluster.spec import load
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, Invalid
from unit.cluster.test_spec import sets

LATE = (
    "Error 403: Compute Engine API has not been used in project 1 before or it is disabled., SERVICE_DISABLED",
    "Error 403: Permission 'compute.networks.create' denied on resource, IAM_PERMISSION_DENIED",
    "Error 400: Service account gke-sa@p.iam.gserviceaccount.com does not exist., badRequest",
    'Error 400: The user does not have access to service account "gke-sa@p.iam.gserviceaccount.com".',
)


class Late:
    """A call that fails with a text until a given time."""

    def __init__(self, clock: ManualClock, text: str, until: float) -> None:
        self.clock, self.text, self.until, self.calls = clock, text, until, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.clock.now() < self.until:
            raise Denied(f"apply failed\n{self.text}")
        return "done"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))


@pytest.mark.parametrize("text", LATE)
def test_what_arrives_within_minutes_of_a_bootstrap_is_waited_for(text):
    clock, spec = ManualClock(), load(None, sets())
    propagation.note(spec, clock)
    said: list[str] = []
    attempt = Late(clock, text, clock.now() + 200)
    assert propagation.patiently(attempt, spec, clock, said.append) == "done"
    assert attempt.calls > 5
    assert all("have not taken effect everywhere" in line for line in said)


def test_without_a_bootstrap_on_this_machine_the_first_answer_counts():
    clock, spec = ManualClock(), load(None, sets())
    attempt = Late(clock, LATE[0], clock.now() + 1)
    with pytest.raises(Denied):
        propagation.patiently(attempt, spec, clock, lambda text: None)
    assert attempt.calls == 1


def test_what_never_arrives_is_told_when_the_time_is_over():
    clock, spec = ManualClock(), load(None, sets())
    propagation.note(spec, clock)
    began = clock.now()
    with pytest.raises(Denied, match="SERVICE_DISABLED"):
        propagation.patiently(Late(clock, LATE[0], clock.now() + 10**6), spec, clock, lambda text: None)
    assert propagation.SECONDS - 20 <= clock.now() - began <= propagation.SECONDS


def test_other_trouble_is_told_at_once():
    clock, spec = ManualClock(), load(None, sets())
    propagation.note(spec, clock)
    calls = []

    def attempt() -> None:
        calls.append(1)
        raise Invalid("the pods range is too small")

    with pytest.raises(Invalid):
        propagation.patiently(attempt, spec, clock, lambda text: None)
    assert len(calls) == 1


def test_note_of_a_clock_that_was_set_back_since_keeps_nobody_waiting():
    clock, spec = ManualClock(), load(None, sets())
    propagation.note(spec, clock)
    clock.set(clock.now() - 10_000)
    with pytest.raises(Denied):
        propagation.patiently(Late(clock, LATE[0], 10**12), spec, clock, lambda text: None)
