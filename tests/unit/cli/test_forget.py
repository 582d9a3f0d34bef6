"""`tpu job forget` closes jobs whose hardware is gone, and never a job that holds hardware."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from tpukit.cli import context
from tpukit.cli.job_act import forget
from tpukit.core.errors import Conflict, TpukitError, Transient
from tpukit.jobs import plan
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, Attempt, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Holder, Store, change
from tpukit.places.base import Handle, Observation

SPEC = {"name": "train", "tpu": "v4-16", "command": ["true"], "capacity": "spot"}


class Cloud:
    """A place that returns a prepared observation and first runs a hook."""

    name = "tpu-vm"

    def __init__(self) -> None:
        self.seen: Observation | TpukitError = Observation(State.FAILED, active=False)
        self.meanwhile = lambda: None
        self.left = ""  # what the place's API reports

    def group(self, plan: Plan) -> str | None:
        return ""

    def observe(self, handles: list[Handle]) -> list[Observation | TpukitError]:
        self.meanwhile()
        return [self.seen]

    def forget(self, handle: Handle) -> str:
        if self.left:
            raise Conflict(f"the API reports that {self.left} exists")
        return "a TPU VM"


@pytest.fixture
def cloud(tmp_path, monkeypatch) -> Cloud:
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    monkeypatch.setenv("TPUKIT_SETTINGS", str(tmp_path / "settings.yaml"))
    made = Cloud()
    monkeypatch.setattr(context, "places", lambda: {"tpu-vm": made})
    return made


@pytest.fixture
def store(cloud) -> Iterator[Store]:
    """Yield a store with a job that was preempted and waits for its next attempt."""
    context.store.cache_clear()
    made = plan.make(JobSpec.from_json(SPEC), Settings(), "tpu-vm")
    lost = Attempt(0, 0, 0, State.FAILED, reason=Reason.PREEMPTED, ended=2.0)
    context.store().create(JOBS, "train", Job("train", "tpu-vm", "t", "me", 1.0, made.to_json(), attempts=(lost,)))
    yield context.store()
    context.store().close()
    context.store.cache_clear()


def run() -> Result:
    return CliRunner().invoke(forget, ["train", "--yes"])


def test_forget_between_attempts_while_hardware_is_held_is_refused_and_says_what_releases_it(cloud, store):
    cloud.seen = Observation(State.FAILED, active=False, held=True)
    refused = run()
    assert isinstance(refused.exception, Conflict)
    assert "tpu-vm holds hardware for train" in str(refused.exception)
    assert "`tpu job stop train`" in str(refused.exception)
    assert store.get(JOBS, "train").value.state is State.PENDING


def test_forget_where_nothing_is_left_closes_the_record(cloud, store):
    assert run().exit_code == 0
    assert store.get(JOBS, "train").value.state is State.CANCELLED


def test_forget_of_a_job_that_another_machine_drives_and_that_cannot_be_seen_from_here_is_refused(cloud, store):
    cloud.seen = Transient("no route")
    lease = store.acquire("jobs/train", Holder("serve@elsewhere/7"), 600.0)
    refused = run()
    assert isinstance(refused.exception, Conflict)
    assert "driven by serve@elsewhere" in str(refused.exception)
    store.release(lease)
    assert run().exit_code == 0
    assert "a TPU VM" in store.get(JOBS, "train").value.message


def test_forget_of_a_job_whose_hosts_cannot_be_seen_is_refused_while_the_api_says_that_its_vm_is_there(cloud, store):
    cloud.seen, cloud.left = Transient("no route"), "train-0"
    refused = run()
    assert isinstance(refused.exception, Conflict)
    assert "train-0 exists" in str(refused.exception)
    assert "`tpu job stop train`" in str(refused.exception)
    assert store.get(JOBS, "train").value.state is State.PENDING


def test_forget_while_the_next_attempt_is_launched_is_refused(cloud, store):
    def launch() -> None:
        change(store, JOBS, "train", lambda job: replace(job, attempts=(*job.attempts, Attempt(1, 1, 0))))

    cloud.meanwhile = launch
    refused = run()
    assert isinstance(refused.exception, Conflict)
    assert "changed meanwhile" in str(refused.exception)
    assert store.get(JOBS, "train").value.state is State.PENDING


def test_forget_while_a_driver_is_about_to_start_an_attempt_is_refused(cloud, store):
    change(store, JOBS, "train", lambda job: replace(job, attempts=(*job.attempts, Attempt(1, 1, 0))))
    lease = store.acquire("jobs/train", Holder("serve@elsewhere/7"), 600.0)
    refused = run()
    assert isinstance(refused.exception, Conflict)
    assert "driven by serve@elsewhere" in str(refused.exception)
    assert store.get(JOBS, "train").value.state is State.PENDING
    store.release(lease)
    assert run().exit_code == 0


def test_forget_takes_the_lease_from_a_driver_that_was_suspended_before_it_starts_an_attempt(cloud, store):
    change(store, JOBS, "train", lambda job: replace(job, attempts=(*job.attempts, Attempt(1, 1, 0))))
    suspended = store.acquire("jobs/train", Holder("serve@elsewhere/7"), 0.0)
    assert run().exit_code == 0
    with pytest.raises(Conflict):
        store.renew(suspended, 45.0)
    assert store.lease("jobs/train") is None
