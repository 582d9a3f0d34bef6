"""Vertex AI: the contents of a TensorBoard: experiments, their runs, the time series of a run, and their points.

Scalars, tensors and blobs are stored as written, one point per step; the last write of a step counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpubox.google.vertex.tensorboards import (
    BOARD,
    LOCATION,
    MESSAGES,
    api,
    find_board,
    get_or_refuse,
    numbered,
    patched,
)
from tpubox.google.wire import etags
from tpubox.google.wire.api import Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import EMULATOR, GUESS
from tpubox.google.wire.state import Doc

EXPERIMENT = BOARD + "/experiments/{experiment}"
RUN = EXPERIMENT + "/runs/{run}"
SERIES = RUN + "/timeSeries/{series}"


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the tree below a TensorBoard."""

    kind: str
    path: str
    plural: str  # field of lists
    message: str
    id: str  # query parameter with the id of a new one


LEVELS = (
    Level("experiment", EXPERIMENT, "tensorboardExperiments", "TensorboardExperiment", "tensorboardExperimentId"),
    Level("run", RUN, "tensorboardRuns", "TensorboardRun", "tensorboardRunId"),
    Level("series", SERIES, "tensorboardTimeSeries", "TensorboardTimeSeries", "tensorboardTimeSeriesId"),
)


def _register(level: Level) -> None:
    parent = level.path.rpartition("/")[0]

    @api.on("POST", parent, body=MESSAGES + level.message)
    def create(cloud: Cloud, call: Call) -> Doc:
        return _make(cloud, level, numbered(call, parent), call.query.get(level.id, ""), call.body)

    @api.on("GET", parent, lists=MESSAGES + level.message)
    def listed(cloud: Cloud, call: Call) -> Doc:
        prefix = f"{numbered(call, parent)}/"
        return {level.plural: [etags.shown(one) for one in cloud.state.all(level.kind, prefix).values()]}

    @api.on("GET", level.path)
    def show(cloud: Cloud, call: Call) -> Doc:
        return etags.shown(get_or_refuse(cloud, level.kind, numbered(call, level.path)))

    @api.on("PATCH", level.path, body=MESSAGES + level.message)
    def patch(cloud: Cloud, call: Call) -> Doc:
        name = numbered(call, level.path)
        new = patched(cloud, call, level.kind, name)
        cloud.state.put(level.kind, name, new)
        return etags.shown(new)

    @api.on("DELETE", level.path)
    def delete(cloud: Cloud, call: Call) -> Started:
        doc = get_or_refuse(cloud, level.kind, numbered(call, level.path))
        return cloud.start(api, "DELETE", numbered(call, LOCATION), doc["name"])


def _make(cloud: Cloud, level: Level, parent: str, wanted: str, body: Doc) -> Doc:
    # The parent of an experiment is the instance, which is a kind of its own.
    above = {"experiment": "tensorboard", "run": "experiment", "series": "run"}[level.kind]
    owner = parent.rpartition("/")[0]
    get_or_refuse(cloud, above, owner)
    if level.kind == "series":
        wanted = wanted or str(10**12 + cloud.state.next())
        if not body.get("valueType") or not body.get("displayName"):
            raise GUESS.invalid("Display name and value type of a time series must be given.")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,127}", wanted):
        raise GUESS.invalid(f"Invalid {level.id} {wanted!r}: small letters, digits and hyphens are valid.")
    full = f"{parent}/{wanted}"
    siblings = cloud.state.all(level.kind, f"{parent}/").values()
    same_name = level.kind != "experiment" and any(
        doc.get("displayName") == body.get("displayName") for doc in siblings
    )
    if cloud.state.get(level.kind, full) or same_name:
        raise GUESS.exists(f"The {level.kind} {full} or one with its display name already exists.")
    given = {key: value for key, value in body.items() if key != "etag"}
    made = {**given, "name": full, "createTime": cloud.stamp(), "updateTime": cloud.stamp()}
    cloud.state.put(level.kind, full, made)
    return etags.shown(made)


for _level in LEVELS:
    _register(_level)


@api.on("POST", EXPERIMENT + "/runs:batchCreate", body=f"{MESSAGES}BatchCreateTensorboardRunsRequest")
def _runs(cloud: Cloud, call: Call) -> Doc:
    parent = f"{numbered(call, EXPERIMENT)}/runs"
    requests = call.body.get("requests", [])
    made = [_make(cloud, LEVELS[1], parent, one.get("tensorboardRunId", ""), one["tensorboardRun"]) for one in requests]
    return {"tensorboardRuns": made}


@api.on("POST", EXPERIMENT + ":batchCreate", body=f"{MESSAGES}BatchCreateTensorboardTimeSeriesRequest")
def _many_series(cloud: Cloud, call: Call) -> Doc:
    made = []
    for one in call.body.get("requests", []):
        run = f"{numbered(call, EXPERIMENT)}/runs/{one['parent'].rpartition('/')[2]}"
        made.append(_make(cloud, LEVELS[2], f"{run}/timeSeries", "", one["tensorboardTimeSeries"]))
    return {"tensorboardTimeSeries": made}


@api.on("POST", RUN + ":write", body=f"{MESSAGES}WriteTensorboardRunDataRequest")
def _write_run(cloud: Cloud, call: Call) -> Doc:
    _write(cloud, numbered(call, RUN), call.body.get("timeSeriesData", []))
    return {}


@api.on("POST", EXPERIMENT + ":write", body=f"{MESSAGES}WriteTensorboardExperimentDataRequest")
def _write_experiment(cloud: Cloud, call: Call) -> Doc:
    for one in call.body.get("writeRunDataRequests", []):
        run = f"{numbered(call, EXPERIMENT)}/runs/{one['tensorboardRun'].rpartition('/')[2]}"
        _write(cloud, run, one.get("timeSeriesData", []))
    return {}


def _write(cloud: Cloud, run: str, data: list[Doc]) -> None:
    get_or_refuse(cloud, "run", run)
    for one in data:
        name = f"{run}/timeSeries/{one['tensorboardTimeSeriesId']}"
        series = get_or_refuse(cloud, "series", name)
        if one.get("valueType", series["valueType"]) != series["valueType"]:
            raise GUESS.invalid(f"{name} holds {series['valueType']}, not {one['valueType']}.")
        for value in one.get("values", []):
            cloud.state.put("point", f"{name}/{int(value.get('step', 0)):020d}", value)


@api.on("GET", SERIES + ":read", lists="")
def _read(cloud: Cloud, call: Call) -> Doc:
    if call.query.get("filter"):
        raise EMULATOR.invalid("The emulator cannot choose points by a filter.")  # its syntax is undocumented
    name = numbered(call, SERIES)
    return {"timeSeriesData": _data(cloud, name, int(call.query.get("maxDataPoints") or 1000))}


@api.on("GET", BOARD + ":batchRead")
def _read_many(cloud: Cloud, call: Call) -> Doc:
    board = find_board(cloud, call)["name"]
    names = [name for name in call.query.get("timeSeries", "").split(",") if name]
    mine = [f"{board}/{name.partition('/tensorboards/')[2].partition('/')[2]}" for name in names]
    return {"timeSeriesData": [_data(cloud, name, 1000) for name in mine]}


def _data(cloud: Cloud, name: str, most: int) -> Doc:
    series = get_or_refuse(cloud, "series", name)
    points = list(cloud.state.all("point", f"{name}/").values())
    # The service thins out a long series; the first and the last point stay.
    step = max(1, -(-len(points) // most))
    shown = points[::step] if not points or points[-1] is points[::step][-1] else [*points[::step], points[-1]]
    about = {"tensorboardTimeSeriesId": name.rpartition("/")[2], "valueType": series["valueType"]}
    return {**about, "values": shown}
