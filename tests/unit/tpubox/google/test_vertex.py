"""TensorBoard of the emulator: data written by an uploader can be read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.wire.settings import number_of

LOCATION = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture
def run(world: World) -> str:
    """Return the path of a run without series."""
    made = world.ask("POST", f"{LOCATION}/tensorboards", {"displayName": "board"})
    board = f"vertex_ai/v1/{made['response']['name']}"
    world.ask("POST", f"{board}/experiments", {}, tensorboardExperimentId="pretrain")
    run = {"displayName": "host 0"}
    world.ask("POST", f"{board}/experiments/pretrain/runs", run, tensorboardRunId="host-0")
    return f"{board}/experiments/pretrain/runs/host-0"


def series(world: World, run: str, name: str) -> str:
    made = world.ask("POST", f"{run}/timeSeries", {"displayName": name, "valueType": "SCALAR"})
    return str(made["name"].rpartition("/")[2])


def write(world: World, run: str, name: str, points: dict[int, float]) -> None:
    values = [{"step": str(step), "scalar": {"value": value}} for step, value in points.items()]
    data = [{"tensorboardTimeSeriesId": name, "valueType": "SCALAR", "values": values}]
    world.ask("POST", f"{run}:write", {"tensorboardRun": "any", "timeSeriesData": data})


def points(answer: dict[str, Any]) -> dict[int, float]:
    return {int(one["step"]): one["scalar"]["value"] for one in answer["values"]}


def test_points_are_read_back_in_order_and_the_last_write_counts(world, run):
    loss = series(world, run, "loss")
    write(world, run, loss, {10: 2.0, 2: 3.0})
    write(world, run, loss, {10: 1.5, 100: 1.0})
    read = world.ask("GET", f"{run}/timeSeries/{loss}:read")["timeSeriesData"]
    assert list(points(read).items()) == [(2, 3.0), (10, 1.5), (100, 1.0)]


def test_long_series_is_thinned_and_keeps_its_ends(world, run):
    loss = series(world, run, "loss")
    write(world, run, loss, {step: float(step) for step in range(1000)})
    read = points(world.ask("GET", f"{run}/timeSeries/{loss}:read", maxDataPoints="100")["timeSeriesData"])
    assert len(read) <= 101
    assert {0, 999} <= set(read)


def test_names_carry_the_number_of_the_project_and_the_id_finds_them_too(world, run):
    name = run.removeprefix("vertex_ai/v1/")
    assert name.startswith(f"projects/{number_of(PROJECT)}/")
    by_id = run.replace(number_of(PROJECT), PROJECT)
    assert world.ask("GET", by_id)["name"] == name


def test_display_name_is_unique_and_can_be_searched(world, run):
    loss = series(world, run, "loss")
    again = {"displayName": "loss", "valueType": "SCALAR"}
    assert world.refusal("POST", f"{run}/timeSeries", again)[0] == 409
    series(world, run, "accuracy")
    found = world.ask("GET", f"{run}/timeSeries", filter='display_name="loss"')["tensorboardTimeSeries"]
    assert [one["name"].rpartition("/")[2] for one in found] == [loss]


@pytest.mark.parametrize("change", [{"tensorboardTimeSeriesId": "7"}, {"valueType": "TENSOR"}])
def test_data_that_fits_no_series_is_refused(world, run, change):
    loss = series(world, run, "loss")
    data = [{"tensorboardTimeSeriesId": loss, "valueType": "SCALAR", "values": [], **change}]
    assert world.refusal("POST", f"{run}:write", {"timeSeriesData": data})[0] in (400, 404)


def test_several_at_once(world, run):
    experiment = run.rpartition("/runs/")[0]
    runs = [{"tensorboardRunId": f"host-{n}", "tensorboardRun": {"displayName": f"host {n}"}} for n in (1, 2)]
    world.ask("POST", f"{experiment}/runs:batchCreate", {"requests": runs})
    loss = {"displayName": "loss", "valueType": "SCALAR"}
    wanted = [{"parent": f"{experiment}/runs/host-{n}", "tensorboardTimeSeries": loss} for n in (1, 2)]
    made = world.ask("POST", f"{experiment}:batchCreate", {"requests": wanted})["tensorboardTimeSeries"]
    ids = [one["name"].rpartition("/")[2] for one in made]
    writes = []
    for n, name in zip((1, 2), ids, strict=True):
        data = {"tensorboardTimeSeriesId": name, "values": [{"step": "1", "scalar": {"value": float(n)}}]}
        writes.append({"tensorboardRun": f"{experiment}/runs/host-{n}", "timeSeriesData": [data]})
    world.ask("POST", f"{experiment}:write", {"writeRunDataRequests": writes})
    board = experiment.partition("/experiments/")[0]
    read = world.ask("GET", f"{board}:batchRead", timeSeries=",".join(one["name"] for one in made))["timeSeriesData"]
    assert [points(one) for one in read] == [{1: 1.0}, {1: 2.0}]


def test_board_goes_with_all_that_is_in_it(world, run):
    write(world, run, series(world, run, "loss"), {1: 1.0})
    world.ask("DELETE", run.partition("/experiments/")[0])
    assert world.cloud.inventory() == []


def test_methods_of_a_tensorboard_need_the_permissions_that_google_names(world, run):
    """Google's list: https://cloud.google.com/vertex-ai/docs/general/iam-permissions."""
    board, experiment = run.partition("/experiments/")[0], run.rpartition("/runs/")[0]
    loss = series(world, run, "loss")
    write(world, run, loss, {1: 1.0})
    series_path = f"{run}/timeSeries/{loss}"
    inner = {"parent": run.partition("/v1/")[2], "tensorboardTimeSeries": {"displayName": "a", "valueType": "SCALAR"}}
    world.ask("POST", f"{experiment}:write", {"writeRunDataRequests": []})
    world.ask("POST", f"{experiment}:batchCreate", {"requests": [inner]})
    world.ask("POST", f"{experiment}/runs:batchCreate", {"requests": []})
    world.ask("GET", f"{series_path}:read")
    world.ask("GET", f"{board}:batchRead", timeSeries=series_path.partition("/v1/")[2])
    asked = [one["permissions"] for one in world.cloud.requests(path="vertex_ai/.*tensorboards/")]
    assert [permission.removeprefix("aiplatform.") for (permission,) in asked] == [
        *("tensorboardExperiments.create", "tensorboardRuns.create", "tensorboardTimeSeries.create"),
        *("tensorboardRuns.write", "tensorboardExperiments.write"),
        *("tensorboardTimeSeries.batchCreate", "tensorboardRuns.batchCreate"),
        *("tensorboardTimeSeries.read", "tensorboardTimeSeries.batchRead"),
    ]
