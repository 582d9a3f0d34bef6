"""Every short command line of the job manager, on a cloud of TPU VMs that acts by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec.structs import replace as changed

from support.manager_desk import set_up, type_every_line
from tpukit.cli import context
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.places.local import processes as pods
from tpukit.sharing import inventory, windows


def test_every_short_command_line_runs(desk):
    type_every_line(desk)


def test_job_of_another_user_on_a_tpu_is_said_and_not_touched(desk):
    set_up(desk)
    desk("run v2-32-6 xibo tag=first")
    assert "xibo runs" in desk.error("run v2-32-6 lyy")
    assert not windows.of_user(context.store(), "lyy")
    assert "held by xibo" in desk.error("release v2-32-6 lyy")
    desk("run v2-32-6 lyy --yes")
    desk("kill 1 lyy")
    assert desk.job("xibo:1").state is State.PENDING


def test_type_instead_of_a_name_takes_a_free_tpu_and_none_twice(desk):
    set_up(desk)
    desk("apply g-v4-8-2")
    for _ in range(2):
        desk("run v4-8 xibo")
    assert sorted(window.tpu for window in windows.of_user(context.store(), "xibo")) == ["g-v4-8-1", "g-v4-8-2"]
    assert "no v4-8 is free" in desk.error("run v4-8 xibo")
    rows = json.loads(desk("vm find v4 --json").output)
    assert [(row["name"], row["user"], row["state"]) for row in rows] == [
        ("g-v4-8-1", "xibo", "READY"),
        ("g-v4-8-2", "xibo", "READY"),
    ]
    desk("kill 1 xibo")
    assert desk("vm find v4 --free --csv").output.splitlines()[1].startswith("g-v4-8-1,v4-8-1,v4-8,")


def test_preempted_tpu_is_made_anew_when_told_and_not_otherwise(desk):
    set_up(desk)
    desk("apply g-v4-8-spot-1")
    desk.cloud.preempt("g-v4-8-spot-1")
    assert "PREEMPTED" in desk.error("run v4-8-p1 xibo") or "SUSPEND" in desk.error("run v4-8-p1 xibo")
    desk("run v4-8-p1 xibo -apply lr=0.5 rule=rerun --log-stage ssn=big_run")
    plan = desk.job("xibo:1").plan
    assert plan["spec"]["capacity"] == "spot" and plan["spec"]["rule"] == "rerun" and plan["log_stage"]
    assert plan["spec"]["config"] == {"training": {"learning_rate": 0.5}}
    assert inventory.get(context.store(), "g-v4-8-spot-1").notes == "big run"


def test_rerun_on_another_tpu_is_a_child_that_runs_to_its_end(desk):
    set_up(desk)
    desk("apply g-v4-8-2")
    desk("run v4-8-1 xibo -q")
    assert "`tpu job stop xibo:1` first" in desk.error("rerun windows=1 tpu=v4-8-2 xibo")
    desk.end(State.FAILED)
    desk("rerun windows=1 tpu=v4-8-2 xibo")
    child = windows.get(context.store(), "xibo:2")
    assert (child.parent, child.tpu, desk.job("xibo:2").state) == (1, "g-v4-8-2", State.COMPLETED)
    lines = desk("check xibo -ws").output.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["1", "failed"], ["2", "completed"]]
    assert lines[2].startswith("  2")


def test_clear_leaves_active_jobs_and_parents_of_active_children(desk):
    set_up(desk)
    desk("run v4-8-1 xibo")
    desk.end(State.FAILED)
    desk("run v4-8-1 xibo")
    windows.changed(context.store(), "xibo:2", lambda window: changed(window, parent=1))
    desk("clear-finished xibo")
    desk("clean xibo")
    assert [window.number for window in windows.of_user(context.store(), "xibo")] == [1, 2]
    desk("clean xibo -re")
    assert [window.number for window in windows.of_user(context.store(), "xibo")] == [2]
    assert len(context.store().keys(JOBS)) == 2  # the record stays
    desk.end()
    desk("clear-error xibo")
    assert len(windows.of_user(context.store(), "xibo")) == 1
    desk("clear-finished xibo")
    assert not windows.of_user(context.store(), "xibo")
    assert inventory.get(context.store(), "g-v4-8-1").user == ""


def test_window_whose_job_is_gone_and_job_that_nobody_has_are_cleared_by_truth(desk):
    set_up(desk)
    windows.make(context.store(), "xibo", "nothing-abcde", 1.0)
    desk("run v4-8-1 xibo place=local")
    job_id = desk.job("xibo:2").id
    driver = context.session().driver()
    driver.round([job_id])
    driver.close()
    desk("check xibo")
    desk("-czw xibo")
    assert [window.number for window in windows.of_user(context.store(), "xibo")] == [2]
    job = context.get(job_id)
    pods.lose(Path(os.environ["TPUKIT_HOME"]) / "data" / "runs" / job_id / f"attempt-{job.attempts[-1].number}")
    desk.forget()
    desk("-czj xibo")
    assert not windows.of_user(context.store(), "xibo")
    assert context.get(job_id).state.ended


def test_log_is_what_came_since_it_was_read(desk):
    set_up(desk)
    desk("log xibo")
    desk("run v4-8-1 xibo")
    assert "sent to g-v4-8-1" in desk("log xibo").output
    assert desk("log xibo").output.strip() == "nothing new"


def test_working_directory_without_a_job_file_says_what_to_write(desk, tmp_path):
    set_up(desk)
    (tmp_path / "code" / "job.yaml").unlink()
    assert "command: [python, main.py]" in desk.error("run v4-8-1 xibo", code=2)
    assert "no working directory 7" in desk.error("run v4-8-1 xibo dir=7")
    assert "no rule nope" in desk.error("run v4-8-1 xibo rule=nope", code=2)


def test_solve_says_what_it_examined(desk):
    set_up(desk)
    findings = json.loads(desk("solve g-v4-8-1 --json").output)
    assert {one["outcome"] for one in findings} == {"good", "mended"} and len(findings) == 11


def test_mount_disk_sets_wandb_up_with_the_key_of_this_machine_and_says_how_to_get_one(desk, monkeypatch, tmp_path):
    set_up(desk)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    done = desk("mount-disk g-v4-8-1")
    assert "✓ wandb" in done.stdout
    assert "no wandb key on this machine; run `wandb login`" in done.stderr
    monkeypatch.setenv("WANDB_API_KEY", "5ecre7" * 7)
    done = desk("mount-disk g-v4-8-1")
    assert "each job that you send gets your wandb key" in done.stderr
    assert "5ecre7" not in done.output
