"""`tpu serve`: jobs that nobody follows, whatever happens to the one that drives them."""

from __future__ import annotations

import os
import random
import signal
import time

from waiting import alive, until

LINE = "echo $TPUKIT_ATTEMPT >> $TPUKIT_WORKDIR/lines-$TPU_WORKER_ID; "
WAIT = "while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done"


def send(tpu, *files):
    """Send jobs at once; their ids in the order of the files."""
    senders = [tpu.start("run", file, "--detach") for file in files]
    assert [sender.wait(timeout=90) for sender in senders] == [0] * len(files)
    return [tpu.said(sender).splitlines()[0] for sender in senders]


def serve(tpu, *options):
    """Start it; returns when it drives."""
    serving = tpu.start("serve", "--tick", "0.05", *options)
    until(lambda: "serving" in tpu.said(serving), seconds=60)
    return serving


def test_ten_jobs_at_once_and_serve_killed_ten_times_each_job_ends_once_with_the_right_result(tpu):
    """Each host writes a line for each attempt it runs: none is missing, none is there twice."""
    lost = "[ $TPUKIT_ATTEMPT = 0 ] && { sleep 0.3; [ $TPU_WORKER_ID = 1 ] && kill -9 $$; sleep 60; }; "
    kinds = {
        # what it does: (script, fields, state, reasons of its attempts)
        "well": ("sleep 0.5", {}, "completed", ["done"]),
        "pair": ("sleep 0.4", {"tpu": "v4-16"}, "completed", ["done"]),
        "fail": ("sleep 0.3; exit 3", {}, "failed", ["user error"]),
        "once": ("[ $TPUKIT_ATTEMPT = 1 ]", {"max": {"restarts": 3}}, "completed", ["user error", "done"]),
        "lose": (lost + "exit 0", {"tpu": "v4-16", "rule": "pre"}, "completed", ["host lost", "done"]),
    }
    plan = ["well", "pair", "fail", "once", "lose"] * 2
    files = [
        tpu.file("sh", "-c", LINE + kinds[kind][0], name=f"{kind}-{index}", **kinds[kind][1])
        for index, kind in enumerate(plan)
    ]
    ids = send(tpu, *files)

    dice = random.Random(20261115)
    for _ in range(10):
        serving = serve(tpu, "--parallel", "4")
        time.sleep(dice.uniform(0.0, 0.8))
        os.kill(serving.pid, signal.SIGKILL)
        serving.wait()
    tpu("serve", "--until-idle", "--parallel", "4", "--tick", "0.05")

    ended = {job["id"]: job for job in tpu.jobs()}
    assert sorted(ended) == sorted(ids)
    for job_id, kind in zip(ids, plan, strict=True):
        _, fields, state, reasons = kinds[kind]
        job = ended[job_id]
        assert job["state"] == state, job
        assert [attempt["reason"] for attempt in job["attempts"]] == reasons, job
        for host in range(2 if fields.get("tpu") == "v4-16" else 1):
            lines = (tpu.workdir(job_id) / f"lines-{host}").read_text().split()
            assert lines == [str(number) for number in range(len(reasons))], (job_id, host)
    shown = tpu.show(ids[3])  # one that was restarted: each step of its life is told once
    texts = [event["text"] for event in shown["events"]]
    assert len(texts) == len(set(texts)), texts


def test_serve_until_idle_drives_all_and_leaves(tpu):
    ids = send(tpu, *[tpu.file("sh", "-c", LINE, name=f"job-{index}") for index in range(3)])
    done = tpu("serve", "--until-idle", "--tick", "0.05", "--parallel", "2")
    assert {job["state"] for job in tpu.jobs()} == {"completed"}
    for job_id in ids:
        assert f"{job_id}: attempt 0 (first attempt, stage 0)" in done.stderr
        assert f"{job_id}: all hosts ended well" in done.stderr
    assert tpu("serve", "--until-idle").stderr == "serving; Ctrl-C leaves, jobs run on\n"


def test_serve_told_to_leave_lets_hosts_run_on(tpu):
    (job_id,) = send(tpu, tpu.file("sh", "-c", WAIT))
    for number in (signal.SIGTERM, signal.SIGINT):
        serving = serve(tpu)
        host = tpu.pid(job_id)
        os.kill(serving.pid, number)
        assert serving.wait(timeout=30) == 0
        assert "jobs run on" in tpu.said(serving).splitlines()[-1]
        assert alive(host)
    (tpu.workdir(job_id) / "go").touch()
    tpu("serve", "--until-idle", "--tick", "0.05")
    assert len(tpu.show(job_id)["attempts"]) == 1


def test_two_serve_at_once_share_the_work_and_double_nothing(tpu):
    ids = send(tpu, *[tpu.file("sh", "-c", LINE + "sleep 0.2", name=f"job-{index}") for index in range(4)])
    both = [tpu.start("serve", "--until-idle", "--tick", "0.05", "--parallel", "4") for _ in range(2)]
    assert [serving.wait(timeout=90) for serving in both] == [0, 0]
    for job_id in ids:
        assert (tpu.workdir(job_id) / "lines-0").read_text() == "0\n"
    assert {job["state"] for job in tpu.jobs()} == {"completed"}


def test_serve_beside_a_stop_from_another_terminal(tpu):
    (job_id,) = send(tpu, tpu.file("sh", "-c", WAIT))
    serving = serve(tpu)
    host = tpu.pid(job_id)
    tpu("job", "stop", job_id)
    assert tpu.show(job_id)["state"] == "cancelled"
    assert not alive(host)
    assert serving.poll() is None  # it goes on for other jobs
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(timeout=30) == 0


def test_serve_sweeps_hosts_that_belong_to_no_job(tpu):
    """The store was lost or replaced while hosts ran."""
    (job_id,) = send(tpu, tpu.file("sh", "-c", WAIT))
    serving = serve(tpu)
    host = tpu.pid(job_id)
    os.kill(serving.pid, signal.SIGKILL)
    serving.wait()
    for path in (tpu.home / "state").glob("store.db*"):
        path.unlink()
    tpu("serve", "--until-idle")
    until(lambda: not alive(host))
