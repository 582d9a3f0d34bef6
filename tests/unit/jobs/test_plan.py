"""Plans: stable names, flags for programs, and the round trip through JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core.errors import Conflict
from tpukit.jobs import plan
from tpukit.jobs.plan import ClusterName, Plan, Snapshot
from tpukit.jobs.spec import JobSpec, Settings

MINIMAL = {"name": "train", "tpu": "v4-16", "command": ["python", "train.py"]}


def spec(**fields: Any) -> JobSpec:
    return JobSpec.from_json({**MINIMAL, **fields})


def make(place: str = "local", settings: Settings | None = None, **fields: Any) -> Plan:
    return plan.make(spec(**fields), settings or Settings(), place)


def test_make_same_spec_gets_the_same_id():
    assert make().id == make().id
    assert make().id.startswith("train-")
    assert len(make().id) == len("train-") + 5


def test_make_id_says_nothing_of_where_the_code_lay():
    assert make(code="/home/me/a").id == make(code="/srv/b").id


def test_make_another_spec_gets_another_id():
    assert make(slices=2).id != make().id


def test_make_id_that_is_taken_gets_the_next():
    first = make()
    second = plan.make(spec(), Settings(), "local", taken={first.id})
    third = plan.make(spec(), Settings(), "local", taken={first.id, second.id})
    assert len({first.id, second.id, third.id}) == 3


def test_counts_are_of_all_slices():
    made = make(slices=3)
    assert (made.hosts, made.chips) == (6, 24)


def test_coordinator_of_the_longest_job_fits_a_label_and_names_the_first_host():
    made = make(name="x" * 32)
    assert made.coordinator == f"{made.id}-slice-0-0.{made.subdomain}"
    assert len(made.coordinator) <= 63


def test_team_is_the_jobs_or_that_of_the_settings():
    mine = Settings.from_json({"team": "mine"})
    assert make(settings=mine).team == "mine"
    assert make(settings=mine, team="theirs").team == "theirs"


@pytest.mark.parametrize(
    ("artifacts", "workdir", "expected"),
    [
        (None, None, ""),
        (None, "gs://my-bucket/runs/x", "gs://my-bucket/runs/x"),
        ("gs://artifacts", "gs://my-bucket/runs/x", "gs://my-bucket/runs/x"),
        ("gs://artifacts/deep", None, "gs://artifacts/deep/runs/{id}"),
    ],
)
def test_workdir_is_the_jobs_then_below_the_artifacts_then_the_places(artifacts, workdir, expected):
    made = make(settings=Settings.from_json({"artifacts": artifacts}), workdir=workdir)
    assert made.workdir == expected.format(id=made.id)


def test_command_has_config_as_flags_behind_it():
    made = make(config={"model": {"depth": 2}, "name": "a b"})
    assert made.command == ("python", "train.py", "--config.model.depth=2", "--config.name=a b")


def test_command_of_a_job_with_log_stage_names_its_stage():
    made = make()
    assert made.command_of(2) == made.command
    assert replace(made, log_stage=True).command_of(2) == (*made.command, "--config.stage=2")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1.5, "1.5"),
        (1e-05, "1e-05"),
        (True, "true"),
        (False, "false"),
        (None, "none"),
        ("x=y", "x=y"),
        ("", ""),
        ([1, 2], "1,2"),
        (["a", True, None], "a,true,none"),
    ],
)
def test_config_flags_value_is_written_as_programs_read_it(value, text):
    assert plan.config_flags({"key": value}) == [f"--config.key={text}"]


def test_config_flags_are_in_the_order_written():
    assert plan.config_flags({"b": 1, "a": {"z": 2, "y": 3}, "c": {}}) == [
        "--config.b=1",
        "--config.a.z=2",
        "--config.a.y=3",
    ]


@given(st.integers(0, 255), st.integers(0, 8191))
def test_host_name_is_that_of_a_pod_of_an_indexed_job(slice_index, host_index):
    assert plan.host_name("train-abcde", slice_index, host_index) == f"train-abcde-slice-{slice_index}-{host_index}"


@pytest.mark.parametrize("snapshot", [None, Snapshot("d" * 64, "", False), Snapshot("d" * 64, "c" * 40, True)])
@pytest.mark.parametrize(
    "target",
    [
        None,
        ClusterName("context", "https://server", "uid"),
        plan.VmTarget("p", "us-central2-b", "ada", ("a", "b"), os_login=True),
        plan.ThisMachine("desk"),
    ],
)
def test_plan_through_json_and_back_is_the_same(snapshot, target):
    full = spec(slices=2, config={"lr": [1, 2.5, None]}, env={"A": "b"}, max={"runtime": "2h"}, tags=["t"])
    settings = Settings.from_json({"team": "mine"})
    made = Plan("train-1", "local", full, settings, full.slice, snapshot, target)
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_plan_that_was_stored_is_read_as_it_was_settled_whatever_the_checks_and_the_catalogue_say_today():
    stored = json.loads(json.dumps(make("local").to_json()))
    stored["spec"] |= {"name": "Not A Name!", "tpu": "v99-1", "slices": 10**6, "of_a_newer_version": [1]}
    stored["settings"]["of_a_newer_version"] = True
    stored["slice"]["of_a_newer_version"] = 1
    read = Plan.from_json(stored)
    assert (read.spec.name, read.slice.name, read.spec.slices) == ("Not A Name!", make("local").slice.name, 10**6)


@pytest.mark.parametrize("stored", [{}, {"spec": 1}, {"spec": {}, "id": "a"}, {"spec": None}])
def test_plan_that_cannot_be_read_says_what_to_do(stored):
    with pytest.raises(Conflict, match="tpu job forget"):
        Plan.from_json(stored)


@pytest.mark.parametrize(
    ("snapshot", "text"),
    [
        (Snapshot("0123456789abcdef", "", False), "0123456789ab"),
        (Snapshot("0123456789abcdef", "fedcba9876543210", False), "0123456789ab (commit fedcba9876)"),
    ],
)
def test_snapshot_in_words(snapshot, text):
    assert str(snapshot) == text
