"""`tpu serve`: jobs without a client, and recovery of the server."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import time

from support.waiting import PATIENCE, alive, until
from tpukit.jobs import plan
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store.sqlite import SqliteStore

LINE = "echo $TPUKIT_ATTEMPT >> $TPUKIT_WORKDIR/lines-$TPU_WORKER_ID; "
WAIT = "while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done"


def send(tpu, *files):
    """Send jobs at once, and return their ids in the order of the files."""
    senders = [tpu.start("run", file, "--detach") for file in files]
    assert [sender.wait(timeout=PATIENCE) for sender in senders] == [0] * len(files)
    return [tpu.said(sender).splitlines()[0] for sender in senders]


def serve(tpu, *options):
    """Start the server, and return when it drives jobs."""
    serving = tpu.start("serve", "--tick", "0.05", "--no-http", *options)
    until(lambda: "serving" in tpu.said(serving))
    return serving


def test_ten_jobs_at_once_and_serve_killed_ten_times_each_job_ends_once_with_the_right_result(tpu):
    """Check the lines that each host writes per attempt: none is missing, none is duplicated."""
    lost = "[ $TPUKIT_ATTEMPT = 0 ] && { sleep 0.3; [ $TPU_WORKER_ID = 1 ] && kill -9 $$; sleep 60; }; "
    kinds = {
        # kind: (script, fields, state, reasons of its attempts)
        "well": ("sleep 0.5", {}, "completed", ["done"]),
        "pair": ("sleep 0.4", {"tpu": "v4-16"}, "completed", ["done"]),
        "fail": ("sleep 0.3; exit 3", {}, "failed", ["user error"]),
        "once": ("[ $TPUKIT_ATTEMPT = 1 ]", {"max": {"restarts": 3}}, "completed", ["user error", "done"]),
        "lose": (lost + "exit 0", {"tpu": "v4-16", "rule": "pre"}, "completed", ["host lost", "done"]),
    }
    kinds_sent = ["well", "pair", "fail", "once", "lose"] * 2
    files = [
        tpu.file("sh", "-c", LINE + kinds[kind][0], name=f"{kind}-{index}", **kinds[kind][1])
        for index, kind in enumerate(kinds_sent)
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
    for job_id, kind in zip(ids, kinds_sent, strict=True):
        _, fields, state, reasons = kinds[kind]
        job = ended[job_id]
        assert job["state"] == state, job
        assert [attempt["reason"] for attempt in job["attempts"]] == reasons, job
        for host in range(2 if fields.get("tpu") == "v4-16" else 1):
            lines = (tpu.workdir(job_id) / f"lines-{host}").read_text().split()
            assert lines == [str(number) for number in range(len(reasons))], (job_id, host)
    shown = tpu.show(ids[3])  # one that was restarted: each event is shown once
    texts = [event["text"] for event in shown["events"]]
    assert len(texts) == len(set(texts)), texts


def test_serve_until_idle_drives_all_and_leaves(tpu):
    ids = send(tpu, *[tpu.file("sh", "-c", LINE, name=f"job-{index}") for index in range(3)])
    done = tpu("serve", "--until-idle", "--tick", "0.05", "--parallel", "2")
    assert {job["state"] for job in tpu.jobs()} == {"completed"}
    for job_id in ids:
        assert f"{job_id}: attempt 0 (first attempt, stage 0)" in done.stderr
        assert f"{job_id}: completed on all hosts" in done.stderr
    assert tpu("serve", "--until-idle", "--no-http").stderr == "serving; Ctrl-C stops `tpu serve`, jobs keep running\n"


def test_serve_told_to_leave_lets_hosts_run_on(tpu):
    (job_id,) = send(tpu, tpu.file("sh", "-c", WAIT))
    for number in (signal.SIGTERM, signal.SIGINT):
        serving = serve(tpu)
        host = tpu.pid(job_id)
        os.kill(serving.pid, number)
        assert serving.wait(timeout=PATIENCE) == 0
        assert "jobs keep running" in tpu.said(serving).splitlines()[-1]
        assert alive(host)
    (tpu.workdir(job_id) / "go").touch()
    tpu("serve", "--until-idle", "--tick", "0.05")
    assert len(tpu.show(job_id)["attempts"]) == 1


def test_two_serve_at_once_share_the_work_and_double_nothing(tpu):
    ids = send(tpu, *[tpu.file("sh", "-c", LINE + "sleep 0.2", name=f"job-{index}") for index in range(4)])
    both = [tpu.start("serve", "--until-idle", "--tick", "0.05", "--parallel", "4") for _ in range(2)]
    assert [serving.wait(timeout=PATIENCE) for serving in both] == [0, 0]
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
    assert serving.poll() is None  # keeps running for other jobs
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(timeout=PATIENCE) == 0


def test_second_serve_takes_over_what_a_killed_one_drove(tpu):
    ids = send(tpu, *[tpu.file("sh", "-c", LINE + WAIT, name=f"job-{index}") for index in range(2)])
    first = serve(tpu, "--parallel", "2")
    for job_id in ids:
        until(lambda job_id=job_id: f"{job_id}: attempt 0 runs" in tpu.said(first))
    second = serve(tpu, "--parallel", "2", "--until-idle")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    for job_id in ids:
        (tpu.workdir(job_id) / "go").touch()
    assert second.wait(timeout=PATIENCE) == 0
    for job_id in ids:
        assert f"{job_id}: completed on all hosts" in tpu.said(second)
        assert (tpu.workdir(job_id) / "lines-0").read_text() == "0\n"


def ask(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_serve_tells_its_health_and_what_it_counted(tpu):
    (job_id,) = send(tpu, tpu.file("sh", "-c", WAIT))
    serving = tpu.start("serve", "--tick", "0.05", "--port", "0")
    port = int(until(lambda: re.search(r"http://127.0.0.1:(\d+)", tpu.said(serving)))[1])
    until(lambda: ask(port, "/readyz")[0] == 200)
    assert ask(port, "/healthz")[0] == 200
    assert "ready" in tpu("serve", "--check", "ready", "--port", str(port)).stderr
    until(lambda: 'tpukit_jobs_active{state="running"} 1' in ask(port, "/metrics")[1])
    assert "tpukit_leases_held 1" in ask(port, "/metrics")[1]
    (tpu.workdir(job_id) / "go").touch()
    until(lambda: 'tpukit_jobs_ended_total{state="completed",reason="done"} 1' in ask(port, "/metrics")[1])
    text = ask(port, "/metrics")[1]
    assert re.search(r'tpukit_round_seconds_bucket\{group="local",le="\+Inf"\} [1-9]', text)
    assert re.search(r"tpukit_rounds_total [1-9]", text)
    assert ask(port, "/else")[0] == 404

    done = tpu("serve", "--port", str(port), code=1)  # explicitly requested, and in use
    assert f"127.0.0.1:{port}" in done.stderr
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(timeout=PATIENCE) == 0
    assert "no `tpu serve` answers" in tpu("serve", "--check", "live", "--port", str(port), code=1).stderr


def test_serve_beside_an_api_server_that_hangs_drives_local_jobs_and_leaves_in_time(tpu):
    """Regression test: beside a server that never answers, a local job had not started after 75 s."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(64)
        server = f"https://127.0.0.1:{deaf.getsockname()[1]}"
        tpu.env["KUBECONFIG"] = str(kubeconfig(tpu.folder / "kubeconfig", server))
        send_to_cluster(tpu, server)
        (job_id,) = send(tpu, tpu.file("true"))
        serving = serve(tpu)
        until(lambda: f"{job_id}: completed on all hosts" in tpu.said(serving))
        asked = time.monotonic()
        os.kill(serving.pid, signal.SIGTERM)
        assert serving.wait(timeout=PATIENCE) == 0
        assert time.monotonic() - asked < 30.0, "the grace of a pod"


def test_job_of_a_cluster_that_is_gone_can_be_closed_and_serve_goes_idle(tpu):
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{gone.getsockname()[1]}"  # no listener on this port
    tpu.env["KUBECONFIG"] = str(kubeconfig(tpu.folder / "kubeconfig", server))
    job_id = send_to_cluster(tpu, server)
    serving = serve(tpu, "--until-idle")
    until(lambda: f"{job_id}: " in tpu.said(serving))
    assert serving.poll() is None
    until(lambda: tpu.show(job_id)["message"])  # serve cannot reach the cluster either
    done = tpu("job", "forget", job_id, "--yes")
    assert f"delete jobset {job_id}" in done.stderr or "never started" in done.stderr
    assert serving.wait(timeout=PATIENCE) == 0
    assert tpu.show(job_id)["state"] == "cancelled"


def kubeconfig(path, server):
    named = {"clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}]}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                **named,
            }
        )
    )
    return path


def send_to_cluster(tpu, server):
    """Create the record of a job on an unreachable cluster."""
    spec = JobSpec.from_json(
        {"name": "far", "tpu": "v4-8", "command": ["true"], "image": "a/b:1", "workdir": "gs://bucket/runs"}
    )
    far = plan.make(spec, Settings(), "gke", target=plan.ClusterName("c", server))
    store = SqliteStore(tpu.home / "state" / "store.db")
    store.create(JOBS, far.id, Job(far.id, "gke", far.team, "me", time.time(), plan=far.to_json()))
    store.close()
    return far.id


def cpu_seconds(tpu, *arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    tpu(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def test_serve_start_costs_the_same_with_thousands_of_old_runs(tpu):
    """Regression test: it took half a minute with 3,000 runs."""
    leave = ("serve", "--until-idle", "--no-http")
    tpu(*leave)  # warm up
    few = cpu_seconds(tpu, *leave)
    for index in range(3000):
        host = tpu.home / "data" / "runs" / f"old-{index:05}" / "attempt-0" / f"old-{index:05}-slice-0-0"
        host.mkdir(parents=True)
        (host / "log").write_text("done\n")
    assert cpu_seconds(tpu, *leave) < few + 5.0


def test_serve_installs_a_unit_that_systemd_can_run(tpu):
    tpu.env["XDG_CONFIG_HOME"] = str(tpu.folder / "con fig")
    tpu.env["TPUKIT_STORE"] = "sqlite"
    unit = tpu.folder / "con fig" / "systemd" / "user" / "tpukit-serve.service"
    done = tpu("serve", "--install", "--parallel", "3")
    assert str(unit) in done.stderr
    assert "systemctl --user daemon-reload" in done.stderr
    assert "systemctl --user enable --now tpukit-serve.service" in done.stderr
    text = unit.read_text()
    assert f'ExecStart="{tpu.argv()[0]}" "-m" "tpukit" "serve" "--parallel" "3"' in text
    assert f'Environment="TPUKIT_HOME={tpu.home}"' in text
    assert "KillMode=process" in text  # hosts of local jobs survive
    assert "systemctl --user disable --now" in tpu("serve", "--uninstall").stderr
    assert not unit.exists()
    tpu("serve", "--uninstall", code=1)
