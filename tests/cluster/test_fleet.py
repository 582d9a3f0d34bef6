"""A fleet in the sandbox: 8 TPU VMs over 2 zones with real processes that are preempted, frozen and lost give the very
bytes of an undisturbed run. Only the emulator runs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpukit.fleet import streams
from tpukit.sandbox.google.emulator_settings import number_of
from unit.tpu_vm_world import PROJECT, TpuVms
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
ZONES = "us-central1-a,us-central1-b"
BUCKET = "fleet-data"
PROGRAM = ROOT / "tests" / "fixtures" / "fleet_program.py"
SAMPLES = 240


class Fleet:
    """The command, as a person types it on a machine of their own."""

    def __init__(self, vms: TpuVms, home: Path) -> None:
        self.vms, self.home = vms, home
        home.mkdir()
        (home / "settings.yaml").write_text(f"project: {PROJECT}\nzone: us-central1-a\nssh_user: ada\n")
        own = {"TPUKIT_HOME": str(home), "TPUKIT_SETTINGS": str(home / "settings.yaml")}
        google = {**vms.emulator.environment(), "STORAGE_EMULATOR_HOST": vms.emulator.address}
        self.env = {**os.environ, **google, **own, "PYTHONPATH": str(ROOT / "tools")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "tpukit", "fleet", *words]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str) -> str:
        process = self.start(*words)
        try:
            said, wrong = process.communicate(timeout=300)
        finally:
            process.kill()
        assert process.returncode == 0, (words, said, wrong)
        return said

    def shards(self) -> dict[str, str]:
        """Checksums of the shards that are there, by name."""
        found = self.vms.ask("GET", f"storage/v1/b/{BUCKET}/o?prefix=activations/stream_")
        names = {one["name"]: one["md5Hash"] for one in found.get("items", [])}
        return {name: sum_ for name, sum_ in names.items() if "/shard_" in name}


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        made.ask("POST", f"storage/v1/b?project={PROJECT}", {"name": BUCKET})
        account = f"serviceAccount:{number_of(PROJECT)}-compute@developer.gserviceaccount.com"
        binding = {"role": "roles/storage.objectAdmin", "members": [account]}
        made.ask("PUT", f"storage/v1/b/{BUCKET}/iam", {"bindings": [binding]})
        yield made


def nodes(vms: TpuVms, zone: str) -> dict[str, Any]:
    found = vms.ask("GET", f"tpu/v2/projects/{PROJECT}/locations/{zone}/nodes")
    return {one["name"].rpartition("/")[2]: one for one in found.get("nodes", [])}


def strike(vms: TpuVms, action: str, node: str, **words: Any) -> None:
    vms.ask("POST", "emulator/tpu-vms", {"action": action, "node": node, **words})


def test_fleet_under_losses_gives_the_bytes_of_an_undisturbed_run(vms, tmp_path):
    fleet = Fleet(vms, tmp_path / "home")
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f'{{"text": "sample {number}"}}\n' for number in range(SAMPLES)))
    words = ("--zones", ZONES, "--gcs-bucket", BUCKET, "--program", f"{PROGRAM}:make", "--shard-samples", "4")
    words += ("--option", "pause=0.25", "--claim-seconds", "3", "--monitor-interval", "1")
    dataset = ("--dataset", str(data), "--streams", "12")
    deploy = fleet.start(
        "deploy", *words, "--workers-per-zone", "4", "--tpu-type", "v3-8", *dataset, "--create-tpus", "--monitor"
    )
    try:
        until(lambda: len(fleet.shards()) >= 4 or deploy.poll() is not None, "shards", seconds=200)
        assert deploy.poll() is None, deploy.communicate()
        before = {name: one["id"] for zone in ZONES.split(",") for name, one in nodes(vms, zone).items()}
        assert len(before) == 8
        strike(vms, "preempt", "tpu-us-central1-a-0", grace=0)
        strike(vms, "preempt", "tpu-us-central1-b-3", grace=1)
        strike(vms, "crash", "tpu-us-central1-a-1")
        said, wrong = deploy.communicate(timeout=200)
    finally:
        deploy.kill()
    assert deploy.returncode == 0, (said, wrong)
    after = {name: one["id"] for zone in ZONES.split(",") for name, one in nodes(vms, zone).items()}
    assert set(after) == set(before)
    assert "all is there: 240 samples in 60 shards" in fleet.run("verify", "--gcs-bucket", BUCKET)
    status = json.loads(fleet.run("status", "--json"))
    assert (status["samples"], status["objects"], len(status["workers"])) == (240, 60, 8)
    assert fleet.shards() == undisturbed(data, tmp_path)
    fleet.run("delete")
    assert [nodes(vms, zone) for zone in ZONES.split(",")] == [{}, {}]


def undisturbed(data: Path, folder: Path) -> dict[str, str]:
    """Checksums of what one worker makes of the dataset on this machine."""
    streams.split([data], folder / "streams", 12)
    argv = [sys.executable, "-m", "tpukit.host.worker", "--data", str(folder / "streams"), "--shard-samples", "4"]
    argv += ["--output", str(folder / "calm"), "--program", f"{PROGRAM}:make", "--home", str(folder / "worker")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    subprocess.run(argv, env=env, check=True, timeout=120, capture_output=True)
    files = {f"activations/{file.relative_to(folder / 'calm')}": file for file in (folder / "calm").glob("*/shard_*")}
    return {
        name: base64.b64encode(hashlib.md5(file.read_bytes()).digest()).decode() for name, file in sorted(files.items())
    }
