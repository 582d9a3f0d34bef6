"""Jobs without a driver: commands report that no `tpu serve` runs, since when, and how to start one."""

from __future__ import annotations

import re

import pytest

from support.manager_desk import set_up
from tpukit.cli import context
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import Holder
from tpukit.serve import presence

NONE_RUNS = "no `tpu serve` runs"
START = "`tpu serve --install --now`"


@pytest.mark.parametrize("line", ["check xibo", "job list", "job", "vm", "find v4", "monitor xibo"])
def test_commands_that_show_active_jobs_say_that_nothing_drives_them(desk, line):
    set_up(desk)
    desk("run v4-8-1 xibo")
    said = " ".join(desk(line).output.split())
    assert NONE_RUNS in said and START in said
    assert "none has run on this store yet" in said


def test_job_sent_without_following_says_that_nothing_drives_it(desk):
    set_up(desk)
    said = desk("run v4-8-1 xibo -q").output
    assert NONE_RUNS in said and START in said


def test_time_since_the_last_driver_is_said(desk):
    set_up(desk)
    left = context.CLOCK.now() - 2 * 3600
    presence.note(context.store(), Holder("ada@desk/1"), left)
    desk("run v4-8-1 xibo")
    said = " ".join(desk("check xibo").output.split())
    assert re.search(r"no `tpu serve` runs since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(2h 0m ago\)", said)


def test_nothing_is_said_while_a_driver_runs_or_no_job_is_active(desk):
    set_up(desk)
    assert NONE_RUNS not in desk("vm").output
    lease = context.store().acquire(presence.lease_name(context.holder()), context.holder(), 60.0)
    desk("run v4-8-1 xibo -q")
    for line in ("check xibo", "job list", "vm"):
        assert NONE_RUNS not in desk(line).output
    context.store().release(lease)
    assert NONE_RUNS in desk("check xibo").output
    desk.end()
    assert NONE_RUNS not in desk("check xibo").output


def test_job_whose_tpu_was_preempted_while_nothing_drove_it_is_not_shown_as_running(desk, tmp_path):
    set_up(desk)
    (tmp_path / "code" / "job.yaml").write_text('name: train\ntpu: v4-8\ncommand: ["sleep", "1000"]\nrule: pre\n')
    desk("apply g-v4-8-spot-1")
    desk("run v4-8-p1 xibo")
    job_id = desk.job("xibo:1").id
    driver = context.session().driver()
    while context.get(job_id).state is not State.RUNNING:
        driver.round([job_id])
        context.CLOCK.sleep(0.05)
    driver.close()
    assert " running " in desk("check xibo -ws").output
    desk.cloud.preempt("g-v4-8-spot-1")
    for line in ("check xibo -ws", "job list"):
        said = desk(line).output
        assert " running " not in said and "preempted" in said, said
    assert context.store().get(JOBS, job_id).value.state is State.RUNNING  # show commands change no state


def test_follower_of_one_job_says_how_to_follow_all_of_them(desk):
    set_up(desk)
    desk("apply g-v4-8-2")
    desk("run v4-8-1 xibo")
    said = desk("job start v4-8-2 --user xibo --place local --monitor").output
    assert "`tpu monitor xibo` follows all" in said
