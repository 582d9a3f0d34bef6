"""Commands that wait: a wait that is in vain, or needs an action, is reported within seconds."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import click
import pytest

from support.manager_desk import set_up
from support.waiting import until
from tpukit import cli
from tpukit.cli import context
from tpukit.core.errors import NotYet
from tpukit.jobs.reasons import State
from tpukit.jobs.use_cases import batch, following, requests
from tpukit.places.base import Handle
from tpukit.places.local.place import LocalPlace
from unit.project.test_behaviours import exists

HERE = "journeys/test_impossible_waits.py::test_"
UNATTENDED = "journeys/test_manager_unattended.py::test_"
FLEETS = "unit/fleet/test_driving.py::test_"
QUEUES = "journeys/test_queue_view.py::test_"
TEAMS = "unit/teams/test_transition.py::test_"
PROGRAMS, GCLOUD = "unit/cluster/test_programs.py::test_", "unit/cluster/test_gcloud.py::test_"
ARRIVALS = "unit/cluster/test_propagation.py::test_"
COMMANDS, LIMITS = "cluster/test_cluster_command.py::test_", "unit/core/test_waiting.py::test_"
SENDING = "unit/jobs/test_submission.py::test_"
VERIFYING = "unit/cluster/verify/test_running.py::test_"
ADDONS = "journeys/test_cluster_cli_addons.py::test_"
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
SLEEPS = {
    "cli/choices.py ask": "journeys/test_cli_interrupt.py::test_ctrl_c_at_the_question_itself_detaches_and_says_so",
    "cli/fleet_driving.py drive": SHOWN["fleet monitor"],
    "cli/fleet_logs.py _follow": SHOWN["fleet logs"],
    "cli/job_logs.py _say_end": SHOWN["job logs"],
    "cli/job_monitor.py _print_changes": SHOWN["job monitor"],
    "cli/job_stop.py wait": SHOWN["job wait"],
    "cli/queue_view.py follow_to_end": SHOWN["queue follow"],
    "cluster/addons.py _patiently": f"{ADDONS}addons_that_a_cluster_gives_up_on_for_good_say_what_was_applied",
    "cluster/gcloud.py settled": f"{PROGRAMS}settled_waits_for_what_google_does_not_know_yet_and_for_nothing_else",
    "cluster/gcloud.py change_policy": f"{GCLOUD}change_policy_that_is_changed_for_ever_ends_with_what_gcloud_said",
    "cluster/programs.py _tail_of": f"{PROGRAMS}run_that_takes_longer_than_its_limit_is_ended_with_all_it_started",
    "cluster/propagation.py patiently": f"{ARRIVALS}what_never_arrives_is_told_when_the_time_is_over",
    "cluster/verify/running.py Round._wait": f"{VERIFYING}job_that_waits_in_its_queue_is_not_seen_and_removed",
    "cluster/verify/running.py Round._wait_until_left": (
        f"{VERIFYING}host_that_prints_nothing_leaves_its_pool_without_verdicts"
    ),
    "cluster/workspace.py Workspace.alone": f"{COMMANDS}second_run_at_the_same_time_is_refused",
    "core/retry.py call": "unit/core/test_retry.py::test_call_raises_the_last_error_when_no_pause_is_left",
    "core/waiting.py until": f"{LIMITS}wait_is_reported_once_within_seconds_and_ends_when_done_or_at_the_limit",
    "jobs/use_cases/batch.py hand_over": f"{HERE}job_that_its_place_does_not_accept_is_left_to_serve",
    "jobs/use_cases/following.py Following.hand_over": f"{HERE}job_that_its_place_does_not_accept_is_left_to_serve",
    "jobs/use_cases/following.py Following.watch": SHOWN["run"],
    "jobs/use_cases/requests.py wait_for_ends": SHOWN["job stop"],
    "jobs/use_cases/submission.py record": f"{SENDING}record_whose_store_stays_away_says_that_it_may_be_there",
    "jobs/use_cases/submission.py _share_code": f"{SENDING}record_whose_code_cannot_be_shared_now_records_nothing",
    "sharing/doctor/checks/ssh_login.py Ssh.examine": "unit/sharing/test_doctor.py::test_unreachable_host_is_named",
    "teams/lock.py _taken": f"{TEAMS}quotas_are_changed_by_one_at_a_time_and_a_dead_one_holds_up_nobody_for_long",
}
"""The test of each function that sleeps in a loop, in packages whose waits a person sees."""
ENDS_WITH_THE_PROCESS = {
    *("cli/leaving.py Leaving.wait", "cli/provisioner.py _pass_on"),
    *("cli/monitor_app.py Monitor._read_for_ever",),
}
"""Loops of long-running commands and of the interactive monitor."""
SEEN = ("cli", "cluster", "core", "jobs/use_cases", "sharing", "teams")
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


def sleeping(node: ast.AST, path: str = "", *, looped: bool = False) -> set[str]:
    """Return the functions that sleep or wait in a loop, or retry with pauses, by their names."""
    found = set[str]()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            found |= sleeping(child, f"{path}.{child.name}".lstrip("."))
            continue
        function = child.func if isinstance(child, ast.Call) else None
        called = getattr(function, "attr", getattr(function, "id", ""))
        retries = isinstance(function, ast.Attribute) and ast.unparse(function) == "retry.call"
        if retries or (looped and called in ("sleep", "wait", "select")):
            found.add(path)
        found |= sleeping(child, path, looped=looped or isinstance(child, ast.While | ast.For))
    return found


def test_each_function_that_sleeps_in_a_loop_has_a_test_of_a_wait_in_vain() -> None:
    source = Path(cli.__file__).parents[1]
    files = [file for package in SEEN for file in (source / package).rglob("*.py")]
    found = {
        f"{file.relative_to(source)} {name}" for file in files for name in sleeping(ast.parse(file.read_text("utf-8")))
    }
    assert found - ENDS_WITH_THE_PROCESS == set(SLEEPS)
    assert [test for test in SLEEPS.values() if not exists(test)] == []


class Full(LocalPlace):
    """A place that drives jobs itself once it accepts them, and accepts none."""

    capabilities = replace(LocalPlace.capabilities, drives_itself=True)

    def submit(self, handle: Handle) -> None:
        raise NotYet("no room")


def test_job_that_its_place_does_not_accept_is_left_to_serve(desk, monkeypatch, tmp_path):
    set_up(desk)
    monkeypatch.setitem(context.places(), "local", Full(tmp_path / "home" / "data", context.CLOCK, "me"))
    monkeypatch.setattr(following, "HAND_OVER_SECONDS", 0.0)
    monkeypatch.setattr(batch, "HAND_OVER_SECONDS", 0.0)
    said = desk("job start v4-8-1 --user xibo --place local --no-monitor").output
    job = desk.job("xibo:1").id
    assert f"local did not accept the job within 0 s; `tpu serve` keeps trying, `tpu job show {job}` shows why" in said
    (tmp_path / "code" / "other.yaml").write_text('name: other\ntpu: v4-8\ncommand: ["true"]\n')
    said = desk("run job.yaml other.yaml --place local --detach").output
    assert "2 jobs were not accepted by local within 0 s; `tpu serve` keeps trying" in said


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
    assert "g-v4-8-1" in said and "was deleted" in said


@pytest.mark.parametrize("command", ["follow", "test"])
def test_wait_for_a_queue_that_nothing_serves_says_how_to_serve_it(tpu, command):
    words = [tpu("queue", "submit", "--code", "result = 1").stdout.strip()] if command == "follow" else []
    waits = tpu.start("queue", command, *words)
    until(lambda: "no `tpu queue serve` runs" in tpu.said(waits), lambda: tpu.said(waits))
