"""The supervisor on a TPU VM's host: an attempt runs once, for any number of requests and any death."""

from __future__ import annotations

import base64
import fcntl
import io
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.bare_host import Host
from support.waiting import PATIENCE, until
from tpukit.host.supervision import host_netrc as netrc
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase


@pytest.fixture
def host(tmp_path: Path) -> Any:
    made = Host(tmp_path / "tpukit")
    yield made
    pods.kill_strays(made.root)


def test_attempt_runs_with_the_environment_of_a_login_and_what_the_job_brings(host):
    host.start("echo $NAME $HOME $TPUKIT_WORKDIR [$SSH_CLIENT]; pwd; exit 3")
    assert host.ended().code == 3
    assert host.log().splitlines() == [
        f"value {host.root} {host.root}/work []",
        f"{host.root}/jobs/try-1/code",
    ]


def test_attempt_asked_for_many_times_at_once_runs_once(host):
    ran = host.root / "ran"
    request = {"do": "start", **host.request(f"echo x >> {ran}; sleep 1")}
    asking = [threading.Thread(target=lambda: host.open(request).communicate()) for _ in range(16)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    host.ended()
    host.start(f"echo x >> {ran}")
    assert ran.read_text() == "x\n"


def test_attempt_whose_starter_and_shim_are_killed_at_any_moment_never_runs_twice(host):
    moments = random.Random(12)
    codes = []
    for number in range(8):
        job, ran = f"try-{number}", host.root / f"ran-{number}"
        script = f"echo x >> {ran}; sleep 0.1; exit 7"
        starter = host.open({"do": "start", **host.request(script, job)})
        with suppress(subprocess.TimeoutExpired):
            starter.wait(timeout=moments.uniform(0.02, 0.4))
        with suppress(ProcessLookupError):
            os.killpg(starter.pid, signal.SIGKILL)
        if moments.random() < 0.6:
            for pid in _shims(host.root / "jobs" / job):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        starter.communicate()
        host.start(script, job)
        state = host.ended(job)
        codes.append(state.code)
        times = ran.read_text().count("x") if ran.exists() else 0
        assert times <= 1
        assert (times == 1) or state.phase is Phase.LOST
    assert codes.count(7) >= 2  # most were killed early enough for the second to start it


def test_attempt_superseded_by_a_later_one_never_begins(host):
    host.start("true", attempt=1)
    host.ended(attempt=1)
    assert host.start("true", attempt=0)["refused"] == "superseded"
    assert host.state(attempt=0).phase is Phase.ABSENT


def test_attempt_that_has_ended_is_in_nobodys_way_though_its_shim_takes_its_time(host):
    host.start("true")
    host.ended()
    with (host.root / "jobs" / "try-1" / "attempt-0" / "lock").open() as lock:
        until(lambda: not host.facts()["locked"], "the shim to leave")
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert host.ask("prepare", job="other-2", attempt=0)["held"] is None
        assert "refused" not in host.start("true", job="other-2")
    assert host.ended("other-2").code == 0


def test_host_that_another_job_holds_is_refused_and_named(host):
    host.start("sleep 60")
    assert host.start("true", job="other-2") == {"refused": "held", "message": "job try-1 holds this host"}
    assert host.ask("prepare", job="other-2", attempt=0)["held"]["job"] == "try-1"
    host.ask("stop", job="try-1", attempt=0, grace=0)
    host.ended()
    host.start("true", job="other-2")
    assert host.ended("other-2").code == 0


def test_stop_gives_the_grace_and_then_kills(host):
    host.start("trap 'echo told' TERM; echo begun; while true; do sleep 0.05; done")
    until(lambda: host.log() == "begun\n", "it to begin")
    host.ask("stop", job="try-1", attempt=0, grace=PATIENCE)
    until(lambda: host.log() == "begun\ntold\n", "it to be told")
    assert host.state().phase is Phase.RUNNING
    host.ask("stop", job="try-1", attempt=0, grace=0.5)
    state = host.ended()
    assert (state.code, state.signalled, host.log()) == (137, True, "begun\ntold\n")


def test_machine_that_shuts_down_is_not_us_who_told_it_to_leave(host):
    """A shutdown sends SIGTERM to every process, including the shim."""
    host.start("trap 'exit 143' TERM; echo begun; while true; do sleep 0.05; done")
    until(lambda: host.log() == "begun\n", "it to begin")
    for pid in _shims(host.root):
        os.kill(pid, signal.SIGTERM)
    os.kill(host.state().pid, signal.SIGTERM)
    state = host.ended()
    assert (state.code, state.signalled) == (143, False)


def test_attempt_stopped_before_it_began_never_begins(host):
    host.ask("stop", job="try-1", attempt=0, grace=5)
    host.start("echo ran")
    assert (host.state().phase, host.state().signalled, host.log()) == (Phase.ENDED, True, "")


def test_log_is_read_by_position_byte_for_byte(host):
    host.start("printf 'a\\377b'; printf cd")
    host.ended()
    assert base64.b64decode(host.facts(log=2)["log"]["bytes"]) == b"bcd"
    assert host.facts(log=900)["log"] == {"at": 5, "bytes": "", "size": 5}


def test_process_that_outlived_its_shim_is_killed_before_the_next_attempt_has_the_chips(host):
    host.start("setsid sleep 300 & echo $!; sleep 300")
    stray = until(lambda: host.log().strip(), "its child")
    for pid in _shims(host.root):
        os.kill(pid, signal.SIGKILL)
    assert host.ended().phase is Phase.LOST
    host.start("true", attempt=1)
    until(lambda: not Path(f"/proc/{stray}").exists() or _zombie(stray), "the stray to be killed")


def test_code_is_stored_once_by_its_content_and_each_job_has_a_copy(host):
    assert host.ask("prepare", job="try-1", attempt=0, code="d1")["code"] is False
    assert host.start("cat file", code="d1")["refused"] == "code"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("file")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"text"))
    for _ in range(2):
        host.ask("code", packed.getvalue(), code="d1")
    assert host.ask("prepare", job="try-1", attempt=0, code="d1")["code"] is True
    host.start("cat file; echo more > file", attempt=1, code="d1")
    host.ended(attempt=1)
    assert host.log(attempt=1) == "text"
    assert (host.root / "code" / "d1" / "file").read_text() == "text"


def test_set_up_runs_once_for_its_key_and_a_failed_one_runs_again(host):
    argv = ["sh", "-c", f"echo x >> {host.root}/set; test -e {host.root}/works"]
    refused = host.ask("setup", key="k1", argv=argv, env={})
    assert refused["refused"] == "setup"
    (host.root / "works").touch()
    assert [host.ask("setup", key="k1", argv=argv, env={}) for _ in range(2)] == [{"ran": True}, {"ran": False}]
    assert (host.root / "set").read_text() == "x\nx\n"


def _shims(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if any(word.endswith(b"/shim.py") for word in words) and os.fsencode(str(folder)) in b" ".join(words):
                found.append(int(entry.parent.name))
    return found


def _zombie(pid: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_key_is_not_laid_where_somebody_else_has_put_a_link(host, tmp_path):
    laid = Path(netrc.file(str(host.root)))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    laid.parent.symlink_to(elsewhere)
    try:
        os.chown(laid.parent, 65534, 65534, follow_symlinks=False)
        refused = host.ask("secret", b"machine example.com login user password key\n")
        assert "belongs to another user" in refused["message"]
        assert list(elsewhere.iterdir()) == []
    finally:
        laid.parent.unlink()


def test_uploader_copies_while_the_attempt_runs_and_once_more_after_its_end(host, tmp_path):
    board, work = tmp_path / "board", host.root / "work" / "tensorboard" / "train"
    packages = os.pathsep.join(path for path in sys.path if path)
    uploader = [sys.executable, "-m", "tpukit.host.tensorboard", "--to", str(board), "--every", "0.1"]
    script = f"""
        mkdir -p {work}; echo early > {work}/events.out.tfevents.1
        while [ ! -e {board}/train/events.out.tfevents.1 ]; do sleep 0.1; done
        echo late > {work}/events.out.tfevents.2
    """
    request = host.request(script)
    host.ask("start", **request | {"env": {"PYTHONPATH": packages}}, uploader=uploader)
    folder = host.root / "jobs" / "try-1" / "attempt-0"
    until(lambda: pods.status(folder).phase is Phase.ENDED)
    until(lambda: pods.status(folder / "uploader").phase is Phase.ENDED, "the uploader to leave by itself")
    assert sorted(file.name for file in (board / "train").iterdir()) == [
        "events.out.tfevents.1",
        "events.out.tfevents.2",
    ]
    assert pods.status(folder / "uploader").code == 0


def test_uploader_that_cannot_start_keeps_no_attempt_from_running(host):
    host.start("echo done", uploader=["/no/such/program"])
    until(lambda: host.facts()["end"])
    assert host.facts()["end"]["code"] == 0


def test_host_reserved_for_deletion_takes_no_other_job_until_the_time_is_over(host):
    about = {"job": "try-1", "attempt": 1}
    assert host.ask("retire", **about, seconds=300) == {"running": [], "held": None}
    assert host.start("true", job="other-2")["refused"] == "held"
    assert host.ask("retire", job="other-2", attempt=0, seconds=300)["held"]["job"] == "try-1"
    host.ask("retire", **about, seconds=-1)
    host.start("true", job="other-2")
    assert host.ended("other-2").code == 0


def test_host_on_which_another_job_runs_is_not_reserved_for_deletion(host):
    host.start("sleep 60", job="other-2")
    answer = host.ask("retire", job="try-1", attempt=1, seconds=300)
    assert [one["job"] for one in answer["running"]] == ["other-2"]
    assert not (host.root / "retired").exists()
