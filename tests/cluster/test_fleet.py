"""A fleet in the sandbox: 8 TPU VMs over 2 zones with real processes that are preempted and crash, under a monitor
that is stopped and started elsewhere, give the very bytes of an undisturbed run. Only the emulator runs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        argv = [sys.executable, "-m", "tpukit", "fleet", *words]
        with subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *words: str) -> str:
        with self.started(*words) as process:
            said, wrong = process.communicate(timeout=200)
        assert process.returncode == 0, (words, said, wrong)
        return said

    def shards(self) -> dict[str, str]:
        """Checksums of the shards that are there, by name."""
        listed = self.vms.ask("GET", f"storage/v1/b/{BUCKET}/o?prefix=activations/stream_")
        names = {one["name"]: one["md5Hash"] for one in listed.get("items", [])}
        return {name: sum_ for name, sum_ in names.items() if "/shard_" in name}


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        made.ask("POST", f"storage/v1/b?project={PROJECT}", {"name": BUCKET})
        account = f"serviceAccount:{number_of(PROJECT)}-compute@developer.gserviceaccount.com"
        binding = {"role": "roles/storage.objectAdmin", "members": [account]}
        made.ask("PUT", f"storage/v1/b/{BUCKET}/iam", {"bindings": [binding]})
        yield made


def ids(vms: TpuVms) -> dict[str, str]:
    """Of all TPU VMs, by name: one that was made anew has another."""
    listed = [vms.ask("GET", f"tpu/v2/projects/{PROJECT}/locations/{zone}/nodes") for zone in ZONES.split(",")]
    return {one["name"].rpartition("/")[2]: one["id"] for each in listed for one in each.get("nodes", [])}


def strike(vms: TpuVms, action: str, node: str, **words: Any) -> None:
    vms.ask("POST", "emulator/tpu-vms", {"action": action, "node": node, **words})


@pytest.fixture
def gate() -> Iterator[Path]:
    """Nobody comes beyond the middle of a stream before it is there. Hosts have a /tmp of their own."""
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
        until(lambda: len(fleet.shards()) >= 16 or deploy.poll() is not None, "shards", seconds=200)
        assert deploy.poll() is None, deploy.communicate()
        before = ids(vms)
        assert len(before) == 8
        deploy.send_signal(signal.SIGINT)
        said = deploy.communicate(timeout=60)
        assert (deploy.returncode, "the fleet goes on without us" in said[1]) == (130, True), said
    strike(vms, "preempt", "tpu-us-central1-a-0", grace=0)
    strike(vms, "preempt", "tpu-us-central1-b-3", grace=1)
    strike(vms, "crash", "tpu-us-central1-a-1")
    with elsewhere.started("monitor", "--gcs-bucket", BUCKET, "--monitor-interval", "1") as monitor:
        lost = ("tpu-us-central1-a-0", "tpu-us-central1-b-3")
        anew = lambda: all(ids(vms).get(name, before[name]) != before[name] for name in lost)  # noqa: E731
        until(lambda: anew() or monitor.poll() is not None, "lost TPU VMs to come again", seconds=200)
        gate.touch()
        said = monitor.communicate(timeout=200)
        assert monitor.returncode == 0, said
    assert set(ids(vms)) == set(before)
    assert "all is there: 240 samples in 48 shards" in fleet.run("verify", "--gcs-bucket", BUCKET)
    status = json.loads(elsewhere.run("status", "--json"))
    assert (status["samples"], status["objects"], len(status["workers"])) == (240, 48, 8)
    assert fleet.shards() == undisturbed(data, tmp_path, gate)
    fleet.run("delete")
    assert ids(vms) == {}


def undisturbed(data: Path, folder: Path, gate: Path) -> dict[str, str]:
    """Checksums of what one worker makes of the dataset on this machine."""
    streams.split([data], folder / "streams", 12)
    argv = [sys.executable, "-m", "tpukit.host.worker", "--data", str(folder / "streams"), "--shard-samples", "5"]
    argv += ["--output", str(folder / "calm"), "--program", f"{PROGRAM}:make", "--home", str(folder / "worker")]
    argv += ["--option", f"gate={gate}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    subprocess.run(argv, env=env, check=True, timeout=120, capture_output=True)
    files = {f"activations/{file.relative_to(folder / 'calm')}": file for file in (folder / "calm").glob("*/shard_*")}
    return {
        name: base64.b64encode(hashlib.md5(file.read_bytes()).digest()).decode() for name, file in sorted(files.items())
    }
