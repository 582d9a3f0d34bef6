"""A valid job file: its fields, and a lossless round trip through JSON."""

from __future__ import annotations

import json

import pytest

from tpukit import catalogue
from tpukit.core.errors import Invalid
from tpukit.jobs.spec import JobSpec, Max, Mount, Reservation, durations, load, loads

SMALL = "name: hello\ntpu: v4-8\ncommand: [python, hello.py]\n"
FULL = """\
name: pretrain
tpu: {generation: v4, topology: 2x2x4}
slices: 2
command: [python, train.py, --steps=500]
code: .
image: us-docker.pkg.dev/p/r/train@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
team: research
priority: high
config: {lr: 1e-3, training: {batch_size: 8}, model.depth: 3, note: null}
env: {XLA_FLAGS: --xla_dump_to=/tmp}
workdir: gs://bucket/runs/pretrain/
tensorboard: true
capacity: spot
max: {runtime: 12h, restarts: 20, stall: 5m, grace: 90s, unattended: 0s}
tags: [sweep-3, v1.2_b, sweep-3]
mounts: [{bucket: my-data, path: /data}, {bucket: out, path: /out/put, read_only: false}]
"""


def test_loads_small_job_fills_in_the_defaults():
    spec = loads(SMALL)
    assert spec.slice is catalogue.find("v4-8")
    assert spec.command == ("python", "hello.py")
    assert (spec.slices, spec.capacity, spec.rule, spec.tensorboard) == (1, "on-demand", "pass", False)
    assert spec.max == Max(runtime=None, restarts=0, stall="10m", grace="30s", unattended="24h")
    assert (spec.max.stall, spec.max.grace, spec.max.unattended) == (600, 30, 86400)
    assert (spec.config, spec.env, spec.tags, spec.mounts) == ({}, {}, (), ())
    assert (spec.code, spec.image, spec.team, spec.priority, spec.workdir) == (None,) * 5


def test_loads_full_job_keeps_every_field():
    spec = loads(FULL)
    assert spec.slice is catalogue.find("v4-32")
    assert spec.config == {
        "training": {"learning_rate": 0.001, "batch_size": 8},
        "model": {"depth": 3},
        "note": None,
    }
    assert spec.max.runtime == 12 * 3600
    assert spec.workdir == "gs://bucket/runs/pretrain"
    assert spec.tags == ("sweep-3", "v1.2_b")
    assert spec.mounts[1] == Mount(bucket="out", path="/out/put", read_only=False)
    assert (spec.rule, spec.preemptible) == ("pre", True)


@pytest.mark.parametrize("text", [SMALL, FULL, SMALL + "capacity: {reservation: projects/p/reservations/r}\n"])
def test_spec_to_json_and_back_is_the_same(text):
    spec = loads(text)
    document = json.loads(json.dumps(spec.to_json()))
    again = JobSpec.from_json(document)
    assert again == spec
    assert again.digest == spec.digest
    assert again.to_json() == document


def test_from_json_wrong_document_is_invalid():
    with pytest.raises(Invalid) as error:
        JobSpec.from_json({"name": "a", "tpu": "v4-8", "command": [], "more": 1})
    assert [problem.what for problem in error.value.problems] == [
        "command: the command is empty",
        "there is no key 'more'",
    ]


def test_digest_depends_on_content_and_not_on_order_or_the_place_of_code():
    spec = loads("tpu: v4-8\nname: hello\ncommand: [python, hello.py]\nconfig: {a: 1, b: 2}\ncode: here\n")
    same = loads("command: [python, hello.py]\ncode: there\nname: hello\nconfig: {b: 2, a: 1}\ntpu: v4-8\n")
    other = loads("tpu: v4-8\nname: hello\ncommand: [python, hello.py]\nconfig: {a: 1, b: 3}\n")
    assert spec.digest == same.digest
    assert spec.digest != other.digest
    assert len(spec.digest) == 64


def test_spec_is_frozen():
    with pytest.raises(AttributeError):
        loads(SMALL).name = "other"


@pytest.mark.parametrize(
    ("tpu", "hosts"),
    [
        ("v5e-16", 4),
        ("V5LITEPOD-16", 4),
        ("{type: v5e-8}", 1),
        ("{type: v5e-8, machine_type: ct5lp-hightpu-4t}", 2),
        ("{generation: v6e, topology: 2x4, machine_type: ct6e-standard-4t}", 2),
        ("{generation: v7x, topology: 4x4x4}", 16),
    ],
)
def test_tpu_every_way_to_name_a_slice_finds_it(tpu, hosts):
    spec = loads(f"name: a\ntpu: {tpu}\ncommand: [x]\n")
    assert spec.slice.hosts == hosts
    assert JobSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("capacity", "rule", "expected"),
    [
        ("on-demand", None, "pass"),
        ("spot", None, "pre"),
        ("flex-start", None, "pre"),
        ("{reservation: mine}", None, "pass"),
        ("spot", "rerun", "rerun"),
    ],
)
def test_rule_default_follows_from_capacity(capacity, rule, expected):
    text = SMALL + f"capacity: {capacity}\n" + (f"rule: {rule}\n" if rule else "")
    assert loads(text).rule == expected


def test_capacity_reservation_is_kept_by_name():
    assert loads(SMALL + "capacity: {reservation: mine}\n").capacity == Reservation(reservation="mine")


def test_key_with_nothing_behind_it_was_not_given():
    assert loads(SMALL + "env:\n  # A: b\nteam:\nmax:\nslices:\ncapacity: ~\n") == loads(SMALL)


def test_load_folders_are_taken_from_where_the_file_is(tmp_path, monkeypatch):
    (tmp_path / "job" / "src").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    file = tmp_path / "job" / "job.yaml"
    file.write_text(SMALL + "code: src\nworkdir: runs\n")
    spec = load(file)
    assert (spec.code, spec.workdir) == (str(tmp_path / "job" / "src"), str(tmp_path / "job" / "runs"))
    spec = load(file, ["code=.", "workdir=gs://b-1/x"])
    assert (spec.code, spec.workdir) == (str(tmp_path / "here"), "gs://b-1/x")


def test_load_code_folder_that_is_not_there_is_refused(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(SMALL + "code: src\n")
    with pytest.raises(Invalid) as error:
        load(file)
    assert str(error.value) == f"{file}:4: code: there is no folder src\n  write the folder of the program"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("007s", 7)])
def test_durations_parse_and_write_agree(text, seconds):
    assert durations.parse(text) == seconds
    assert durations.parse(durations.write(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "1.5h", "-1s", "1h30m", "1 h", "1H", "٣s", "9" * 40 + "s", "1s\n"])
def test_durations_parse_anything_else_fails(text):
    with pytest.raises(ValueError, match="not a duration"):
        durations.parse(text)
