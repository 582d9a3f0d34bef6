"""`tpu drill` with real processes: programs without JAX whose steps take milliseconds."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from pathlib import Path

from conftest import processes_of
from support.waiting import until
from tpukit.core.clock import SystemClock
from tpukit.drill import engine
from tpukit.drill.sites import Folders, LocalSite
from tpukit.jobs import plan
from tpukit.jobs.spec import JobSpec, Settings

SLOWER = {"STEP_SECONDS": "0.05"}  # keeps each checkpoint for a second, long enough on a busy machine
PROGRAMS = Path(__file__).parents[1] / "fixtures" / "drill_programs"


def job(tpu, program: str = "right", name: str = "train", **fields):
    return tpu.file(sys.executable, "-S", f"{program}.py", name=name, tpu="v4-16", code=str(PROGRAMS), **fields)


def drilled(tpu, file, *options, code=0):
    return json.loads(tpu("drill", file, "--json", *options, code=code).stdout)


def test_drill_right_program_is_exact_and_leaves_nothing(tpu):
    losses = ("--only", "kill-0-1", "--only", "term", "--only", "save-half")
    result = drilled(tpu, job(tpu, env=SLOWER), *losses, "--require", "exact")
    assert result["verdict"] == "exact"
    assert {one["loss"]: one["verdict"] for one in result["losses"]} == dict.fromkeys(
        ("kill-0-1", "term", "save-half"), "exact"
    )
    killed = next(one for one in result["losses"] if one["loss"] == "kill-0-1")
    assert killed["resumed_at"] % 10 == 1
    assert killed["steps_lost"] >= killed["lost_at"] - killed["resumed_at"] + 1
    assert result["unbroken"]["saves"] == [10, 20, 30, 40, 50]
    assert list((tpu.home / "data" / "drills").iterdir()) == []
    assert tpu.jobs() == []


def test_drill_lost_data_position_is_named_with_its_batches(tpu, tmp_path):
    page, junit = tmp_path / "report.html", tmp_path / "drill.xml"
    options = ("--only", "kill-0-1", "--require", "exact", "--html", page, "--junit", junit)
    result = drilled(tpu, job(tpu, "data_position", env={"DIGESTS": "1"}), *options, code=1)
    (one,) = result["losses"]
    assert one["verdict"] == "repeats batches"
    assert one["batches_shifted_by"] == one["resumed_at"] - 1
    assert [advice["cause"] for advice in one["advice"]] == ["data position not saved"]
    assert "<svg" in page.read_text(encoding="utf-8")
    assert 'type="repeats batches"' in junit.read_text(encoding="utf-8")


def test_drill_killed_leaves_no_process(tpu):
    drill = tpu.start("drill", job(tpu))
    until(lambda: list(tpu.home.glob("data/drills/*/runs/kill-*/attempt-0/*/began")), lambda: tpu.said(drill))
    os.kill(drill.pid, signal.SIGKILL)
    drill.wait()
    until(lambda: not processes_of(tpu.home), lambda: processes_of(tpu.home))
    (left,) = (tpu.home / "data" / "drills").iterdir()
    os.utime(left / "drill.lock", (1, 1))  # long ago: the next drill removes this folder
    tpu("drill", tpu.file("false", name="other"), code=2)
    assert not left.exists()


def test_drill_two_at_once_do_not_touch_each_other_and_strike_at_the_same_step_by_one_seed(tpu):
    options = ("--only", "kill-0-1", "--seed", "7", "--require", "exact")
    first = tpu.start("drill", job(tpu, name="one", env=SLOWER), *options)
    second = tpu.start("drill", job(tpu, name="two", env=SLOWER), *options)
    assert (first.wait(), second.wait()) == (0, 0), tpu.said(first) + tpu.said(second)
    assert "one: exact" in tpu.said(first)
    assert "two: exact" in tpu.said(second)
    planned = [re.search(r"kill-0-1: host 0-1 is killed at step (\d+)", tpu.said(one)) for one in (first, second)]
    assert planned[0][1] == planned[1][1]


def test_drill_small_budget_tries_the_most_telling_first_and_says_what_it_left_out(tpu):
    result = drilled(tpu, job(tpu), "--budget", "5s")
    tried = [one["loss"] for one in result["losses"]]
    left_out = {one["loss"]: one["why"] for one in result["not_tried"]}
    assert tried == ["kill-0-1", "term", "save-half", "twice", "twice-saved", "before-first-save"][: len(tried)]
    assert tried
    assert left_out["hang"] in ("the budget is too small", "the budget is used up")


def test_drill_program_that_fails_by_itself_is_refused(tpu):
    done = tpu("drill", tpu.file("sh", "-c", "echo KeyError: layers; exit 3"), code=2)
    assert "the unbroken run did not complete" in done.stderr
    assert "KeyError: layers" in done.stderr


def test_drill_unknown_loss_is_refused_with_those_there_are(tpu):
    done = tpu("drill", job(tpu), "--only", "meteor", code=2)
    assert "there is no loss 'meteor'" in done.stderr
    assert "kill-0-0" in done.stderr


def test_drill_checkpoints_outside_the_workdir_are_found_and_no_further_run_writes_over_them(tpu, tmp_path):
    env = {"MISTAKE": "elsewhere", "ELSEWHERE": str(tmp_path / "mine")}
    file = tpu.file(sys.executable, "numpy_alone.py", name="train", tpu="v4-8", code=str(PROGRAMS), env=env)
    result = drilled(tpu, file, "--only", "kill", "--only", "term", "--require", "exact", code=1)
    (one,) = result["losses"]
    assert (one["loss"], one["verdict"]) == ("kill-0-0", "cannot tell")
    assert one["text"].endswith(f"save below $TPUKIT_WORKDIR; files are written to {tmp_path / 'mine'}")
    assert "term" in {one["loss"] for one in result["not_tried"] if "outside the workdir" in one["why"]}


def test_drill_interrupted_leaves_the_table_of_what_was_finished_and_has_written_its_reports_by_then(tpu, tmp_path):
    page, junit = tmp_path / "report.html", tmp_path / "drill.xml"
    losses = ("--only", "kill", "--only", "term", "--html", page, "--junit", junit)
    drill = tpu.start("drill", job(tpu, env=SLOWER), *losses)
    until(lambda: "term:" in tpu.said(drill), lambda: tpu.said(drill))
    assert 'name="kill-0-1"' in junit.read_text(encoding="utf-8")
    assert 'id="kill-0-1"' in page.read_text(encoding="utf-8")
    drill.send_signal(signal.SIGINT)
    assert drill.wait() == 130, tpu.said(drill)
    assert "train: exact; 1 of 1 losses exact" in tpu.said(drill)
    assert "not tried: term, kill-0-0: interrupted" in tpu.said(drill)
    until(lambda: not processes_of(tpu.home), lambda: processes_of(tpu.home))


def test_drill_program_that_reports_no_step_exits_2_and_points_at_progress(tpu):
    done = tpu("drill", tpu.file("true"), code=2)
    assert "the program reports no step" in done.stderr
    assert "`progress:`" in done.stderr


def test_drill_report_that_cannot_be_written_is_refused_before_the_first_run(tpu, tmp_path):
    (tmp_path / "file").touch()
    for option, path in (("--html", tmp_path / "nowhere" / "report.html"), ("--folder", tmp_path / "file" / "runs")):
        done = tpu("drill", job(tpu), option, path, code=2)
        assert f"{option}: {path} cannot be written" in done.stderr
        assert "unbroken" not in done.stderr
    assert "--budget: '0s' must be longer than 0 s" in tpu("drill", job(tpu), "--budget", "0s", code=2).stderr
    assert "is not a rate" in tpu("drill", job(tpu), "--losses-per-day", "nan", code=2).stderr


def test_drill_report_that_finds_no_room_leaves_the_table(tpu):
    done = tpu("drill", job(tpu), "--only", "kill-0-1", "--html", "/dev/full", code=2)
    assert "train: exact; 1 of 1 losses exact" in done.stdout
    assert "No space left on device" in done.stderr


class FullDisk(LocalSite):
    """A site whose disk is full when the run for `term` begins."""

    def folders(self, run: str) -> Folders:
        if run == "term":
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().folders(run)


def test_drill_disk_that_fills_up_leaves_what_was_finished_and_no_workdir_of_a_run_that_ended(tmp_path):
    clock, command = SystemClock(), [sys.executable, "-S", "right.py"]
    spec = JobSpec.from_json({"name": "train", "tpu": "v4-8", "command": command, "code": str(PROGRAMS)})
    request = engine.Request(plan.make(spec, Settings(), "local", taken=[]), only=("kill", "term"))
    left: list[list[Path]] = []

    def tried(so_far: engine.Drill) -> None:
        left.append([*tmp_path.glob("work/*"), *tmp_path.glob("traces/*")])

    with engine.folder(tmp_path / "drills", tmp_path):
        done = engine.drill(request, FullDisk(tmp_path, clock), tmp_path, clock, tried=tried)
    assert [(one.verdict.loss.name, one.verdict.word) for one in done.results] == [("kill-0-0", "exact")]
    assert dict(done.left_out)["term"] == "[Errno 28] No space left on device"
    assert isinstance(done.stopped, OSError)
    assert left == [[]]


def test_drill_on_a_cluster_that_is_no_sandbox_is_refused_and_says_what_to_do(tpu):
    clusters = [{"name": "real", "cluster": {"server": "https://127.0.0.1:1"}}]
    contexts = [{"name": "real", "context": {"cluster": "real", "user": "me"}}]
    config = {"current-context": "real", "clusters": clusters, "contexts": contexts, "users": [{"name": "me"}]}
    kubeconfig = tpu.home / "kubeconfig"
    kubeconfig.parent.mkdir(exist_ok=True)
    kubeconfig.write_text(json.dumps(config), encoding="utf-8")
    tpu.env["KUBECONFIG"] = str(kubeconfig)
    done = tpu("drill", job(tpu), "--place", "gke", code=2)
    assert "https://127.0.0.1:1 is no sandbox of this machine" in done.stderr
    assert "tpu sandbox shell tpu drill" in done.stderr


def test_drill_on_tpu_vms_is_refused_plainly(tpu):
    done = tpu("drill", job(tpu), "--place", "tpu-vm", code=2)
    assert "jobs cannot be drilled on tpu-vm" in done.stderr
