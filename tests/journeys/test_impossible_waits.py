"""Commands that wait: a wait that is in vain, or needs an action, is reported within seconds."""

from __future__ import annotations

import click
import pytest

from support.manager_desk import set_up
from support.waiting import until
from tpukit import cli
from tpukit.jobs.reasons import State
from tpukit.jobs.use_cases import requests
from unit.project.test_behaviours import exists

HERE = "journeys/test_impossible_waits.py::test_"
UNATTENDED = "journeys/test_manager_unattended.py::test_"
FLEETS = "unit/fleet/test_driving.py::test_"
QUEUES = "journeys/test_queue_view.py::test_"
UNDRIVEN = f"{HERE}wait_for_a_job_that_nothing_drives_says_how_to_drive_it"
SHOWN = {
    "job wait": UNDRIVEN,
    "job logs": f"{HERE}logs_of_a_job_that_has_no_attempt_are_not_waited_for",
    "job exec": f"{HERE}command_beside_a_job_that_does_not_run_is_not_waited_for",
    "job monitor": f"{UNATTENDED}commands_that_show_active_jobs_say_that_nothing_drives_them",
    "job stop": "journeys/test_cli_job.py::test_stop_of_a_job_of_another_machine_that_nobody_drives_says_so",
    "job start": "journeys/test_manager_cli.py::test_type_instead_of_a_name_takes_a_free_tpu_and_none_twice",
    "job resume": f"{HERE}job_on_a_tpu_that_is_gone_is_not_waited_for",
    "job rerun": f"{HERE}job_on_a_tpu_that_is_gone_is_not_waited_for",
    "run": "unit/places/gke/test_waiting.py::test_why_queue_that_can_never_hold_it_is_no_quota",
    "vm apply": "unit/sharing/test_inventory.py::test_waiting_for_a_tpu_that_has_ended_stops_at_once",
    "vm reapply": "unit/sharing/test_inventory.py::test_waiting_for_a_tpu_that_has_ended_stops_at_once",
    "vm delete": "unit/sharing/test_inventory.py::test_apply_twice_asks_once_and_delete_leaves_neither_tpu_nor_request",
    "fleet deploy": f"{FLEETS}zone_that_never_has_the_hardware_fails_workers_that_may_not_move_and_says_why",
    "fleet monitor": f"{FLEETS}fleet_without_leave_to_move_waits_in_its_zone_and_says_why",
    "fleet logs": "unit/fleet/test_logs.py::test_logs_followed_before_the_first_launch_say_what_launches_a_program",
    "queue follow": f"{HERE}wait_for_a_queue_that_nothing_serves_says_how_to_serve_it",
    "queue submit": f"{QUEUES}wait_for_a_job_while_nothing_serves_the_queue_says_how_to_serve_it",
    "queue test": f"{HERE}wait_for_a_queue_that_nothing_serves_says_how_to_serve_it",
}
"""The test of a wait in vain, by command that waits."""
WAITS = {"wait", "follow", "monitor", "exec"}
SERVERS = {"serve", "queue serve"}
"""Commands that run until they are stopped or idle."""


def waiting(group: click.Group, path: str = "") -> set[str]:
    """Return the commands that wait, by their names or options."""
    context, found = click.Context(group), set[str]()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found |= waiting(command, f"{path}{name} ")
        elif command is not None:
            options = {option.removeprefix("--") for one in command.params for option in one.opts}
            if (
                WAITS & options
                or name in WAITS
                or {"until-idle", "detach"} & options
                or f"{path}{name}" == "queue test"
            ):
                found.add(f"{path}{name}")
    return found


def test_each_command_that_waits_has_a_test_of_a_wait_in_vain() -> None:
    assert waiting(cli.command) - SERVERS == set(SHOWN)
    assert [test for test in SHOWN.values() if not exists(test)] == []


def test_wait_for_a_job_that_nothing_drives_says_how_to_drive_it(desk, monkeypatch):
    set_up(desk)
    desk("run v4-8-1 xibo")
    monkeypatch.setattr(requests, "ASK_SECONDS", 0.01)
    said = " ".join(desk("job wait xibo:1 --timeout 1s", code=124).output.split())
    assert said.startswith("no `tpu serve` runs") and "`tpu serve --install --now`" in said
    assert "is still pending after 1s" in said


def test_logs_of_a_job_that_has_no_attempt_are_not_waited_for(desk):
    set_up(desk)
    desk("run v4-8-1 xibo")
    assert "no attempt" in desk.error("job logs xibo:1 -f")


def test_command_beside_a_job_that_does_not_run_is_not_waited_for(desk):
    set_up(desk)
    desk("run v4-8-1 xibo")
    assert "is pending" in desk.error("job exec xibo:1 0-0 -- true")
    desk.end()
    assert "completed" in desk.error("job exec xibo:1 0-0 -- true")


@pytest.mark.parametrize("action", ["resume", "rerun"])
def test_job_on_a_tpu_that_is_gone_is_not_waited_for(desk, action):
    set_up(desk)
    desk("run v4-8-1 xibo")
    desk.end(State.FAILED)
    desk("vm delete g-v4-8-1 --yes")
    said = desk(f"{action} windows=1 tpu=g-v4-8-1 xibo", code=1).output
    assert "g-v4-8-1" in said and "gone" in said


@pytest.mark.parametrize("command", ["follow", "test"])
def test_wait_for_a_queue_that_nothing_serves_says_how_to_serve_it(tpu, command):
    words = [tpu("queue", "submit", "--code", "result = 1").stdout.strip()] if command == "follow" else []
    waits = tpu.start("queue", command, *words)
    until(lambda: "no `tpu queue serve` runs" in tpu.said(waits), lambda: tpu.said(waits))
