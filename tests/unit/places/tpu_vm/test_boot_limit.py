"""TPU VMs that end by themselves when no driver has come to start a program, or to start it again after a reboot."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.tpu_vm_world import NODES, PROJECT, V4_8, TpuVms
from support.waiting import until
from tpukit.host.supervision import host_hardware
from tpukit.places.tpu_vm import boot_limit

QUEUED = NODES.replace("/nodes", "/queuedResources")
LABELS = {"tpukit-job": "try-1", "tpukit-attempt": "0"}
POLICY = f"resource_manager/v1/projects/{PROJECT}"


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TpuVms]:
    monkeypatch.setattr(boot_limit, "LATER_SECONDS", 0)
    with TpuVms(tmp_path) as made:
        yield made


def account_of(google: TpuVms, name: str) -> str:
    with suppress(OSError):
        return google.metadata(name, "instance/service-accounts/default/email")
    return ""


def test_tpu_vm_whose_driver_ended_before_it_started_a_program_is_deleted(google):
    for name, job in (("left", "try-1"), ("other", "try-2")):
        metadata = boot_limit.metadata([f"{google.emulator.address}/{QUEUED}/{name}"], LABELS, 1)
        node = {**V4_8, "labels": {**LABELS, "tpukit-job": job}, "metadata": metadata}
        asked = {"tpu": {"nodeSpec": [{"nodeId": name, "node": node}]}}
        google.ask("POST", f"{QUEUED}?queuedResourceId={name}", asked)
    until(lambda: google.send("GET", f"{QUEUED}/other")[1]["state"]["state"] == "ACTIVE", "the TPU VMs")
    account = until(lambda: account_of(google, "other"), "its metadata server")
    policy = google.ask("POST", f"{POLICY}:getIamPolicy", {})
    grant = {"role": "roles/tpu.admin", "members": [f"serviceAccount:{account}"]}
    policy["bindings"] = [*policy.get("bindings", []), grant]
    google.ask("POST", f"{POLICY}:setIamPolicy", {"policy": policy})

    until(lambda: google.send("GET", f"{QUEUED}/left")[0] == 404, "the queued resource to be deleted")

    assert google.send("GET", f"{NODES}/left")[0] == 404
    assert google.send("GET", f"{QUEUED}/other")[1]["state"]["state"] == "ACTIVE", "its labels name another job"


class Boot:
    """A boot of a TPU VM, in simulated time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.now, self.away_until, self.deleted = 0.0, 0.0, list[float]()
        self.attributes: dict[str, str] = {}
        self.events: dict[float, Any] = {}
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setattr(os, "fork", lambda: 0)
        monkeypatch.setattr(os, "setsid", lambda: None)
        monkeypatch.setattr(host_hardware, "attribute", self.attribute)
        monkeypatch.setattr(host_hardware, "release", self.release)
        monkeypatch.setattr(host_hardware.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(host_hardware.time, "sleep", self.sleep)

    def attribute(self, name: str) -> str:
        return "" if self.now < self.away_until else self.attributes.get(name, "")

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self.events if at <= self.now]:
            self.events.pop(at)()

    def release(self, hardware: dict[str, Any]) -> bool:
        self.deleted.append(self.now)
        return len(self.deleted) > 1  # the first request fails

    def run(self, seconds: int) -> list[float]:
        limit = {"seconds": seconds, "hardware": [{"url": "https://tpu/vm", "labels": {}}]}
        self.attributes[host_hardware.LIMIT] = json.dumps(limit)
        host_hardware.main()
        return self.deleted


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Boot:
    (tmp_path / "ada" / ".tpukit").mkdir(parents=True)
    return Boot(monkeypatch, tmp_path / "root")


def test_limit_counts_from_the_boot_and_a_failed_deletion_is_repeated(boot):
    assert boot.run(3600) == [3600, 3660]


def test_limit_counts_from_the_last_request_to_the_supervisor(boot, tmp_path):
    asked = tmp_path / "ada" / ".tpukit" / host_hardware.ASKED
    boot.events = {1800.0: asked.touch, 3000.0: lambda: os.utime(asked, (1e10, 1e10)), 5000.0: asked.unlink}
    assert boot.run(3600)[0] == 6600


def test_limit_counts_from_the_last_mark_of_a_driver_and_not_from_a_failed_read(boot):
    marks = [lambda text=text: boot.attributes.update({host_hardware.RENEWED: text}) for text in ("1", "2", "", "2")]
    boot.events = dict(zip((600.0, 1200.0, 1800.0, 2400.0), marks, strict=True))
    assert boot.run(3600)[0] == 4800


def test_tpu_vm_without_a_limit_has_no_start_up_script():
    assert boot_limit.LIMIT == host_hardware.LIMIT
    assert boot_limit.metadata(["https://tpu/vm"], LABELS, 0) == {}


def test_limit_that_cannot_be_read_at_the_boot_is_read_once_the_metadata_server_responds(boot):
    boot.away_until = 300.0
    assert boot.run(3600)[0] == 3900
