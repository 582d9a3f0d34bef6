"""`tpu job`: showing jobs, stopping them without leftovers, running them again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest
from msgspec.structs import replace

from support.waiting import PATIENCE, alive, until
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store import change
from tpukit.kernel.store.sqlite import SqliteStore

WAIT = "echo waiting; while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done"

# Ignores SIGTERM, and spawns processes that are hard to find: children, and daemons in sessions of their own.
STUBBORN = """
trap '' TERM INT HUP
echo $$ >> $TPUKIT_WORKDIR/pids
sh -c "trap '' TERM; echo \\$\\$ >> $TPUKIT_WORKDIR/pids; sleep 600; sleep 600" &
setsid sh -c "trap '' TERM; echo \\$\\$ >> $TPUKIT_WORKDIR/pids; sleep 600; sleep 600" &
while :; do sleep 1; done
"""
# A daemon that dropped its environment, and with it the mark that identifies it.
NAMELESS = 'env -i setsid sh -c "echo \\$\\$ >> $TPUKIT_WORKDIR/pids; setsid sleep 600 & sleep 600; sleep 600" &'


def fill(home, count, **fields):
    """Create jobs as records alone."""
    store = SqliteStore(home / "state" / "store.db")
    plan = {"spec": {"tpu": "v4-8"}}
    for index in range(count):
        job = Job(f"many-{index:05}", "local", "team", "me", 1_700_000_000.0 + index, plan=plan)
        store.create(JOBS, job.id, replace(job, **fields))
    store.close()


def edit(tpu, job_id, how):
    store = SqliteStore(tpu.home / "state" / "store.db")
    change(store, JOBS, job_id, how)
    store.close()


def stored(tpu, job_id):
    """Return the document of a job from the store file."""
    with closing(sqlite3.connect(tpu.home / "state" / "store.db")) as db:
        return json.loads(db.execute("SELECT doc FROM documents WHERE key = ?", (job_id,)).fetchone()[0])


def damage(tpu, job_id, how):
    text = how if isinstance(how, str) else json.dumps(how(stored(tpu, job_id)))
    with closing(sqlite3.connect(tpu.home / "state" / "store.db")) as db, db:
        db.execute("UPDATE documents SET doc = ? WHERE key = ?", (text, job_id))


def test_empty_store_list_and_show(tpu):
    for arguments in (["job"], ["job", "list"], ["job", "list", "--active"]):
        done = tpu(*arguments)
        assert done.stdout == ""
        assert "tpu run FILE" in done.stderr
    assert tpu("job", "list", "--json").stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments", [["show"], ["logs"], ["stop"], ["resume"], ["rerun"], ["tag", "x"]], ids=lambda arguments: arguments[0]
)
def test_unknown_job_is_exit_1_with_a_hint(tpu, arguments):
    command, *rest = arguments
    done = tpu("job", command, "nope", *rest, code=1)
    assert done.stdout == ""
    assert done.stderr == "tpu: there is no job nope\n  see `tpu job list`\n"


def test_list_is_newest_first_and_says_when_it_is_cut_short(tpu):
    fill(tpu.home, 60)
    done = tpu("job")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["job", "state", "tpu", "attempt", "age", "tags", "message"]
    assert [line.split()[0] for line in lines[1:]] == [f"many-{index:05}" for index in range(59, 9, -1)]
    assert "--all" in done.stderr
    assert len(tpu.jobs()) == 50
    assert len(tpu("job", "list", "--all").stdout.splitlines()) == 61
    active = tpu("job", "list", "--active").stdout.splitlines()
    assert active[1].split()[0] == "many-00059"


def test_list_only_active_or_tagged(tpu):
    fill(tpu.home, 3)
    store = SqliteStore(tpu.home / "state" / "store.db")
    change(store, JOBS, "many-00001", lambda job: replace(job, state=State.COMPLETED, tags=("sweep",)))
    store.close()
    active = tpu("job", "list", "--active").stdout
    assert "many-00001" not in active
    assert "many-00002" in active
    tagged = tpu("job", "list", "--tag", "sweep").stdout.splitlines()
    assert [line.split()[0] for line in tagged[1:]] == ["many-00001"]


def test_job_is_found_by_id_by_its_beginning_or_as_the_newest_of_its_name(tpu):
    ids = [
        tpu("run", tpu.file("true", name=name), "--detach").stdout.strip() for name in ("train", "train", "train-big")
    ]
    assert tpu.show(ids[0])["id"] == ids[0]
    assert tpu.show(ids[0][:-1])["id"] == ids[0]
    assert tpu.show("train")["id"] == ids[1]  # not train-big, which has it as a prefix
    assert tpu.show("train-big")["id"] == ids[2]
    done = tpu("job", "show", "tr", code=1)
    assert all(job_id in done.stderr for job_id in ids)
    assert "write more characters of the id" in done.stderr


def test_show_tells_everything_about_a_job(tpu):
    script = "[ $TPU_WORKER_ID = 1 ] && exit 4; exit 0"
    tpu("run", tpu.file("sh", "-c", script, tpu="v4-16", tags=["t"]), code=1)
    shown = tpu.show("train")
    assert set(shown) == {
        *("id", "state", "reason", "message", "place", "team", "owner", "tags", "created", "ended", "attempts"),
        *("tpu", "slices", "workdir", "command", "code", "hosts", "events"),
    }
    assert shown["command"] == ["sh", "-c", script]
    assert [(host["state"], host["exit_code"]) for host in shown["hosts"]] == [("ended", 0), ("ended", 4)]
    text = tpu("job", "show", "train").stdout
    job_id = shown["id"]
    for part in (
        f"{job_id} failed",
        f"{job_id}-slice-0-1",
        "user error",
        "ended (4)",
        "workdir",
        "v4-16",
        "sent to local",
    ):
        assert part in text


def test_logs_of_all_hosts_of_one_and_of_an_earlier_attempt(tpu):
    script = "echo attempt $TPUKIT_ATTEMPT host $TPU_WORKER_ID; printf 'no newline'; [ $TPUKIT_ATTEMPT = 1 ]"
    job_id = tpu("run", tpu.file("sh", "-c", script, tpu="v4-16", max={"restarts": 1})).stdout.strip()
    both = "slice-0-{0}: attempt {1} host {0}\nslice-0-{0}: no newline\n"
    assert tpu("job", "logs", "train").stdout == both.format(0, 1) + both.format(1, 1)
    assert tpu("job", "logs", "train", "--attempt", "0").stdout == both.format(0, 0) + both.format(1, 0)
    assert tpu("job", "logs", "train", "--host", "0-1").stdout == "attempt 1 host 1\nno newline\n"
    assert tpu("job", "logs", "train", "--host", f"{job_id}-slice-0-1").stdout == "attempt 1 host 1\nno newline\n"
    done = tpu("job", "logs", "train", "--attempt", "2", code=1)
    assert "has no attempt 2" in done.stderr
    done = tpu("job", "logs", "train", "--host", "7-7", code=1)
    assert f"{job_id} has no host 7-7" in done.stderr
    assert "0-0, 0-1" in done.stderr


def test_logs_followed_come_as_they_are_written_and_end_with_the_job(tpu):
    script = "echo first; while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done; echo second"
    run = tpu.start("run", tpu.file("sh", "-c", script))
    job_id = tpu.the_job()
    follow = tpu.start("job", "logs", "train", "-f")
    until(lambda: tpu.said(follow) == "slice-0-0: first\n")
    (tpu.workdir(job_id) / "go").touch()
    assert follow.wait(timeout=PATIENCE) == 0
    ended = f"{job_id} completed (done): completed on all hosts\n"
    assert tpu.said(follow) == f"slice-0-0: first\nslice-0-0: second\n{ended}"
    assert run.wait(timeout=PATIENCE) == 0


def test_logs_of_a_job_that_has_not_begun_says_so(tpu):
    tpu("run", tpu.file("true"), "--detach")
    assert "has no attempt yet" in tpu("job", "logs", "train", code=1).stderr


def test_stop_leaves_nothing_of_a_program_that_will_not_leave(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", NAMELESS + STUBBORN, tpu="v4-16", max={"grace": "1s"}))
    job_id = tpu.the_job()
    pids = tpu.workdir(job_id) / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 8)
    processes = [int(word) for word in pids.read_text().split()]
    done = tpu("job", "stop", "train")
    assert f"{job_id} cancelled" in done.stderr
    assert not any(alive(pid) for pid in processes)
    assert run.wait(timeout=PATIENCE) == 1
    shown = tpu.show(job_id)
    assert (shown["state"], shown["reason"]) == ("cancelled", "cancelled")
    assert [host["exit_code"] for host in shown["hosts"]] == [137, 137]

    again = tpu("job", "stop", "train")
    assert f"{job_id} has already ended: cancelled" in again.stderr
    assert len(tpu.show(job_id)["events"]) == len(shown["events"])


def test_stop_of_a_job_whose_watchers_were_killed_leaves_nothing(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", STUBBORN, max={"grace": "1s"}))
    job_id = tpu.the_job()
    pids = tpu.workdir(job_id) / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    processes = [int(word) for word in pids.read_text().split()]
    run.kill()
    os.kill(tpu.pid(job_id, of="shim"), signal.SIGKILL)
    tpu("job", "stop", "train")
    assert not any(alive(pid) for pid in processes)
    assert tpu.show(job_id)["state"] == "cancelled"


def test_stop_before_anything_ran_cancels(tpu):
    job_id = tpu("run", tpu.file("true"), "--detach").stdout.strip()
    tpu("job", "stop", "train")
    shown = tpu.show(job_id)
    assert (shown["state"], shown["attempts"]) == ("cancelled", [])
    tpu("serve", "--until-idle")
    assert tpu.show(job_id)["attempts"] == []


def test_stop_without_waiting_leaves_it_to_whoever_drives(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", WAIT))
    tpu.the_job()
    said = tpu("job", "stop", "train", "--no-wait").stderr
    assert re.fullmatch(rf"train-\w+ will be stopped by \S+@\S+, process {run.pid}\n", said)
    assert run.wait(timeout=PATIENCE) == 1
    assert "stopped on request" in tpu.said(run)


def test_stop_without_waiting_of_a_job_that_nobody_drives_is_done_at_once(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", WAIT), "--on-interrupt", "detach")
    job_id = tpu.the_job()
    host = tpu.pid(job_id)
    os.kill(run.pid, signal.SIGINT)
    assert run.wait(timeout=PATIENCE) == 130
    assert "no process drives it" in tpu("job", "stop", "train", "--no-wait").stderr
    until(lambda: not alive(host))
    assert "cancelled" in tpu("job", "stop", "train").stderr


def test_stop_takes_over_when_the_one_that_drives_dies(tpu):
    """Freeze the driver first, so that it holds the job without acting on it."""
    run = tpu.start("run", tpu.file("sh", "-c", WAIT))
    job_id = tpu.the_job()
    until(lambda: "attempt 0 runs" in tpu.said(run))
    os.kill(run.pid, signal.SIGSTOP)
    stopping = tpu.start("job", "stop", "train")
    until(lambda: f"process {run.pid}" in tpu.said(stopping))
    assert stopping.poll() is None
    run.kill()
    run.wait()
    assert stopping.wait(timeout=PATIENCE) == 0
    assert tpu.show(job_id)["state"] == "cancelled"


def test_stop_of_a_job_of_another_machine_that_nobody_drives_says_so(tpu):
    job_id = tpu("run", tpu.file("true"), "--detach").stdout.strip()
    edit(tpu, job_id, lambda job: replace(job, plan={**job.plan, "machine": "elsewhere"}))
    done = tpu("job", "stop", "train", code=1)
    assert "this machine cannot reach it" in done.stderr
    assert f"tpu job forget {job_id}" in done.stderr
    tpu("serve", "--until-idle", "--no-http")  # it has no job that it can drive
    assert "closed by" in tpu("job", "forget", "train", "--yes").stderr
    assert tpu.show(job_id)["state"] == "cancelled"


def test_forget_is_refused_while_the_job_runs_and_asks_otherwise(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", WAIT))
    job_id = tpu.the_job()
    until(lambda: "attempt 0 runs" in tpu.said(run))
    done = tpu("job", "forget", "train", "--yes", code=1)
    assert f"`tpu job stop {job_id}`" in done.stderr
    (tpu.workdir(job_id) / "go").touch()
    assert run.wait(timeout=PATIENCE) == 0
    assert "has already ended" in tpu("job", "forget", "train", "--yes").stderr
    tpu("run", tpu.file("true", name="other"), "--detach")
    done = tpu("job", "forget", "other", code=2)
    assert "Close other-" in done.stderr
    assert tpu.show("other")["state"] == "pending"


def test_forgotten_job_of_a_machine_that_is_gone_says_what_may_be_left(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", WAIT), "--on-interrupt", "detach")
    job_id = tpu.the_job()
    until(lambda: "attempt 0 runs" in tpu.said(run))
    os.kill(run.pid, signal.SIGINT)
    run.wait(timeout=PATIENCE)
    (tpu.workdir(job_id) / "go").touch()
    edit(tpu, job_id, lambda job: replace(job, plan={**job.plan, "machine": "gone-for-good"}))
    assert "processes on gone-for-good" in tpu("job", "forget", "train", "--yes").stderr
    shown = tpu.show(job_id)
    assert (shown["state"], shown["attempts"][0]["reason"]) == ("cancelled", "cancelled")
    assert "gone-for-good" in shown["message"]


def test_record_that_nobody_can_read_is_listed_and_leaves_the_rest_usable(tpu):
    job_id = tpu("run", tpu.file("true"), "--detach").stdout.strip()
    fill(tpu.home, 1)
    damage(tpu, "many-00000", "{")
    done = tpu("job", "list")
    assert job_id in done.stdout
    assert "many-00000 cannot be read" in done.stderr
    assert {job["id"] for job in tpu.jobs()} == {job_id, "many-00000"}
    assert "cannot be read" in tpu("job", "show", "many-00000", code=1).stderr
    tpu("serve", "--until-idle", "--no-http", "--tick", "0.05")
    assert tpu.show(job_id)["state"] == "completed"


def test_record_with_a_field_of_a_newer_version_and_a_spec_that_is_refused_today_is_shown_and_stopped(tpu):
    job_id = tpu("run", tpu.file("true"), "--detach").stdout.strip()

    def newer(doc):
        doc["mood"] = "good"
        doc["plan"]["spec"]["mood"] = "better"
        doc["plan"]["spec"]["slices"] = -3
        return doc

    damage(tpu, job_id, newer)
    assert job_id in tpu("job", "list").stdout
    assert tpu.show(job_id)["state"] == "pending"
    tpu("job", "stop", "train")
    assert tpu.show(job_id)["state"] == "cancelled"
    assert stored(tpu, job_id)["mood"] == "good"


def test_no_active_jobs_is_not_no_jobs_yet(tpu):
    fill(tpu.home, 2, state=State.COMPLETED)
    said = tpu("job", "list", "--active").stderr
    assert said.startswith("no active jobs")
    assert tpu("job", "list", "--tag", "x").stderr.startswith("no jobs with the tag x")


@pytest.mark.parametrize(
    "arguments", [["job", "list"], ["job", "list", "--json"], ["job", "show", "many-00001"]], ids=str
)
def test_reader_that_has_seen_enough_is_no_error(tpu, arguments):
    fill(tpu.home, 60)
    line = " ".join(tpu.argv(*arguments))
    script = f"set -o pipefail; {line} | head -n 1; {line} | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=tpu.env, cwd=tpu.folder)
    assert done.returncode == 0, done.stderr
    assert not re.search("(?i)broken pipe|traceback|exception", done.stderr)


def test_list_onto_a_full_disk_is_a_sentence(tpu):
    fill(tpu.home, 1)
    script = f"{' '.join(tpu.argv('job', 'list'))} > /dev/full"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=tpu.env, cwd=tpu.folder)
    assert done.returncode == 1
    assert done.stderr.startswith("tpu: No space left on device")


def test_store_that_is_damaged_says_so(tpu):
    (tpu.home / "state").mkdir()
    (tpu.home / "state" / "store.db").write_bytes(b"not a database, and longer than a header of one would be" * 99)
    assert "is damaged" in tpu("job", "list", code=1).stderr


def test_logs_into_a_reader_that_has_seen_enough_end_quietly(tpu):
    tpu("run", tpu.file("sh", "-c", "seq 100000"))
    line = " ".join(tpu.argv("job", "logs", "train"))
    script = f"set -o pipefail; {line} | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=tpu.env, cwd=tpu.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "slice-0-0: 1\n", "")


def test_resume_keeps_the_workdir_and_rerun_begins_in_a_new_one(tpu):
    script = "ls $TPUKIT_WORKDIR; touch $TPUKIT_WORKDIR/checkpoint-$TPUKIT_ATTEMPT; echo stage $TPUKIT_STAGE; exit 1"
    tpu("run", tpu.file("sh", "-c", script), code=1)
    job_id = tpu("job", "resume", "train", code=1).stdout.strip()
    tpu("job", "rerun", "train", code=1)
    tpu("job", "resume", "train", code=1)
    log = [tpu("job", "logs", "train", "--host", "0-0", "--attempt", str(number)).stdout for number in range(4)]
    assert log == ["stage 0\n", "checkpoint-0\nstage 1\n", "stage 0\n", "checkpoint-2\nstage 1\n"]
    shown = tpu.show(job_id)
    assert [attempt["stage"] for attempt in shown["attempts"]] == [0, 1, 0, 1]
    assert shown["workdir"] == str(tpu.workdir(job_id) / "rerun-2")
    assert any(event["text"].startswith("rerun requested by ") for event in shown["events"])


def test_resume_of_a_job_that_runs_is_refused(tpu):
    job_id = tpu("run", tpu.file("true"), "--detach").stdout.strip()
    done = tpu("job", "resume", "train", code=1)
    assert f"{job_id} is pending" in done.stderr
    assert f"tpu job stop {job_id}" in done.stderr


def test_resume_detached_is_driven_by_serve(tpu):
    job_id = tpu("run", tpu.file("sh", "-c", "[ $TPUKIT_STAGE = 1 ]"), code=1).stdout.strip()
    assert tpu("job", "resume", "train", "--detach").stdout == f"{job_id}\n"
    assert tpu.show(job_id)["state"] == "pending"
    tpu("serve", "--until-idle", "--tick", "0.1")
    assert tpu.show(job_id)["state"] == "completed"


def test_tag_adds_and_removes(tpu):
    tpu("run", tpu.file("true", tags=["a"]), "--detach")
    tpu("job", "tag", "train", "b", "c", "b")
    assert tpu.jobs()[0]["tags"] == ["a", "b", "c"]
    tpu("job", "tag", "train", "a", "c", "--remove")
    assert tpu.jobs()[0]["tags"] == ["b"]
    done = tpu("job", "tag", "train", "no spaces", "$(id)", code=2)
    assert "'no spaces'" in done.stderr
    assert "'$(id)'" in done.stderr
    assert tpu.jobs()[0]["tags"] == ["b"]


def test_render_creates_nothing_and_a_send_gets_an_id_of_its_own(tpu):
    file = tpu.file("true", image="a/b:1", workdir="gs://my-bucket/runs")
    text = tpu("job", "render", file).stdout
    assert [path for path in tpu.home.iterdir() if path.name != "cache"] == []
    sent = {tpu("run", file, "--detach").stdout.strip() for _ in range(2)}
    assert len(sent) == 2
    assert not any(job_id in text for job_id in sent)


@pytest.mark.parametrize("asked", ["resume", "rerun"])
def test_job_whose_staged_code_is_gone_is_refused_before_its_record_changes(tpu, asked):
    (tpu.folder / "code").mkdir()
    (tpu.folder / "code" / "train.py").write_text("print('hi')")
    job_id = tpu("run", tpu.file("python", "train.py", code="code")).stdout.strip()
    for folder in (tpu.home / "data" / "code", tpu.home / "data" / "runs" / job_id / "code"):
        shutil.rmtree(folder)
    refused = tpu("job", asked, job_id, code=2)
    assert "code" in refused.stderr
    assert (tpu.show(job_id)["state"], len(tpu.show(job_id)["attempts"])) == ("completed", 1)


def test_logs_with_times_where_the_place_knows_none_are_refused(tpu):
    tpu("run", tpu.file("true"))
    assert (
        "local does not record when a line was printed" in tpu("job", "logs", "train", "--since", "1m", code=2).stderr
    )
    assert tpu("job", "logs", "train", "--tail", "1").stdout == ""


WAITS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


def test_stop_takes_several_jobs_and_those_of_a_tag(tpu):
    names = ("one", "two", "three", "four")
    for name in names:
        tags = ["sweep"] if name in ("three", "four") else []
        tpu("run", tpu.file("sh", "-c", WAITS, name=name, tags=tags), "--detach")
    tpu("job", "stop", "one", "two")
    assert {job["id"].split("-")[0]: job["state"] for job in tpu.jobs()} == {
        **dict.fromkeys(("one", "two"), "cancelled"),
        **dict.fromkeys(("three", "four"), "pending"),
    }
    said = tpu("job", "stop", "--tag", "sweep").stderr
    assert {job["state"] for job in tpu.jobs()} == {"cancelled"}
    assert "three-" in said and "four-" in said
    assert "no active job has the tag sweep" in tpu("job", "stop", "--tag", "sweep", code=1).stderr
    assert "name the jobs" in tpu("job", "stop", code=2).stderr


def test_list_state_shows_jobs_in_that_state_alone(tpu):
    tpu("run", tpu.file("false", name="bad"), code=1)
    tpu("run", tpu.file("true", name="good"))
    shown = json.loads(tpu("job", "list", "--state", "failed", "--json").stdout)
    assert [job["state"] for job in shown] == ["failed"]
    both = json.loads(tpu("job", "list", "--state", "failed", "--state", "completed", "--json").stdout)
    assert len(both) == 2
    assert "no jobs in state running" in tpu("job", "list", "--state", "running").stderr


def test_wait_ends_with_the_jobs_and_tells_by_its_exit_code_whether_they_completed(tpu):
    tpu("run", tpu.file("true", name="good"))
    tpu("run", tpu.file("false", name="bad"), code=1)
    assert "good-" in tpu("job", "wait", "good").stderr
    assert "failed" in tpu("job", "wait", "good", "bad", code=1).stderr
    tpu("run", tpu.file("true", name="later"), "--detach")
    waiting = tpu.start("job", "wait", "later")
    until(lambda: "not driven" in tpu.said(waiting))
    tpu("serve", "--until-idle")
    assert waiting.wait(timeout=PATIENCE) == 0


def test_wait_that_takes_too_long_exits_with_its_own_code(tpu):
    tpu("run", tpu.file("true"), "--detach")
    assert "still pending after 1s" in tpu("job", "wait", "train", "--timeout", "1s", code=124).stderr


def test_exec_runs_a_command_beside_the_program_with_its_environment(tpu):
    run = tpu.start("run", tpu.file("sh", "-c", WAITS, env={"MINE": "a b"}))
    job_id = tpu.the_job()
    until(lambda: tpu.show(job_id)["state"] == "running")
    done = tpu("job", "exec", "train", "0-0", "--", "sh", "-c", 'echo "$MINE $1"; exit 3', "x", "c;  d", code=3)
    assert done.stdout == "a b c;  d\n"
    assert "has no host 7-7" in tpu("job", "exec", "train", "7-7", "--", "true", code=1).stderr
    tpu("job", "stop", "train")
    run.wait(timeout=PATIENCE)
    assert "`tpu job exec` works only while the job runs" in tpu("job", "exec", "train", "0-0", code=1).stderr
