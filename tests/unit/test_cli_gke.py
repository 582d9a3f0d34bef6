"""`tpu job` for jobs on gke: what it asks the cluster for, and what it shows of jobs that run and that ended."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tpukit.cli import command, context
from tpukit.reasons import State
from unit.gke_driving import Driving


@pytest.fixture
def driving(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    monkeypatch.setenv("TPUKIT_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    driving = Driving(tmp_path)
    monkeypatch.setattr(context, "store", lambda: driving.store)
    monkeypatch.setattr(context, "places", lambda: {"gke": driving.place})
    monkeypatch.setattr(context, "CLOCK", driving.clock)
    yield driving
    driving.close()


def tpu(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


def shown(job_id: str) -> dict:
    return json.loads(tpu("job", "show", job_id, "--json"))


def report(driving: Driving, job_id: str, **progress) -> None:
    for pod in driving.cluster.pods(job_id):
        said = json.dumps({**progress, "time": driving.clock.now()})
        driving.cluster.say(pod, f"tpukit-progress {said}")


def release(driving: Driving) -> None:
    for lease in driving.store.leases():
        driving.store.release(lease)


def test_show_of_a_running_job_asks_for_each_kind_once(driving):
    job_id = driving.send()
    driving.run(job_id)
    release(driving)
    driving.cluster.asked.clear()
    assert shown(job_id)["state"] == "running"
    assert {name: count for name, count in driving.cluster.asked.items() if name.startswith("list")} == {
        "list JobSet": 1,
        "list Workload": 1,
        "list Job": 1,
        "list Pod": 1,
    }


def test_list_json_has_the_tpu_and_the_slices(driving):
    driving.send()
    (job,) = json.loads(tpu("job", "list", "--json"))
    assert (job["tpu"], job["slices"]) == ("v4-16", 2)


@pytest.mark.parametrize("how", ["completed", "failed", "stopped"])
def test_show_of_an_ended_job_has_the_last_step_loss_and_save_of_its_hosts(driving, how):
    job_id = driving.send(max={"restarts": 0})
    driving.run(job_id)
    report(driving, job_id, step=40, loss=1.5, saved=30)
    driving.tick(3)
    if how == "completed":
        driving.cluster.complete(job_id)
    elif how == "failed":
        driving.cluster.fail(job_id, "userError")
    else:
        driving.stop(job_id)
        driving.tick(2)
        driving.cluster.leave(job_id)
    driving.until(job_id, State.COMPLETED, State.FAILED, State.CANCELLED)
    driving.new_driver()  # nothing but the record is left
    host = shown(job_id)["hosts"][0]
    assert (host["step"], host["loss"], host["saved_step"]) == (40, 1.5, 30)
