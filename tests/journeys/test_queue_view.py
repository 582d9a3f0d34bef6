"""Messages of `tpu queue`: refusals before submission, and progress while a job waits and runs."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest

from support.waiting import until

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@pytest.mark.parametrize("wanted", ["v99", "v5e-3"])
def test_submit_for_a_slice_that_does_not_exist_is_misuse_and_sends_nothing(tpu, wanted):
    said = tpu("queue", "submit", "--code", "result = 1", "--tpu", wanted, code=2).stderr
    assert wanted in said
    assert json.loads(tpu("queue", "list", "--json").stdout) == []


def test_job_for_a_slice_that_this_machine_is_not_fails_and_its_code_does_not_run(tpu):
    job = tpu("queue", "submit", "--code", "result = 'ran on the CPU'", "--tpu", "v5e-4").stdout.strip()
    tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "")
    shown = json.loads(tpu("queue", "show", job, "--json").stdout)
    assert (shown["status"], shown["reason"], shown["result"]) == ("failed", "cannot start", None)
    assert "no worker of this queue is a v5e-4" in shown["error"]


def test_job_for_the_slice_that_this_machine_is_runs_here(tpu):
    job = tpu("queue", "submit", "--code", "result = 'ran'", "--tpu", "v5e-4").stdout.strip()
    tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "", "--tpu", "v5e-4")
    assert json.loads(tpu("queue", "show", job, "--json").stdout)["result"] == "ran"


def test_list_of_a_status_that_does_not_exist_is_misuse(tpu):
    said = tpu("queue", "list", "--status", "zork", code=2).stderr
    assert "'zork'" in said and "completed" in said


def test_show_prints_times_and_not_numbers_of_seconds(tpu):
    job = tpu("queue", "submit", "--code", "result = 1").stdout.strip()
    lines = tpu("queue", "show", job).stdout.splitlines()
    created = next(line for line in lines if line.startswith("created_at"))
    assert TIME.search(created)
    assert not re.search(r"\d{10}", "\n".join(line for line in lines if "_at" in line.split()[0]))


def test_show_as_json_has_times_of_iso_8601(tpu):
    job = tpu("queue", "submit", "--code", "result = 1").stdout.strip()
    listed = json.loads(tpu("queue", "list", "--json").stdout)
    for shown in (json.loads(tpu("queue", "show", job, "--json").stdout), *listed):
        times = [shown["created_at"], *(event["at"] for event in shown.get("events", ()))]
        assert all(datetime.fromisoformat(time).tzinfo for time in times), times
        assert shown["completed_at"] is None


def test_follow_shows_each_status_and_the_logs_and_prints_the_result_alone_on_stdout(tpu):
    job = tpu("queue", "submit", "--code", "print('step one')\nresult = 6 * 7").stdout.strip()
    following = tpu.start("queue", "follow", job)
    until(lambda: "pending" in tpu.said(following), lambda: tpu.said(following))
    tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "")
    until(lambda: following.poll() == 0, lambda: tpu.said(following))
    said = tpu.said(following)
    assert "completed" in said and "step one" in said
    assert tpu("queue", "follow", job).stdout == "42\n"


def test_wait_for_a_job_while_nothing_serves_the_queue_says_how_to_serve_it(tpu):
    waiting = tpu.start("queue", "submit", "--code", "result = 1", "--wait")
    until(lambda: "`tpu queue serve`" in tpu.said(waiting), lambda: tpu.said(waiting))
    assert "no `tpu queue serve` runs" in tpu.said(waiting)


def test_code_that_runs_longer_than_its_timeout_is_ended_and_the_list_says_so(tpu):
    (tpu.folder / "program.py").write_text("import time\ntime.sleep(1000)\n")
    job = tpu("queue", "submit", "program.py", "--timeout", "1").stdout.strip()
    tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "")
    listed = next(line for line in tpu("queue", "list").stdout.splitlines() if job in line)
    assert "failed" in listed
    assert "timeout of 1 s" in tpu("queue", "show", job).stdout


def test_modules_that_are_preloaded_are_there_before_the_code_begins(tpu):
    code = "import sys\nresult = 'colorsys' in sys.modules"
    for preload, there in (("colorsys", "true"), ("", "false")):
        job = tpu("queue", "submit", "--code", code).stdout.strip()
        tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", preload)
        assert tpu("queue", "follow", job).stdout == f"{there}\n"


def test_queue_server_answers_the_check_of_its_health(tpu):
    serving = tpu.start("queue", "serve", "--tick", "0.05", "--preload", "", "--port", "0")
    port = until(lambda: re.search(r"http://127.0.0.1:(\d+)", tpu.said(serving)), lambda: tpu.said(serving))[1]
    for check in ("live", "ready"):
        tpu("queue", "serve", "--check", check, "--port", port)
    serving.kill()
    serving.wait()
    tpu("queue", "serve", "--check", "live", "--port", port, code=1)
