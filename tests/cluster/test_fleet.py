"""A fleet in the sandbox that gives the same bytes as an undisturbed run.

8 TPU VMs over 2 zones run real processes that are preempted and crash, and their monitor is stopped and started
elsewhere. Further tests cover a zone without stock, a busy bucket, and the command lines of earlier scripts. Only the
emulator runs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.tpu_vm_world import PROJECT, TpuVms
from support.waiting import PATIENCE, until
from tpubox.google.wire.settings import number_of
from tpukit.fleet import streams

ROOT = Path(__file__).resolve().parents[2]
ZONES = "us-central1-a,us-central1-b"
FOUR_ZONES = f"{ZONES},us-central1-c,us-central1-f"
BUCKET = "fleet-data"
PROGRAM = ROOT / "tests" / "fixtures" / "fleet_program.py"
SAMPLES = 240


class Fleet:
    """The command as a user runs it on a separate machine."""

    def __init__(self, vms: TpuVms, home: Path) -> None:
        self.vms, self.home = vms, home
        home.mkdir()
        (home / "settings.yaml").write_text(f"project: {PROJECT}\nzone: us-central1-a\nssh_user: ada\n")
        own = {"TPUKIT_HOME": str(home), "TPUKIT_SETTINGS": str(home / "settings.yaml"), "LOGNAME": "ada"}
        google = {**vms.emulator.environment(), "STORAGE_EMULATOR_HOST": vms.emulator.address}
        self.env = {**os.environ, **google, **own, "PYTHONPATH": str(ROOT / "tools")}

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        argv = [sys.executable, "-m", "tpukit", "fleet", *words]
        with subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *words: str, code: int = 0) -> str:
        with self.started(*words) as process:
            said, wrong = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, (words, said, wrong)
        return said + wrong

    def work(self, *words: str) -> str:
        argv = [sys.executable, "-m", "tpukit.host.worker", *words]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def status(self, *words: str) -> Any:
        with self.started("status", "--json", *words) as process:
            said, wrong = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, wrong
        return json.loads(said)

    def shards(self, bucket: str = BUCKET) -> dict[str, str]:
        """Return the checksums of existing shards by name."""
        listed = self.vms.ask("GET", f"storage/v1/b/{bucket}/o?prefix=activations/stream_")
        names = {one["name"]: one["md5Hash"] for one in listed.get("items", [])}
        return {name: sum_ for name, sum_ in names.items() if "/shard_" in name}


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        add_bucket(made, BUCKET)
        yield made


def add_bucket(vms: TpuVms, name: str) -> None:
    """Create a bucket that TPU VMs may use."""
    vms.ask("POST", f"storage/v1/b?project={PROJECT}", {"name": name})
    account = f"serviceAccount:{number_of(PROJECT)}-compute@developer.gserviceaccount.com"
    binding = {"role": "roles/storage.objectAdmin", "members": [account]}
    vms.ask("PUT", f"storage/v1/b/{name}/iam", {"bindings": [binding]})


def ids(vms: TpuVms, zones: str = FOUR_ZONES) -> dict[str, str]:
    """Return the ids of all TPU VMs by name. A recreated one has another id."""
    listed = [vms.ask("GET", f"tpu/v2/projects/{PROJECT}/locations/{zone}/nodes") for zone in zones.split(",")]
    return {one["name"].rpartition("/")[2]: one["id"] for each in listed for one in each.get("nodes", [])}


def strike(vms: TpuVms, action: str, node: str, **words: Any) -> None:
    vms.ask("POST", "emulator/tpu-vms", {"action": action, "node": node, **words})


@pytest.fixture
def gate() -> Iterator[Path]:
    """Yield a gate file: workers wait in the middle of a stream until it exists. Hosts have their own /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "open"


def test_fleet_that_loses_tpu_vms_and_its_monitor_gives_the_bytes_of_an_undisturbed_run(vms, tmp_path, gate):
    fleet, elsewhere = Fleet(vms, tmp_path / "home"), Fleet(vms, tmp_path / "elsewhere")
    data = tmp_path / "data.jsonl"
    samples = [{"text": f"sample {number}", "gated": number >= SAMPLES // 2} for number in range(SAMPLES)]
    data.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    words = ("--zones", ZONES, "--gcs-bucket", BUCKET, "--program", f"{PROGRAM}:make", "--shard-samples", "5")
    words += ("--option", f"gate={gate}", "--claim-seconds", "3", "--monitor-interval", "1", "--tpu-type", "v3-8")
    words += ("--workers-per-zone", "4", "--dataset", str(data), "--streams", "12", "--create-tpus", "--monitor")
    with fleet.started("deploy", *words) as deploy:
        until(lambda: len(fleet.shards()) >= 16 or deploy.poll() is not None, "shards")
        assert deploy.poll() is None, deploy.communicate()
        before = ids(vms)
        assert len(before) == 8
        deploy.send_signal(signal.SIGINT)
        said = deploy.communicate(timeout=PATIENCE)
        assert (deploy.returncode, "the fleet keeps running" in said[1]) == (130, True), said
    strike(vms, "preempt", "tpu-us-central1-a-0", grace=0)
    strike(vms, "preempt", "tpu-us-central1-b-3", grace=1)
    strike(vms, "crash", "tpu-us-central1-a-1")
    with elsewhere.started("monitor", "--gcs-bucket", BUCKET, "--monitor-interval", "1", "--adopt") as monitor:
        lost = ("tpu-us-central1-a-0", "tpu-us-central1-b-3")
        anew = lambda: all(ids(vms).get(name, before[name]) != before[name] for name in lost)  # noqa: E731
        until(lambda: anew() or monitor.poll() is not None, "lost TPU VMs to come again")
        gate.touch()
        said = monitor.communicate(timeout=PATIENCE)
        assert monitor.returncode == 0, said
    assert set(ids(vms)) == set(before)
    assert "complete: 240 samples in 48 shards" in fleet.run("verify", "--gcs-bucket", BUCKET)
    status = elsewhere.status()
    assert (status["samples"], status["objects"], len(status["workers"])) == (240, 48, 8)
    assert sum(one["objects"] for one in status["workers"]) == 48
    assert sum(one["samples"] for one in status["workers"]) == 240
    assert fleet.shards() == undisturbed(data, tmp_path, gate)
    assert "another store drives it" in fleet.run("delete", "--yes", code=1)  # after the takeover
    elsewhere.run("delete", "--yes")
    assert_nothing_is_left(vms)


LINES = [
    # Every command line of the replaced shell scripts, some with underscores, with fewer TPU VMs and a separate bucket
    # for each deployment. The scripts contained dataset and program.
    ("tpu fleet create --zones {two} --workers_per_zone 2 --tpu_type v3-8", "4 workers are ready", "a0 a1 b0 b1"),
    ("tpu fleet status --zones {two}", "tpu-us-central1-b-1", "a0 a1 b0 b1"),
    ("tpu fleet list", "tpu-us-central1-a-0  us-central1-a  ada  READY  ada", "a0 a1 b0 b1"),
    ("!preempt tpu-us-central1-a-1", "", ""),
    ("tpu fleet recreate-preempted --zones {two} --workers_per_zone 2", "4 workers are ready", "a0 A1 b0 b1"),
    (
        "tpu fleet deploy --gcs_bucket {one} --zones {two} --workers_per_zone 2 --skip_launch "
        "--dataset {data} --program {program} {sizes}",
        "40 samples in 4",
        "a0 a1 b0 b1",
    ),
    (
        "python -m tpukit.host.worker --gcs_bucket {one} --dataset_stream gs://{one}/datasets/stream_000.jsonl "
        "--model small "
        "--output gs://{one}/hand --program {program} --requirements {empty} --force --home {home}",
        "stream_000.jsonl is done: 10 samples, 1 shards",
        "a0 a1 b0 b1",
    ),
    (
        "tpu fleet deploy --gcs-bucket {one} --zones {two} --workers-per-zone 2 --skip-dataset "
        "--dataset {data} --program {program} {sizes}",
        "launched",
        "a0 a1 b0 b1",
    ),
    ("tpu fleet monitor --gcs-bucket {one} --monitor-interval 1", "4 workers are done", "a0 a1 b0 b1"),
    ("tpu fleet verify --gcs-bucket {one}", "complete: 40 samples in 8 shards", "a0 a1 b0 b1"),
    ("tpu fleet logs tpu-us-central1-b-0", "all 4 streams are done", "a0 a1 b0 b1"),
    ("tpu fleet logs -f tpu-us-central1-b-0", "the program ended with exit code 0", "a0 a1 b0 b1"),
    ("tpu fleet delete --zones us-central1-a --workers-per-zone 1 --yes", "3 TPU VMs are left", "a1 b0 b1"),
    ("tpu fleet create --zones us-central1-a --workers-per-zone 1", "workers are ready", "A0 a1 b0 b1"),
    ("tpu fleet delete --zones us-central1-a --workers_per_zone 4 --yes", "2 TPU VMs are left", "b0 b1"),
    ("tpu fleet delete --yes", "0 TPU VMs are left", ""),
    (
        "tpu fleet deploy --gcs_bucket {other} --zones us-central1-a --workers_per_zone 2 --max_samples 10 "
        "--create_tpus --monitor --monitor_interval 1 --dataset {data} --program {program} {sizes}",
        "20 samples in 2 streams uploaded",
        "a0 a1",
    ),
    ("tpu fleet verify --gcs-bucket {other}", "complete: 20 samples in 4 shards", "a0 a1"),
    (
        "tpu fleet deploy --gcs-bucket {four} --zones {four_zones} --workers-per-zone 1 --create-tpus --yes "
        "--dataset {data} --program {program} {sizes}",
        "launched",
        "a0 b0 tpu-us-central1-a-for-us-central1-c-0 tpu-us-central1-a-for-us-central1-f-0",  # zones without v3-8
    ),
    ("tpu fleet delete --yes", "0 TPU VMs are left", ""),
]


def test_every_command_line_of_the_scripts_runs_and_does_what_it_did_there(vms, tmp_path):
    fleet, data = Fleet(vms, tmp_path / "home"), tmp_path / "data.jsonl"
    data.write_text("".join(f'{{"text": "sample {number}"}}\n' for number in range(40)))
    names = {"one": "lines-one", "other": "lines-other", "four": "lines-four", "two": ZONES, "four_zones": FOUR_ZONES}
    for bucket in ("one", "other", "four"):
        add_bucket(vms, names[bucket])
    names |= {"program": f"{PROGRAM}:make", "home": str(tmp_path / "by-hand"), "empty": str(tmp_path / "empty.txt")}
    (tmp_path / "empty.txt").touch()
    names |= {"data": str(data), "sizes": "--shard-samples 5 --claim-seconds 5"}
    before: dict[str, str] = {}
    for line, said, there in LINES:
        if line.startswith("!"):
            strike(vms, *line[1:].split(), grace=0)
            until(lambda: fleet.status()["needs recovery"], "a preemption", every=1.0)
            continue
        program, *argv = line.format(**names).split()
        assert said in (fleet.run(*argv[1:]) if program == "tpu" else fleet.work(*argv[2:])), line
        now = ids(vms)
        assert sorted(now) == sorted(map(full_name, there.split())), line
        anew = {full_name(mark) for mark in there.split() if mark[0].isupper()}
        changed = {name for name, id_ in now.items() if before.get(name, id_) != id_ or name not in before}
        assert not before or re.search("--create.tpus", line) or changed == anew, line
        before = now
    assert_nothing_is_left(vms)


def full_name(mark: str) -> str:
    """Return the name of a TPU VM in the table: a1, or A1 where it was recreated."""
    return mark if "-" in mark else f"tpu-us-central1-{mark[0].lower()}-{mark[1]}"


def assert_nothing_is_left(vms: TpuVms) -> None:
    assert ids(vms) == {}
    for zone in FOUR_ZONES.split(","):
        assert not vms.ask("GET", f"tpu/v2/projects/{PROJECT}/locations/{zone}/queuedResources").get("queuedResources")


@pytest.fixture
def short_zone(vms: TpuVms) -> Iterator[None]:
    """Exhaust the capacity of the first zone."""
    vms.ask("POST", "emulator/faults", {"kind": "stockout", "match": "^us-central1-a "})
    yield
    vms.ask("DELETE", "emulator/faults")


def fleet_file(folder: Path) -> str:
    (folder / "data.jsonl").write_text("".join(f'{{"text": "sample {number}"}}\n' for number in range(40)))
    shutil.copy(PROGRAM, folder)
    file = folder / "fleet.yaml"
    file.write_text(
        f"name: night\nzones: [{ZONES.replace(',', ', ')}]\nworkers_per_zone: 1\ngcs_bucket: busy-data\n"
        "dataset: [data.jsonl]\nprogram: fleet_program.py:make\nshard_samples: 5\nmove_after: 2s\nclaim: 5s\n"
    )
    return str(file)


@pytest.mark.usefixtures("short_zone")
def test_fleet_from_a_file_moves_from_a_zone_without_stock_and_works_through_a_busy_bucket(vms, tmp_path):
    fleet, file = Fleet(vms, tmp_path / "home"), fleet_file(tmp_path)
    add_bucket(vms, "busy-data")
    for code in (429, 503):  # a higher chance would sometimes exhaust the retries of a call
        vms.ask("POST", "emulator/faults", {"kind": "refuse", "match": "storage", "status": code, "chance": 0.1})
    said = fleet.run("deploy", file, "--create-tpus", "--monitor", "--monitor-interval", "1")
    assert "tpu-us-central1-b-for-us-central1-a-0 is requested instead" in said
    assert set(ids(vms)) == {"tpu-us-central1-b-0", "tpu-us-central1-b-for-us-central1-a-0"}
    struck = {one["status"]: one["struck"] for one in vms.send("GET", "emulator/faults")[1] if one["kind"] == "refuse"}
    assert struck[429] and struck[503], struck
    assert "complete: 40 samples in 8 shards" in fleet.run("verify", file)
    fleet.run("delete", file, "--yes")
    assert_nothing_is_left(vms)


@pytest.mark.usefixtures("short_zone")
def test_fleet_that_stays_in_a_zone_without_stock_says_why_and_delete_leaves_no_request(vms, tmp_path):
    fleet, file = Fleet(vms, tmp_path / "home"), fleet_file(tmp_path)
    why = "us-central1-a has no v3-8 available now"
    with fleet.started("create", file, "--stay") as create:

        def settled() -> bool:
            return why in json.dumps(fleet.status(file)) and "tpu-us-central1-b-0" in ids(vms)

        until(lambda: settled() or create.poll() is not None, why, every=2.0)
        create.send_signal(signal.SIGINT)
        wrong = create.communicate(timeout=PATIENCE)[1]
    assert (create.returncode, "the fleet keeps running" in wrong) == (130, True), wrong
    assert set(ids(vms)) == {"tpu-us-central1-b-0"}
    fleet.run("delete", file, "--yes")
    assert_nothing_is_left(vms)


def undisturbed(data: Path, folder: Path, gate: Path) -> dict[str, str]:
    """Return the checksums of one worker's results for the dataset on this machine."""
    streams.split([data], folder / "streams", 12)
    argv = [sys.executable, "-m", "tpukit.host.worker", "--data", str(folder / "streams"), "--shard-samples", "5"]
    argv += ["--output", str(folder / "calm"), "--program", f"{PROGRAM}:make", "--home", str(folder / "worker")]
    argv += ["--option", f"gate={gate}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    subprocess.run(argv, env=env, check=True, timeout=PATIENCE, capture_output=True)
    files = {f"activations/{file.relative_to(folder / 'calm')}": file for file in (folder / "calm").glob("*/shard_*")}
    return {
        name: base64.b64encode(hashlib.md5(file.read_bytes()).digest()).decode() for name, file in sorted(files.items())
    }
