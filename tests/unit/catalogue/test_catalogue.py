"""The catalogue against the published tables, and its answers to wrong names."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.catalogue import shapes
from tpukit.cli.catalogue import command
from tpukit.core.errors import Invalid, NotFound

ROWS = list(csv.DictReader((Path(__file__).parents[2] / "fixtures" / "catalogue.csv").read_text().splitlines()))
PLACEMENTS = {
    "none": "none",
    "n/a (Cloud TPU API only)": None,
    "placementPolicy type=COMPACT + tpuTopology": "compact",
    "workload policy (HIGH_THROUGHPUT + acceleratorTopology) via placementPolicy.policyName": "policy",
}
STEADY = settings(derandomize=True, deadline=None)
SLICES = st.sampled_from(catalogue.slices())


def _published(row: dict[str, str]) -> dict[str, object]:
    """Convert a row of the published table to the catalogue's fields."""
    return {
        "generation": {"v7x": "tpu7x"}.get(row["generation"], row["generation"]),
        "name": row["accelerator_type"],
        "aliases": (row["alias"],) if row["alias"] else (),
        "topology": row["topology"],
        "chips": int(row["chips"]),
        "chips_per_host": int(row["chips_per_host"]),
        "hosts": int(row["hosts"]),
        "machine_type": row["machine_type"] or None,
        "accelerator": row["gke_accelerator"] or None,
        "placement": PLACEMENTS[row["gke_placement"]],
        "tflops_bf16": float(row["peak_bf16_tflops_per_chip"]),
        "hbm_gib": float(row["hbm_gib_per_chip"]),
        "hbm_gbps": float(row["hbm_gb_per_s"]),
        "host_vcpus": int(row["host_vcpus"]) if row["host_vcpus"] else None,
        "host_memory_gb": int(row["host_ram_gb"]) if row["host_ram_gb"] else None,
        "zones": tuple(row["zones_known"].split()),
    }


def _hint(error: pytest.ExceptionInfo[Invalid]) -> str:
    (problem,) = error.value.problems
    return problem.hint


def test_find_published_row_has_the_same_figures():
    for row in ROWS:
        found = catalogue.find(row["accelerator_type"], machine_type=row["machine_type"] or None)
        expected = _published(row)
        assert {key: asdict(found)[key] for key in expected} == expected, row
        assert int(found.name.rpartition("-")[2]) == found.chips * (2 if row["name_unit"] == "cores" else 1), row
        assert found.cores_per_chip == (2 if row["name_unit"] == "cores" else 1), row


def test_slices_are_exactly_the_published_rows():
    published = [(row["accelerator_type"], row["machine_type"] or None) for row in ROWS]
    ours = [(s.name, s.machine_type) for s in catalogue.slices()]
    assert sorted(ours, key=str) == sorted(published, key=str)


def test_file_is_what_the_rules_say(capsys):
    assert shapes.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_check_stale_copy_for_terraform_fails_and_names_it(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "copy.json"
    stale.write_text(shapes.FILE.read_text().replace("us-central2-b", "us-central9-z"))
    monkeypatch.setattr(shapes, "TERRAFORM_FILE", stale)
    assert shapes.main(["--check"]) == 1
    assert capsys.readouterr().out.startswith(str(stale))


def test_check_stale_file_fails_and_write_mends_it(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "tpus.json"
    stale.write_text(shapes.FILE.read_text().replace("us-central2-b", "us-central9-z"))
    copy = tmp_path / "copy.json"
    copy.write_text(shapes.FILE.read_text())
    monkeypatch.setattr(shapes, "FILE", stale)
    monkeypatch.setattr(shapes, "TERRAFORM_FILE", copy)
    assert shapes.main(["--check"]) == 1
    assert "--write" in capsys.readouterr().out
    assert shapes.main(["--write"]) == 0
    assert shapes.main(["--check"]) == 0


@STEADY
@given(SLICES)
def test_slice_counts_agree_with_each_other(s):
    assert s.chips == s.hosts * s.chips_per_host == prod(int(edge) for edge in s.topology.split("x"))
    assert (s.placement == "none") == (s.hosts == 1 and s.machine_type is not None)
    assert (s.machine_type is None) == (s.accelerator is None) == (s.placement is None)
    assert s.machine_type is None or s.machine_type.endswith(f"-{s.chips_per_host}t")


@STEADY
@given(SLICES, st.booleans(), st.data())
def test_find_any_spelling_gives_the_slice(s, upper, data):
    spelling = data.draw(st.sampled_from(s.spellings))
    assert catalogue.find(spelling.upper() if upper else spelling, machine_type=s.machine_type) is s
    assert catalogue.find_shape(s.generation, s.topology, machine_type=s.machine_type) is s


@STEADY
@given(st.text())
def test_find_any_text_is_a_slice_or_invalid_with_a_hint(text):
    for look in (catalogue.find, lambda t: catalogue.find_shape(t, "2x2"), lambda t: catalogue.find_shape("v4", t)):
        try:
            assert look(text) in catalogue.slices()
        except Invalid as error:
            assert error.problems[0].hint


@pytest.mark.parametrize("generation", ["v5e", "v6e"])
def test_find_eight_chips_defaults_to_one_host_and_reaches_two_by_machine_type(generation):
    default = catalogue.find(f"{generation}-8")
    assert (default.hosts, default.chips_per_host, default.machine_type.endswith("-8t")) == (1, 8, True)
    small = default.machine_type.replace("-8t", "-4t")
    assert catalogue.find(f"{generation}-8", machine_type=small).hosts == 2
    assert catalogue.find_shape(generation, "2x4") is default
    assert catalogue.find_shape(generation, "2x4", machine_type=small).hosts == 2


@pytest.mark.parametrize(("generation", "proper"), [("v5litepod", "v5e"), ("V7X", "tpu7x"), ("tpu7x", "tpu7x")])
def test_find_shape_either_spelling_of_a_generation_is_the_same(generation, proper):
    topology = "4x4" if proper == "v5e" else "4x4x4"
    assert catalogue.find_shape(generation, topology).generation == proper


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("v4-33", "write v4-32 or v4-64; `tpu catalogue` lists them all"),
        ("v4-4", "write v4-8 for 4 chips, as these names count TensorCores"),
        ("v3-16", "write v3-32 for 16 chips, as these names count TensorCores; else v3-8"),
        ("v5e-17", "write v5e-16 or v5e-32; `tpu catalogue` lists them all"),
        ("v5litepod-17", "write v5litepod-16 or v5litepod-32; `tpu catalogue` lists them all"),
        ("v4_32", "write v4-32; `tpu catalogue` lists them all"),
        ("v7-128", "write v7x-128; `tpu catalogue` lists them all"),
        ("v5-16", "write v5p-16 or v5e-16; `tpu catalogue` lists them all"),
        ("v4", "write v4-8, v4-16 or v4-32; `tpu catalogue` lists them all"),
        ("a100", "`tpu catalogue` lists them all"),
        ("", "`tpu catalogue` lists them all"),
    ],
)
def test_find_wrong_name_offers_nearest(name, hint):
    with pytest.raises(Invalid, match="there is no TPU named") as error:
        catalogue.find(name)
    assert _hint(error) == hint


@pytest.mark.parametrize(
    ("generation", "topology", "hint"),
    [
        ("v4", "4x2x2", "write 2x2x4: the shortest axis comes first"),
        ("v4", "4x4x16", "write 4x8x8 (256 chips) or 4x4x12 (192 chips); `tpu catalogue v4` lists them all"),
        ("v4", "4x4", "v4 has 3 axes; write 2x2x4 (16 chips) or 2x2x2 (8 chips); `tpu catalogue v4` lists them all"),
        ("v5e", "2x8", "write 4x4 (16 chips) or 2x4 (8 chips); `tpu catalogue v5e` lists them all"),
        ("v5e", "16", "v5e has 2 axes; write 4x4 (16 chips) or 2x4 (8 chips); `tpu catalogue v5e` lists them all"),
        ("v4", "four", "a topology says how many chips lie along each axis: write 2x2x4, for one"),
        ("v4", "0x0x0", "write 2x2x1 (4 chips) or 2x2x2 (8 chips); `tpu catalogue v4` lists them all"),
        ("v9", "2x2", "write one of v2, v3, v4, v5e, v5p, v6e, tpu7x"),
    ],
)
def test_find_shape_wrong_shape_offers_nearest(generation, topology, hint):
    with pytest.raises(Invalid) as error:
        catalogue.find_shape(generation, topology)
    assert _hint(error) == hint


@pytest.mark.parametrize(
    ("name", "machine_type", "message"),
    [
        (
            "v5e-8",
            "ct5lp-hightpu-1t",
            "v5litepod-8 has no hosts of type 'ct5lp-hightpu-1t'\n"
            "  write ct5lp-hightpu-8t or ct5lp-hightpu-4t, or leave it out",
        ),
        ("v2-8", "n1-standard-4", "v2-8 has no machine type: GKE does not offer it\n  leave out machine_type"),
    ],
)
def test_find_wrong_machine_type_offers_the_right_ones(name, machine_type, message):
    with pytest.raises(Invalid) as error:
        catalogue.find(name, machine_type=machine_type)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("filter_", "names"),
    [
        ("v4-8", ["v4-8"]),  # not v4-8192
        ("V7X-16", ["tpu7x-16"]),
        ("ct3-hightpu-4t", ["v3-8"]),
        ("16x32", ["v3-1024"]),
        ("v6e-8", ["v6e-8", "v6e-8"]),
        ("us-west4-b", [s.name for s in catalogue.slices() if s.generation == "v5e"]),
        ("litepod-2", ["v5litepod-256"]),
        ("nothing", []),
    ],
)
def test_matching_takes_whole_words_before_parts(filter_, names):
    assert [s.name for s in catalogue.matching(filter_)] == names


def test_command_table_has_data_on_stdout_and_notes_on_stderr():
    result = CliRunner().invoke(command, ["v5e-8"])
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines() if "ct5lp" in line]
    zones = list(catalogue.find("v5e-8").zones)
    assert lines == [
        ["v5litepod-8", "v5e-8", "2x4", "8", "1", "ct5lp-hightpu-8t", "197", "16", "9.60–12.48", *zones],
        ["v5litepod-8", "v5e-8", "2x4", "8", "2", "ct5lp-hightpu-4t", "197", "16", "9.60–12.48", *zones],
    ]
    assert "2 slices" in result.stderr
    assert "default" in result.stderr


def test_command_json_lists_every_field():
    result = CliRunner().invoke(command, ["v4-32", "--json"])
    (printed,) = json.loads(result.stdout)
    assert printed.pop("prices")
    assert printed == json.loads(json.dumps(asdict(catalogue.find("v4-32"))))
    assert result.stderr == ""


def test_command_without_filter_lists_everything():
    result = CliRunner().invoke(command, ["--json"])
    assert len(json.loads(result.stdout)) == len(ROWS)


def test_command_no_match_names_the_nearest():
    result = CliRunner().invoke(command, ["v4-33"])
    assert isinstance(result.exception, NotFound)
    assert str(result.exception) == "no slice matches 'v4-33'\n  near it are v4-32, v4-64"
