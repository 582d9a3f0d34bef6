"""Command lines known from shell scripts, in tpukit's spelling, and the screen of a fleet."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from support.fleet_world import ME, World
from support.waiting import PATIENCE
from tpukit.cli import fleet_screen
from tpukit.cli.fleet import command
from tpukit.core.errors import Invalid
from tpukit.fleet import dataset, deploy, streams, verify, wanted
from tpukit.fleet.act import argv
from tpukit.fleet.progress import Made, Progress
from tpukit.fleet.records import Work, Worker
from tpukit.fleet.wanted import Plan
from tpukit.host import worker as host_worker
from tpukit.jobs.spec.fleet import FleetSpec

LINES = [
    "create --zones us-central1-a,us-central1-b --workers-per-zone 4 --tpu-type v3-8",
    "create --zones us-central1-b --workers-per-zone 4",
    "delete --zones us-central1-a --workers-per-zone 4",
    "status --zones us-central1-a,us-central1-b",
    "recreate-preempted --zones us-central1-a,us-central1-b --workers-per-zone 4",
    "list",
    "deploy --gcs-bucket b --zones us-central1-a --workers-per-zone 2 --max-samples 100 --create-tpus --monitor",
    "deploy --gcs-bucket b --zones us-central1-a,us-central1-b --workers-per-zone 4 --create-tpus --monitor",
    "deploy --gcs-bucket b --zones us-central1-a --workers-per-zone 4 --skip-dataset",
    "deploy --gcs-bucket b --zones us-central1-a --workers-per-zone 4 --skip-dataset --skip-launch",
    "deploy --gcs-bucket b --zones us-central1-a --workers-per-zone 4 --create-tpus --monitor --monitor-interval 60",
    "deploy --gcs_bucket b --zones us-central1-a --workers_per_zone 4 --create_tpus --monitor --monitor_interval 60",
    "create --zones us-central1-a,us-central1-b --workers_per_zone 4 --tpu_type v3-8",
    "delete --zones us-central1-a --workers_per_zone 4",
    "deploy --gcs_bucket b --zones us-central1-a --workers_per_zone 4 --skip_dataset --skip_launch --max_samples 9",
    "deploy --gcs-bucket b --zones us-central1-a,us-central1-b,us-central1-c,us-central1-f --workers-per-zone 4",
]


@pytest.mark.parametrize("line", LINES)
def test_command_line_of_the_scripts_is_understood(line):
    name, *words = shlex.split(line)
    fleet = command.make_context("fleet", [name])
    context = command.commands[name].make_context(name, words, parent=fleet)  # type: ignore[attr-defined]
    assert context.params


def test_fleet_without_options_is_of_spot_capacity_and_its_monitor_renews_every_minute():
    assert FleetSpec(zones=("us-central1-a",)).capacity == "spot"
    fleet = command.make_context("fleet", ["create"])
    created = command.commands["create"].make_context("create", [], parent=fleet)  # type: ignore[attr-defined]
    assert created.params["on_demand"] is None  # the file decides, and spot is the default
    for name in ("deploy", "monitor"):
        words = ["--gcs-bucket", "b"]
        context = command.commands[name].make_context(name, words, parent=fleet)  # type: ignore[attr-defined]
        assert context.params["monitor_interval"] == 60


def test_command_of_a_worker_is_understood_by_the_worker(tmp_path):
    work = Work("gs://b/datasets", "gs://b/activations", "p.py:make", {"model": "m=1"}, requirements="r.txt")
    options = host_worker._options([*argv(work, "tpu-us-central1-a-0")[3:], "--home", str(tmp_path)])
    assert (options.worker, options.data, options.output) == ("tpu-us-central1-a-0", work.data, work.output)
    assert (options.option, options.shard_samples, options.requirements) == (["model=m=1"], 1000, Path("r.txt"))


def test_worker_takes_flags_with_underscores_and_leaves_their_values(tmp_path):
    words = "--gcs_bucket my_b --dataset_stream=gs://my_b/datasets/stream_000.jsonl --program p_x.py:make"
    options = host_worker._options([*words.split(), "--home", str(tmp_path)])
    assert (options.data, options.program) == ("gs://my_b/datasets", "p_x.py:make")
    assert options.dataset_stream == ["gs://my_b/datasets/stream_000.jsonl"]


def test_plan_in_the_bucket_is_enough_for_another_machine(tmp_path):
    work = Work(f"{tmp_path}/datasets", f"{tmp_path}/activations", "p.py:make", code="c", archive="a")
    made = Plan("tpu", ["us-central1-a", "us-central1-b"], 2, "v3-8", work=work)
    wanted.save(made, str(tmp_path))
    assert wanted.load("tpu", str(tmp_path)) == made
    assert [one.tpu for one in made.workers(0.0)] == [f"tpu-us-central1-{zone}-{n}" for zone in "ab" for n in (0, 1)]


def test_archive_has_the_program_and_what_runs_it_and_is_the_same_every_time(tmp_path):
    (tmp_path / "extract.py").write_text("x = 1\n")
    (tmp_path / ".secret").write_text("s")
    digest, content = dataset.pack(tmp_path)
    assert dataset.pack(tmp_path) == (digest, content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = archive.getnames()
    assert {"extract.py", "tpukit/__init__.py", "tpukit/host/worker.py"} <= set(names)
    assert ".secret" not in names


@pytest.mark.parametrize(
    ("width", "shown"),
    [(80, ["tpu-us-central1-a-0", "READY", "samples"]), (200, ["tpu-us-central1-a-0  us-central1-a "])],
)
def test_dashboard_shows_state_samples_shards_and_totals(tmp_path, width, shown):
    world = World(tmp_path)
    try:
        world.want()
        world.until_working()
        world.round()
        workers = world.workers()
    finally:
        world.close()
    made = Progress(Made(882, 7350), {"us-central1-a-0": Made(150, 1250)})
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(fleet_screen.dashboard(workers, made))
    text = console.export_text()
    assert all(word in text for word in shown)
    assert "4 workers: healthy 4, working 4, needs recovery 0; 7350 samples in 882 shards" in text
    assert next(line for line in text.splitlines() if "us-central1-a-0" in line).split()[-3:] == ["1250", "150", "150"]
    assert max(map(len, text.splitlines())) <= width
    assert fleet_screen.as_json(workers, made)["needs recovery"] == 0


def test_dashboard_on_a_terminal_is_headed_by_output_time_and_interval(tmp_path, monkeypatch):
    world = World(tmp_path)
    try:
        world.want()
        world.until_working()
        workers = world.workers()
    finally:
        world.close()
    monkeypatch.setattr(fleet_screen, "progress", lambda workers: Progress(Made(1, 2)))
    console = Console(width=200, height=40, force_terminal=True, file=io.StringIO())
    with fleet_screen.Screen(console, live=True, interval=60.0) as screen:
        screen.show(workers)
    output = re.escape(next(one.work.output for one in workers if one.work))
    assert re.search(rf"{output} at \d\d:\d\d:\d\d, every 60 s", console.file.getvalue())


def test_dashboard_with_more_workers_than_lines_shows_those_that_need_somebody(tmp_path):
    workers = [replace(one, tpu_state="READY", attempt=1) for one in plan_of(1000)]
    workers[700] = replace(workers[700], tpu_state="PREEMPTED")
    console = Console(width=80, height=24, record=True, file=io.StringIO())
    console.print(fleet_screen.dashboard(workers, Progress(), rows=10))
    lines = console.export_text().splitlines()
    assert len(lines) == 13
    assert any(line.split()[:3] == ["tpu-us-central1-a-700", "us-central1-a", "PREEMPTED"] for line in lines)
    assert "1000 workers: healthy 999, working 999, needs recovery 1" in lines[0]
    assert "and 991 more workers" in lines[-1]


def test_note_while_the_dashboard_is_shown_goes_through_the_console_that_draws_it(capsys):
    console = Console(width=80, height=24, record=True, file=io.StringIO(), force_terminal=True)
    with fleet_screen.Screen(console, live=True, interval=60) as screen:
        screen.show(plan_of(2))
        screen.say("tpu", "tpu-us-central1-a-0 is launched")
    assert "tpu: tpu-us-central1-a-0 is launched\n" in console.export_text()
    assert capsys.readouterr().err == ""  # otherwise the cursor is not where the next drawing begins


def plan_of(count: int) -> list[Worker]:
    return Plan("tpu", ["us-central1-a"], count, "v3-8").workers(0.0)


def test_deploy_of_another_dataset_into_an_output_that_was_begun_is_refused_before_anything_is_replaced(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path / "home"))
    source, root = tmp_path / "data.jsonl", str(tmp_path / "bucket")
    source.write_text('{"n": 1}\n{"n": 2}\n')
    words = {"zones": ["us-central1-a"], "gcs_bucket": root, "dataset": [str(source)], "program": "module:make"}
    made = deploy.upload(FleetSpec.from_json(words), root)
    run = {"dataset": made.digest, "shard_samples": 1000, "program": "module:make", "options": {}}
    (tmp_path / "bucket" / "activations").mkdir()
    (tmp_path / "bucket" / "activations" / "run.json").write_text(json.dumps(run))
    again = tmp_path / "elsewhere.jsonl"
    again.write_bytes(source.read_bytes())
    deploy.upload(FleetSpec.from_json({**words, "dataset": [str(again)]}), root)  # the same samples
    deploy.with_work(FleetSpec.from_json(words), root, ME)
    manifest = (tmp_path / "bucket" / "datasets" / "streams.json").read_bytes()
    again.write_text('{"n": 3}\n')
    with pytest.raises(Invalid, match="has shards of another run: dataset was"):
        deploy.upload(FleetSpec.from_json({**words, "dataset": [str(again)]}), root)
    assert (tmp_path / "bucket" / "datasets" / "streams.json").read_bytes() == manifest
    with pytest.raises(Invalid, match="has shards of another run: shard_samples was 1000, and is 5 now"):
        deploy.with_work(FleetSpec.from_json({**words, "shard_samples": 5}), root, ME)


def test_verify_names_what_is_missing_damaged_and_too_much(tmp_path):
    source = tmp_path / "data.jsonl"
    source.write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    streams.split([source], tmp_path / "datasets", 2)
    data, output = str(tmp_path / "datasets"), str(tmp_path / "activations")
    program = Path(__file__).resolve().parents[2] / "fixtures" / "fleet_program.py"
    words = ["--data", data, "--output", output, "--program", f"{program}:make", "--shard-samples", "4"]
    env = {**os.environ, "PYTHONPATH": str(program.parents[2] / "tools")}
    run = [sys.executable, "-m", "tpukit.host.worker", *words, "--home", str(tmp_path / "w")]
    subprocess.run(run, env=env, check=True, capture_output=True, timeout=PATIENCE)
    right = verify.verify(data, output)
    assert (right.samples, right.shards, right.problems) == (20, 6, ())
    folder = Path(output) / "stream_001"
    (folder / "shard_00000.txt").unlink()
    damaged = folder / "shard_00001.txt"
    damaged.write_bytes(damaged.read_bytes()[::-1])
    (folder / "shard_00009.txt").write_text("x")
    assert set(verify.verify(data, output).problems) == {
        "stream_001/shard_00000.txt is missing",
        "stream_001/shard_00001.txt is damaged",
        "stream_001/shard_00009.txt belongs to no stream",
    }
