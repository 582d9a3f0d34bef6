"""`tpu run` with real processes: every way a job can end, its name, and its exit code."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from support.cramped import on_small_disk
from support.waiting import PATIENCE, alive, until

PYTHON = (sys.executable, "-S", "-c")
RECORD = "env > $TPUKIT_WORKDIR/$TPUKIT_ATTEMPT-$MEGASCALE_SLICE_ID-$TPU_WORKER_ID"
WAIT = "echo waiting; while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done"

# Hosts that step together, as in a collective, and report progress. The first attempt runs until stopped, later ones
# for three steps.
LOCKSTEP = """
import itertools, json, os, time
from pathlib import Path
work, stage, me = Path(os.environ["TPUKIT_WORKDIR"]), os.environ["TPUKIT_STAGE"], os.environ["TPU_WORKER_ID"]
hosts = range(len(os.environ["TPU_WORKER_HOSTNAMES"].split(",")))
progress = Path(os.environ["TPUKIT_PROGRESS"])
for step in itertools.count() if stage == "0" else range(3):
    (work / f"{stage}-{me}-{step}").touch()
    while not all((work / f"{stage}-{host}-{step}").exists() for host in hosts):
        time.sleep(0.01)
    new = progress.with_name("progress.new")
    said = {"step": step, "loss": 1 / (step + 1), "steps_per_s": 9.5, "saved": step, "time": time.time()}
    new.write_text(json.dumps(said))
    new.replace(progress)
    time.sleep(0.05)
"""


def test_run_to_completion(tpu):
    """Check data on stdout, notes on stderr, exit code 0, and the environment of a GKE pod on every host."""
    tpu.forks = False
    file = tpu.file("sh", "-c", f"{RECORD}; echo hello from $TPU_WORKER_ID", tpu="v4-16", slices=2, env={"MINE": "a b"})
    done = tpu("run", file, "--tag", "first", "--tag", "second")
    job_id = done.stdout.strip()
    assert done.stdout == f"{job_id}\n"
    assert "2 slices of v4-16 (2x2x2), 4 hosts, 16 chips, place local, rule pass" in done.stderr
    assert "chips are simulated" in done.stderr
    assert "completed on all hosts" in done.stderr

    shown = tpu.show(job_id)
    assert (shown["state"], shown["reason"], shown["tags"]) == ("completed", "done", ["first", "second"])
    assert [host["exit_code"] for host in shown["hosts"]] == [0, 0, 0, 0]
    assert len(shown["attempts"]) == 1
    texts = [event["text"] for event in shown["events"]]
    assert texts[0].startswith("sent to local by ")
    assert texts[-1] == "completed on all hosts"

    found = {}
    for slice_index in range(2):
        for host in range(2):
            lines = (tpu.workdir(job_id) / f"0-{slice_index}-{host}").read_text().splitlines()
            found[slice_index, host] = dict(line.split("=", 1) for line in lines)
    ports = {env["JAX_COORDINATOR_PORT"] for env in found.values()}
    assert len(ports) == 1
    for (slice_index, host), env in found.items():
        assert env["TPU_WORKER_ID"] == env["JOB_COMPLETION_INDEX"] == str(host)
        assert env["MEGASCALE_SLICE_ID"] == str(slice_index)
        assert env["MEGASCALE_NUM_SLICES"] == "2"
        assert env["TPU_WORKER_HOSTNAMES"] == "127.0.0.1,127.0.0.1"
        assert env["MEGASCALE_COORDINATOR_ADDRESS"] == "127.0.0.1"
        assert (env["TPU_TOPOLOGY"], env["TPU_ACCELERATOR_TYPE"]) == ("2x2x2", "v4-16")
        assert (env["TPUKIT_JOB"], env["TPUKIT_ATTEMPT"], env["TPUKIT_STAGE"]) == (job_id, "0", "0")
        assert env["TPUKIT_WORKDIR"] == str(tpu.workdir(job_id))
        assert env["JAX_COORDINATOR_BIND_ADDRESS"] == f"127.0.0.1:{env['JAX_COORDINATOR_PORT']}"
        assert env["MINE"] == "a b"
        assert not {name for name in env if name.lower().endswith("_proxy") or name.startswith("PYTHONPATH")}


def test_run_stages_the_code_and_runs_in_a_copy_that_later_changes_do_not_reach(tpu):
    (tpu.folder / "code").mkdir()
    program = tpu.folder / "code" / "train.py"
    program.write_text("open('made-here', 'w').close(); print('from', __file__)")
    job_id = tpu("run", tpu.file("python", "train.py", code="code"), "--detach").stdout.strip()
    program.write_text("print('changed after the job was sent')")
    tpu("serve", "--until-idle", "--no-http", "--tick", "0.05")
    assert tpu("job", "logs", job_id, "--host", "0-0").stdout == f"from {tpu.home}/data/runs/{job_id}/code/train.py\n"
    assert not (tpu.folder / "code" / "made-here").exists()
    assert tpu.show("train")["code"]


def test_run_failing_program_names_the_first_host_and_honours_the_budget(tpu):
    script = f"{RECORD}; [ $TPU_WORKER_ID = 1 ] && {{ echo 'KeyError: layers'; exit 3; }}; sleep 60"
    done = tpu("run", tpu.file("sh", "-c", script, tpu="v4-16", max={"restarts": 1}), code=1)
    job_id = done.stdout.strip()
    shown = tpu.show(job_id)
    culprit = f"{job_id}-slice-0-1"
    assert (shown["state"], shown["reason"]) == ("failed", "user error")
    assert [(attempt["reason"], attempt["host"], attempt["stage"]) for attempt in shown["attempts"]] == [
        ("user error", culprit, 0),
        ("user error", culprit, 1),
    ]
    assert culprit in shown["message"]
    assert "KeyError: layers" in shown["message"]
    assert "1 of 1 restarts used" in shown["message"]
    assert culprit in done.stderr
    assert sorted(path.name for path in tpu.workdir(job_id).iterdir()) == ["0-0-0", "0-0-1", "1-0-0", "1-0-1"]


def test_run_lost_host_is_resumed_by_rule_in_the_next_stage(tpu):
    script = f"{RECORD}; [ $TPUKIT_STAGE = 1 ] && exit 0; [ $TPU_WORKER_ID = 1 ] && kill -9 $$; sleep 60"
    job_id = tpu("run", tpu.file("sh", "-c", script, tpu="v4-16", rule="pre")).stdout.strip()
    shown = tpu.show(job_id)
    first, second = shown["attempts"]
    assert (first["reason"], first["host"], first["detail"]) == (
        "host lost",
        f"{job_id}-slice-0-1",
        "killed by signal 9",
    )
    assert (second["reason"], second["stage"]) == ("done", 1)
    assert "TPUKIT_STAGE=1\n" in (tpu.workdir(job_id) / "1-0-0").read_text()


def test_run_hung_host_is_named_killed_and_resumed(tpu):
    file = tpu.file(*PYTHON, LOCKSTEP, tpu="v4-16", rule="pre", max={"stall": "8s"})
    run = tpu.start("run", file)
    job_id = tpu.the_job()
    until((tpu.workdir(job_id) / "0-1-2").exists)
    os.kill(tpu.pid(job_id, "0-1"), signal.SIGSTOP)
    assert run.wait(timeout=PATIENCE) == 0, tpu.said(run)
    first, second = tpu.show(job_id)["attempts"]
    assert (first["reason"], first["host"]) == ("hang", f"{job_id}-slice-0-1")
    assert first["saved_step"] >= 1
    assert (second["reason"], second["saved_step"]) == ("done", max(2, first["saved_step"]))
    said = tpu.said(run)
    assert f"{job_id}-slice-0-1 stopped making progress" in said
    assert "loss 0." in said or "loss 1." in said
    assert "9.50 steps/s" in said


@pytest.mark.parametrize(
    ("command", "reason", "word"),
    [
        (["no-such-binary", "--flag"], "bad command", "no-such-binary: No such file or directory"),
        (
            [*PYTHON, "import os; os.write(os.open('/dev/full', os.O_WRONLY), b'x')"],
            "disk full",
            "No space left on device",
        ),
        (["sh", "-c", "echo MemoryError; exit 1"], "out of memory", "ran out of memory"),
        (["sh", "-c", "kill -TERM $$"], "preempted", "was preempted"),
    ],
    ids=["missing binary", "disk full", "out of memory", "told to leave by others"],
)
def test_run_end_is_named(tpu, command, reason, word):
    done = tpu("run", tpu.file(*command), code=1)
    (job,) = tpu.jobs()
    assert (job["state"], job["reason"]) == ("failed", reason)
    assert word in job["message"]
    assert word in done.stderr


def test_run_port_in_use_is_named(tpu):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        script = f"import socket; socket.socket().bind(('127.0.0.1', {taken.getsockname()[1]}))"
        tpu("run", tpu.file(*PYTHON, script), code=1)
    (job,) = tpu.jobs()
    assert (job["state"], job["reason"]) == ("failed", "port in use")


ON_SMALL_DISK = """
import json, subprocess, sys
disk, argv, env, fill = sys.argv[1], {argv!r}, {env!r}, {fill!r}
if fill:
    env["TPUKIT_HOME"] = disk + "/home"
    with open(disk + "/filler", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096): pass
        except OSError: pass
else:
    argv += ["--set", "workdir=" + disk]
done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
print(json.dumps({{"code": done.returncode, "said": done.stderr}}))
"""


def test_run_program_that_fills_its_disk_without_a_word_is_found_out(tpu):
    argv = tpu.argv("run", tpu.file("sh", "-c", "yes 2>/dev/null > $TPUKIT_WORKDIR/big; exit 1"))
    done = on_small_disk(tpu.folder / "disk", 256, ON_SMALL_DISK.format(argv=argv, env=tpu.env, fill=False))
    assert done["code"] == 1
    (job,) = tpu.jobs()
    assert job["reason"] == ("disk full" if done["full"] else "user error")


def test_run_home_on_a_full_disk_says_so_and_leaves(tpu):
    argv = tpu.argv("run", tpu.file("true"))
    done = on_small_disk(tpu.folder / "disk", 64, ON_SMALL_DISK.format(argv=argv, env=tpu.env, fill=True))
    assert "Traceback" not in done["said"]
    if done["full"]:
        assert done["code"] == 1
        assert "free some disk space" in done["said"]


def test_run_interrupted_with_stop_stops_the_job(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", f"trap 'echo saved; exit 143' TERM; {WAIT}"), "--on-interrupt", "stop")
    job_id = tpu.the_job()
    until(lambda: "waiting" in tpu("job", "logs", job_id).stdout)
    os.kill(run.pid, signal.SIGINT)
    assert run.wait(timeout=PATIENCE) == 1, tpu.said(run)
    shown = tpu.show(job_id)
    assert (shown["state"], shown["reason"]) == ("cancelled", "cancelled")
    assert "saved" in tpu("job", "logs", job_id).stdout


@pytest.mark.parametrize("how", ["Ctrl-C", "hangup", "TERM"])
def test_run_left_the_job_goes_on_and_serve_finishes_it(tpu, how):
    run = tpu.start("run", tpu.file("sh", "-c", WAIT), "--on-interrupt", "detach")
    job_id = tpu.the_job()
    host = tpu.pid(job_id)
    until(lambda: "attempt 0 runs" in tpu.said(run))
    os.killpg(run.pid, {"Ctrl-C": signal.SIGINT, "hangup": signal.SIGHUP, "TERM": signal.SIGTERM}[how])
    assert run.wait(timeout=PATIENCE) == 130, tpu.said(run)
    assert f"tpu job stop {job_id}" in tpu.said(run)
    assert alive(host)
    (tpu.workdir(job_id) / "go").touch()
    tpu("serve", "--until-idle", "--tick", "0.1")
    shown = tpu.show(job_id)
    assert (shown["state"], len(shown["attempts"])) == ("completed", 1)


def test_run_under_nohup_does_not_mind_the_hangup(tpu):
    ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    run = tpu.start("run", tpu.file("sh", "-c", WAIT), **ignoring)
    job_id = tpu.the_job()
    until(lambda: "attempt 0 runs" in tpu.said(run))
    os.kill(run.pid, signal.SIGHUP)
    (tpu.workdir(job_id) / "go").touch()
    assert run.wait(timeout=PATIENCE) == 0, tpu.said(run)


def test_run_killed_with_its_terminal_and_hosts_is_seen_and_named(tpu):
    """Kill all processes of the login at once. The next command reports what happened."""
    run = tpu.start("run", tpu.file("sh", "-c", WAIT, tpu="v4-16", rule="resume"))
    job_id = tpu.the_job()
    hosts = [tpu.pid(job_id, host) for host in ("0-0", "0-1")]
    shims = [tpu.pid(job_id, host, of="shim") for host in ("0-0", "0-1")]
    os.killpg(run.pid, signal.SIGKILL)
    for pid in [*shims, *hosts]:
        with suppress(ProcessLookupError):  # hosts end with their shims
            os.kill(pid, signal.SIGKILL)
    run.wait(timeout=PATIENCE)
    tpu("serve", "--until-idle", "--tick", "0.1")
    shown = tpu.show(job_id)
    assert (shown["state"], shown["reason"]) == ("failed", "host lost")
    assert "without an exit code" in shown["message"]
    assert [host["state"] for host in shown["hosts"]] == ["lost", "lost"]


def test_run_detached_returns_at_once_and_starts_nothing(tpu):
    done = tpu("run", tpu.file("true"), "--detach")
    job_id = done.stdout.strip()
    assert "tpu serve" in done.stderr
    assert tpu.show(job_id)["state"] == "pending"
    assert not (tpu.home / "data" / "runs").exists()


def test_run_dry_says_what_would_be_done_and_does_nothing(tpu):
    done = tpu("run", tpu.file("true", slices=2), "--dry-run", "--set", "slices=3")
    assert "3 slices of v4-8" in done.stderr
    assert done.stdout == ""
    assert tpu.jobs() == []
    assert not (tpu.home / "data" / "code").exists()
    assert not (tpu.home / "data" / "runs").exists()


def test_run_of_one_file_gets_another_id_each_time_it_is_sent(tpu):
    file = tpu.file("true")
    dry = tpu("run", file, "--dry-run").stderr.partition(":")[0]
    sent = [tpu("run", file, "--detach").stdout.strip() for _ in range(3)]
    assert len({dry, *sent}) == 4
    assert all(job_id.startswith("train-") for job_id in (dry, *sent))


def test_dry_run_looks_at_the_code_and_stages_nothing(tpu):
    code = tpu.folder / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)")
    file = tpu.file("python", "train.py", code="code")
    said = tpu("run", file, "--dry-run").stderr
    os.mkfifo(code / "pipe")
    assert "pipe" in tpu("run", file, "--dry-run", code=2).stderr
    assert not (tpu.home / "data" / "code").exists()
    (code / "pipe").unlink()
    job_id = tpu("run", file).stdout.strip()
    assert f"code {tpu.show(job_id)['code']}" in said


def test_run_loss_that_never_happened_is_a_failure_with_a_sentence(tpu):
    done = tpu("run", tpu.file("true"), "--lose", "0-0@7", code=1)
    assert "--lose never happened: host 0-0 did not report step 7" in done.stderr
    assert tpu.show("train")["state"] == "completed"


def test_run_loss_that_happened_is_survived(tpu):
    done = tpu("run", tpu.file(*PYTHON, LOCKSTEP, tpu="v4-16", rule="pre"), "--lose", "0-1@2")
    shown = tpu.show(done.stdout.strip())
    assert [attempt["reason"] for attempt in shown["attempts"]] == ["host lost", "done"]
    assert any("killed at step" in event["text"] for event in shown["events"])


def test_run_in_a_workdir_that_is_a_file_is_refused_before_anything_is_sent(tpu):
    (tpu.folder / "work").touch()
    done = tpu("run", tpu.file("true", workdir=str(tpu.folder / "work")), code=2)
    assert "is a file" in done.stderr
    assert tpu.jobs() == []


def test_run_in_the_workdir_of_another_job_is_refused_unless_resume_is_asked_for(tpu):
    file = tpu.file("sh", "-c", "touch $TPUKIT_WORKDIR/result", workdir=str(tpu.folder / "work"))
    first = tpu("run", file).stdout.strip()
    refused = tpu("run", file, "--dry-run", code=2)
    assert f"holds the output of job {first}" in refused.stderr
    assert f"`tpu job resume {first}`" in refused.stderr
    second = tpu("run", file, "--resume").stdout.strip()
    tpu("job", "resume", first)
    assert [tpu.show(one)["state"] for one in (first, second)] == ["completed", "completed"]


def test_job_that_can_never_start_ends_with_its_reason_and_holds_no_slot(tpu):
    first = tpu("run", tpu.file("true", name="first", workdir=str(tpu.folder / "work")), "--detach").stdout.strip()
    second = tpu("run", tpu.file("true", name="second"), "--detach").stdout.strip()
    (tpu.folder / "work").touch()  # created after the job was sent
    tpu("serve", "--until-idle", "--tick", "0.05", "--parallel", "1", "--no-http")
    shown = tpu.show(first)
    assert (shown["state"], shown["reason"]) == ("failed", "cannot start")
    assert str(tpu.folder / "work") in shown["message"]
    assert tpu.show(second)["state"] == "completed"


def test_run_beside_serve_watches_and_takes_over_when_that_dies(tpu):
    job_id = tpu("run", tpu.file("sh", "-c", WAIT), "--detach").stdout.strip()
    serving = tpu.start("serve", "--tick", "0.05", "--no-http")
    until(lambda: f"{job_id}: attempt 0 runs" in tpu.said(serving))
    os.kill(serving.pid, signal.SIGSTOP)
    tpu.start("job", "stop", job_id, "--no-wait").wait(timeout=PATIENCE)
    os.kill(serving.pid, signal.SIGCONT)
    until(lambda: tpu.show(job_id)["state"] == "cancelled")
    run = tpu.start("job", "resume", job_id)
    until(lambda: f"{job_id}-slice-0-0" in tpu.said(run) or "runs" in tpu.said(run))
    serving.kill()
    (tpu.workdir(job_id) / "go").touch()
    assert run.wait(timeout=PATIENCE) == 0, tpu.said(run)


def test_run_whose_output_nobody_reads_any_more_drives_the_job_to_its_end(tpu):
    line = " ".join(tpu.argv("run", tpu.file("sh", "-c", "sleep 1", name="piped")))
    script = f"set -o pipefail; {line} 2>&1 | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=tpu.env, cwd=tpu.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert tpu.show("piped")["state"] == "completed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wrong.yaml"], ["wrong.yaml:1", "v4-33", "comand"]),
        (["missing.yaml"], ["missing.yaml"]),
        (["right.yaml", "--set", "slices=many"], ["--set slices", "many"]),
        (["right.yaml", "--place", "moon"], ["--place", "moon", "local, gke"]),
        (["right.yaml", "--tag", "a b"], ["--tag", "'a b'"]),
        (["right.yaml", "--lose", "5-0@3"], ["--lose", "no host 5-0"]),
    ],
    ids=["file", "missing", "set", "place", "tag", "lose"],
)
def test_run_bad_input_is_refused_and_nothing_created(tpu, arguments, words):
    (tpu.folder / "wrong.yaml").write_text('{"name": "x", "tpu": "v4-33", "comand": []}')
    tpu.file("true", name="right")
    done = tpu("run", *arguments, code=2)
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
    assert list(tpu.home.rglob("*")) == []


def test_run_tag_adds_to_the_tags_of_the_file(tpu):
    tpu("run", tpu.file("true", tags=["mine"]), "--detach", "--tag", "sweep", "--tag", "7")
    (job,) = tpu.jobs()
    assert job["tags"] == ["mine", "sweep", "7"]


def test_run_same_file_twice_is_two_jobs(tpu):
    file = tpu.file("true")
    ids = {tpu("run", file, "--detach").stdout.strip() for _ in range(2)}
    assert len(ids) == 2
    assert {job["id"] for job in tpu.jobs()} == ids


def test_run_unwritable_home_is_a_sentence(tpu):
    (tpu.folder / "file").touch()
    tpu.env["TPUKIT_HOME"] = str(tpu.folder / "file")
    assert "$TPUKIT_HOME" in tpu("run", tpu.file("true"), code=1).stderr
