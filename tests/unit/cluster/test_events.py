"""Terraform's JSON lines: reading, folding into progress, display, and conversion into our errors."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tpukit.cluster import diagnosis, screen, terraform_events
from tpukit.cluster.screen import Screen
from tpukit.cluster.terraform_events import Diagnostic, Failed, Finished, Note, Planned, Progressed, Started, Summary
from tpukit.cluster.terraform_progress import Progress
from tpukit.core import errors
from tpukit.core.clock import ManualClock

RECORDED = Path(__file__).parents[2] / "fixtures" / "cluster"
POOL = 'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-0"]'
LINES = (RECORDED / "apply.jsonl").read_text().splitlines()


def parsed(lines):
    return [event for line in lines if (event := terraform_events.parse(line))]


def test_parse_recorded_apply_gives_every_step_of_a_pool():
    found = [event for event in parsed(LINES) if getattr(event, "address", "") == POOL]
    assert found[0] == Planned(POOL, "google_container_node_pool", "create")
    assert found[1] == Started(POOL, "create")
    assert found[2] == Progressed(POOL, 10)
    assert isinstance(found[-2], Failed)
    assert isinstance(found[-1], Diagnostic)


def test_parse_recorded_apply_gives_the_summary_and_the_trouble():
    found = parsed(LINES)
    assert Summary("apply", 3, 0, 1) in found
    trouble = [event for event in found if isinstance(event, Diagnostic)]
    assert [one.severity for one in trouble] == ["warning", "error"]
    assert (trouble[1].address, trouble[1].where) == (POOL, "modules/tpu_pools/main.tf:45")


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("", None),
        ("  ", None),
        ("Initializing the backend...", Note("Initializing the backend...")),
        ('{"type":"apply_start","hook":{"resou', None),
        ("{}", None),
        ('{"type":"something_new","x":1}', None),
        ('{"type":"apply_start"}', None),
        ('{"type":"apply_start","hook":[]}', None),
        ('{"type":"apply_complete","hook":{"resource":{"addr":"a.b"},"elapsed_seconds":"x"}}', Finished("a.b", "", 0)),
        ('{"type":"diagnostic","diagnostic":{"severity":"error"}}', None),
        ('{"type":"change_summary","changes":{"add":1e99}}', Summary("", 0, 0, 0)),
        ('["list"]', Note('["list"]')),
    ],
)
def test_parse_strange_lines_are_notes_or_nothing(line, event):
    assert terraform_events.parse(line) == event


@given(st.text(), st.integers(0, 4000))
def test_parse_never_raises_whatever_the_line_and_wherever_it_is_torn(text, cut):
    terraform_events.parse(text)
    for line in LINES[:6]:
        terraform_events.parse(line[:cut])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    st.sampled_from(
        ["planned_change", "apply_start", "apply_progress", "apply_complete", "change_summary", "diagnostic"]
    ),
    st.dictionaries(st.sampled_from(["hook", "change", "changes", "diagnostic"]), json_values),
)
def test_parse_never_raises_whatever_is_in_a_message(kind, body):
    terraform_events.parse(json.dumps({"type": kind, **body}))


def test_progress_replacement_is_one_row_that_ends_as_created():
    progress = Progress()
    progress.feed(Planned("a.b", "a", "replace"), 0)
    progress.feed(Started("a.b", "delete"), 10)
    progress.feed(Finished("a.b", "delete", 5), 15)
    progress.feed(Started("a.b", "create"), 15)
    assert (len(progress.rows), progress.count("running"), progress.rows["a.b"].elapsed(75)) == (1, 1, 60)
    progress.feed(Finished("a.b", "create", 60), 75)
    assert (progress.count("done"), progress.rows["a.b"].seconds) == (1, 60)


def test_progress_joined_late_takes_elapsed_time_from_terraform():
    progress = Progress()
    progress.feed(Started("a.b", "create"), 100)
    progress.feed(Progressed("a.b", 30), 110)
    assert progress.rows["a.b"].elapsed(110) == 30


def drawn(*, terminal: bool, lines=LINES, leave: bool = False) -> str:
    out, clock = io.StringIO(), ManualClock()
    console = Console(file=out, force_terminal=terminal, width=160, color_system=None)
    shown = Screen("Applying", clock, console)
    with shown:
        for event in parsed(lines):
            clock.sleep(4)
            shown.feed(event)
        if leave:
            shown._leaving = True
    return out.getvalue()


def test_screen_without_a_terminal_says_start_and_end_of_each_resource_on_a_line():
    text = drawn(terminal=False)
    assert "Applying\n" in text
    assert f"{POOL}: creating\n" in text
    assert f"{POOL}: create failed after " in text
    assert "google_compute_network.this: created after" in text
    assert "\x1b" not in text
    assert all(len(line) < 160 for line in text.splitlines())


def test_screen_without_a_terminal_says_once_a_minute_that_a_resource_is_still_under_way():
    started = [line for line in LINES if "pool-0" in line and '"apply_start"' in line]
    waiting = [line for line in LINES if "pool-0" in line and '"apply_progress"' in line][:1]
    text = drawn(terminal=False, lines=started + waiting * 40)  # 4 s apart: 160 s
    assert text.count("still creating") == 2


def test_screen_on_a_terminal_has_a_bar_and_a_time_for_each_running_resource():
    text = drawn(
        terminal=True, lines=[line for line in LINES if "apply_errored" not in line and "complete" not in line]
    )
    assert f"{POOL}  creating  ━━━" in text
    assert "Applying 0 of " in text


def test_screen_told_to_leave_says_what_happens_next():
    assert "Another Ctrl-C kills Terraform" in drawn(terminal=True, leave=True)


def test_plan_table_names_each_change_once():
    progress = Progress()
    progress.feed(Planned("a.b", "a", "delete", "delete_because_count_index"), 0)
    progress.feed(Planned("a.c", "a", "replace", "cannot_update"), 0)
    out = io.StringIO()
    screen.show_plan(progress, Console(file=out, width=100), {})
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["-", "a.b", "delete", "because", "count", "index"],
        ["±", "a.c", "replace", "cannot", "update"],
    ]


@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        ("Error waiting for creating GKE NodePool: GCE_STOCKOUT: us-central2-b", errors.NoCapacity, "another zone"),
        ("The zone 'projects/p/zones/z' does not have enough resources available", errors.NoCapacity, "another zone"),
        ("googleapi: Error 403: Insufficient regional quota to satisfy request: TPU_V4", errors.NoCapacity, "quotas"),
        ("Error 403: Kubernetes Engine API has not been used in project 1 before", errors.Denied, "bootstrap"),
        ("googleapi: Error 403: Permission 'container.clusters.create' denied", errors.Denied, "role"),
        ("google: could not find default credentials.", errors.Denied, "gcloud auth application-default login"),
        ("Error acquiring the state lock\nID: 1234", errors.Conflict, "force-unlock"),
        ("Cannot destroy cluster because deletion_protection is set to true", errors.Conflict, "deletion_protection"),
        ("Error 409: Already exists: projects/p/global/networks/n", errors.Conflict, "use another name"),
        ("Resource precondition failed: pods_ip_range holds 4096 addresses", errors.Invalid, "cluster file"),
        ("Error 503: The service is currently unavailable", errors.Transient, "apply again"),
        ("dial tcp: lookup container.googleapis.com: no such host", errors.Transient, "apply again"),
        ("something nobody has seen", errors.TpukitError, ""),
    ],
)
def test_error_of_a_diagnostic_is_classed_by_what_to_do_next(text, kind, hint):
    found = diagnosis.error([Diagnostic("error", text, "", "module.a.b.c")], "apply")
    assert type(found) is kind
    assert "module.a.b.c" in str(found)
    assert text.split("\n")[0] in str(found)
    assert hint in str(found)
    assert type(diagnosis.failure("gcloud", text, "doing")) is kind


def test_error_of_several_diagnostics_tells_all_and_is_classed_by_the_gravest():
    trouble = [Diagnostic("error", "Error 503: try again", "", "a.a"), Diagnostic("error", "Error 403: no", "", "b.b")]
    found = diagnosis.error(trouble, "apply")
    assert type(found) is errors.Denied
    assert "a.a: Error 503" in str(found)
    assert "b.b: Error 403" in str(found)


def test_failure_leaves_frames_and_warnings_about_the_cli_out():
    text = (
        "There are some problems with the CLI configuration:\n╷\n│ Error: Failed to get state\n│ \n│ bucket gone\n╵\n"
    )
    assert str(diagnosis.failure("terraform", text, "init")).startswith(
        "init failed: Error: Failed to get state\n  bucket gone"
    )


def test_failure_of_a_long_init_tells_the_error_and_not_what_went_well_before_it():
    before = "\n".join(["Initializing modules...", *(f"- part_{number} in modules" for number in range(20))])
    text = f"{before}\n╷\n│ Error: querying Cloud Storage failed: googleapi: Error 403\n╵"
    raised = diagnosis.failure("terraform", text, "init")
    assert "querying Cloud Storage failed: googleapi: Error 403" in raised.message
    assert "part_1" not in raised.message
