"""Jobs from Python, as in a notebook: one process submits, follows, stops and resumes real jobs of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

import tpukit
from tpukit.core.errors import Conflict, Invalid, NotFound
from tpukit.jobs import api

SAY = "echo hello from $TPUKIT_WORKDIR; test -z $NAME || echo $NAME"
UNTIL_STOPPED = "echo begun; trap 'exit 1' TERM; while :; do sleep 0.02; done"


@pytest.fixture
def file(tpu, monkeypatch):
    """Return a function that writes a job file, in the home of `tpu`, and closes what this process opened there."""
    for name in ("TPUKIT_HOME", "TPUKIT_SETTINGS"):
        monkeypatch.setenv(name, tpu.env[name])
    monkeypatch.delenv("TPUKIT_STORE", raising=False)
    api._session.cache_clear()
    yield tpu.file
    api._session().store.close()
    api._session.cache_clear()


def test_job_submitted_from_python_runs_when_it_is_followed_and_is_the_job_that_the_command_shows(tpu, file, capsys):
    job = tpukit.submit(file("sh", "-c", SAY), overrides={"env.NAME": "ada"}, tags=["try"])
    assert (job.state, job.place, job.tags, job.attempts) == (tpukit.State.PENDING, "local", ("try",), 0)
    assert job.follow() is tpukit.State.COMPLETED
    assert "completed on all hosts" in capsys.readouterr().err
    assert [line.text for line in job.logs("0-0", tail=1)] == ["ada"]
    assert [line.text.split()[0] for line in job.logs()] == ["hello", "ada"]
    assert [one.id for one in tpukit.jobs(tag="try")] == [job.id]
    assert tpukit.jobs(active=True) == []
    assert tpukit.job("train").state is tpukit.State.COMPLETED
    assert tpu.show(job.id)["state"] == "completed"


def test_job_that_runs_is_stopped_and_resumed(file):
    job = tpukit.submit(file("sh", "-c", UNTIL_STOPPED))
    with pytest.raises(TimeoutError, match=f"{job.id} is still"):
        job.wait(0.0)
    with pytest.raises(Conflict, match="tpu job stop"):
        job.resume()
    driving = threading.Thread(target=job.wait)
    driving.start()
    assert next(iter(job.logs(follow=True))).text == "begun"
    assert job.hosts()[0].name == f"{job.id}-slice-0-0"
    assert tpukit.job(job.id).stop() is tpukit.State.CANCELLED
    driving.join()
    assert job.state is tpukit.State.CANCELLED
    assert job.resume().state is tpukit.State.PENDING
    assert job.stop() is tpukit.State.CANCELLED


def test_errors_are_those_of_the_command(file):
    with pytest.raises(Invalid, match="there is no place 'moon'"):
        tpukit.submit(file("true"), place="moon")
    with pytest.raises(tpukit.TpukitError, match=r"train\.yaml"):
        tpukit.submit(file("true", slices=-1))
    with pytest.raises(NotFound, match="there is no job train"):
        tpukit.job("train")
    assert tpukit.jobs() == []


def test_import_loads_nothing_until_a_function_is_used():
    program = "import sys, tpukit; print([name for name in sys.modules if name.startswith('tpukit.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_package_of_jobs_can_be_called_in_any_order_of_imports():
    for first in ("", "import tpukit.jobs.records; "):
        program = f"{first}import tpukit, json; print(json.dumps([callable(tpukit.jobs), tpukit.jobs.__name__]))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == [True, "tpukit.jobs"]
    with pytest.raises(AttributeError, match="no attribute 'job_list'"):
        _ = tpukit.job_list
