"""The fleet file: its fields, overrides from flags, and all errors of both reported together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from tpukit.cli import fleet_flags
from tpukit.cli.fleet import command
from tpukit.core.errors import Invalid
from tpukit.fleet import deploy
from tpukit.fleet.ownership import Identity
from tpukit.jobs.spec import json_schema
from tpukit.jobs.spec.fleet import FleetSpec
from tpukit.jobs.spec.located_yaml import parse

ROOT = Path(__file__).resolve().parents[4]
GOOD = """\
zones: [us-central1-a, us-central1-b]
workers_per_zone: 4
gcs_bucket: my-data
dataset: [data.jsonl]
program: extract.py:make
options: {model: small, layer: "3"}
patience: 10m
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data.jsonl").write_text("{}\n")
    (tmp_path / "extract.py").write_text("")
    (tmp_path / "fleet.yaml").write_text(GOOD)
    return tmp_path / "fleet.yaml"


def asked(file: Path | None, *words: str) -> FleetSpec:
    """Return the spec as the command reads it."""
    argv = [*([str(file)] if file else []), *words]
    params = command.commands["deploy"].make_context("deploy", argv).params  # type: ignore[attr-defined]
    return fleet_flags.spec_of(params.pop("file"), params)


def problems(file: Path | None, *words: str) -> list[str]:
    with pytest.raises(Invalid) as refused:
        asked(file, *words)
    assert refused.value.exit_code == 2
    return [f"{one.where}: {one.what}" for one in refused.value.problems]


def test_fleet_file_says_all_and_its_paths_are_meant_from_its_folder(file):
    spec = asked(file)
    assert (spec.name, spec.zones, spec.workers_per_zone, spec.tpu_type) == (
        *(fleet_flags.default_name(), ("us-central1-a", "us-central1-b"), 4, "v3-8"),
    )
    assert spec.dataset == (str(file.parent / "data.jsonl"),)
    assert (spec.program, spec.patience) == (f"{file.parent / 'extract.py'}:make", 600)


def test_flags_win_over_the_fleet_file_and_options_are_added_one_by_one(file):
    spec = asked(
        file,
        *("--zones", "europe-west4-a", "--workers-per-zone", "2", "--on-demand", "--stay", "--patience", "90"),
        *("--model", "large", "--option", "hook=mlp", "--name", "night", "--claim-seconds", "5"),
    )
    assert (spec.zones, spec.workers_per_zone, spec.capacity, spec.stay) == (("europe-west4-a",), 2, "on-demand", True)
    assert spec.options == {"model": "large", "layer": "3", "hook": "mlp"}
    assert (spec.name, spec.patience, spec.claim) == ("night", 90, 5)
    made = deploy.plan(spec, Identity("ada", "store"))
    assert (made.name, made.zones, made.spot, made.elsewhere) == ("night", ["europe-west4-a"], False, False)


def test_flags_alone_and_a_file_that_says_the_same_ask_for_the_same(file):
    words = ["--zones", "us-central1-a,us-central1-b", "--workers-per-zone", "4", "--gcs-bucket", "my-data"]
    words += ["--dataset", str(file.parent / "data.jsonl"), "--program", f"{file.parent / 'extract.py'}:make"]
    words += ["--option", "layer=3", "--model", "small", "--patience", "600"]
    assert asked(None, *words) == asked(file)


def test_everything_wrong_is_said_at_once_with_its_line_or_flag(file):
    file.write_text(
        "zones: [us-central1, us-central1-a, us-central1-a]\n"
        "workers_per_zone: 0\n"
        "tpu_type: v3-32\n"
        "worker: 3\n"
        "dataset: [nowhere.jsonl]\n"
        "program: extract.py\n"
    )
    assert problems(file, "--streams", "5000", "--name", "My_Fleet") == [
        f"{file}:1: zones[0]: 'us-central1' is not allowed",
        f"{file}:2: workers_per_zone: 0 is too few",
        f"{file}:3: tpu_type: v3-32 has 4 hosts, and a worker is one",
        f"{file}:4: there is no key 'worker'",
        f"{file}:5: there is no file {file.parent / 'nowhere.jsonl'}",
        f"{file}:6: program: 'extract.py' is not allowed",
        "--name: 'My_Fleet' is not allowed",
        "--streams: 5000 is too many",
    ]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "--zones: which zones?"),
        (["--zones", "us-central1-a,us-central1-a"], "--zones: us-central1-a is named twice"),
        (["--zones", "us-central1-a", "--workers-per-zone", "1001"], "--workers-per-zone: 1001 is too many"),
        (["--zones", "us-central1-a", "--option", "model"], "--option: model: the value is missing"),
        (["--zones", "us-central1-a", "--tpu-type", "v9-9"], "--tpu-type: there is no TPU named 'v9-9'"),
        (["--zones", "us-central1-a", "--program", "gone.py:make"], "--program: there is no file"),
    ],
)
def test_flags_that_cannot_be_are_refused_by_name(words, what):
    assert problems(None, *words)[0].startswith(what)


def test_fleet_that_lacks_what_is_needed_to_deploy_it_hears_of_all_of_it():
    spec = asked(None, "--zones", "us-central1-a")
    with pytest.raises(Invalid) as refused:
        deploy.check(spec, needs_dataset=True, needs_program=True)
    assert [one.where for one in refused.value.problems] == ["--gcs-bucket", "--dataset", "--program"]


def test_schema_of_fleet_files_takes_what_the_loader_takes_and_its_own_examples():
    schema = json.loads(json.dumps(json_schema(FleetSpec, "tpukit fleet")))
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    plain = parse(GOOD, "fleet.yaml")[0].plain()
    assert valid(plain)
    assert not valid({**plain, "zones": ["us-central1"]})
    assert not valid({**plain, "worker": 3})
    for name, item in FleetSpec.fields.items():
        assert item.examples, name
        assert all(valid({**plain, name: example}) for example in item.examples), name


def test_fleet_file_of_the_page_is_right(tmp_path):
    page = (ROOT / "tools/tpukit/fleet/README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    for name in ("data.jsonl", "extract.py", "requirements.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "fleet.yaml").write_text(text)
    assert len(asked(tmp_path / "fleet.yaml").given) >= 8
