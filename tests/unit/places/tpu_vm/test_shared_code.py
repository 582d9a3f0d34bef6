"""The code of jobs on TPU VMs, on its way to drivers of other machines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tpukit.core.errors import Denied, NotFound, Transient
from tpukit.jobs import snapshots as stage
from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import JobSpec
from tpukit.places.tpu_vm.shared_code import Code, address_of
from unit.places.tpu_vm.test_machines import PLAN


@dataclass
class Bucket:
    objects: dict[str, bytes] = field(default_factory=dict)
    closed: bool = False

    def create(self, address: str, data: bytes, content_type: str = "") -> None:
        if self.closed:
            raise Denied("no right to write")
        self.objects.setdefault(address, data)

    def download(self, address: str) -> bytes:
        if address not in self.objects:
            raise NotFound(f"{address} is not there")
        return self.objects[address]

    def code(self, shelf: Path) -> Code:
        return Code(shelf, self.create, self.download)


@pytest.fixture
def sent(tmp_path: Path) -> Plan:
    """Return a plan whose code is on the shelf of one machine."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (folder / "setup.sh").write_text("#!/bin/sh\n")
    (folder / "setup.sh").chmod(0o755)
    made = stage.snapshot(folder, tmp_path / "here" / "code")
    return with_workdir(replace(PLAN, snapshot=made), "gs://runs/train")


def with_workdir(plan: Plan, workdir: str) -> Plan:
    words = {name: value for name, value in plan.spec.to_json().items() if name != "workdir"}
    return replace(plan, spec=JobSpec.from_json({**words, **({"workdir": workdir} if workdir else {})}))


def test_driver_that_has_not_staged_the_code_fetches_it_from_the_job_s_bucket(sent, tmp_path):
    bucket = Bucket()
    bucket.code(tmp_path / "here" / "code").share(sent)
    found = bucket.code(tmp_path / "there" / "code").require(sent)
    assert (found / "train.py").read_text() == "print(1)\n"
    assert (found / "setup.sh").stat().st_mode & 0o111
    assert list(bucket.objects) == [address_of(sent)]


@pytest.mark.parametrize("workdir", ["", "gs://runs/train"])
def test_driver_that_cannot_fetch_the_code_waits_for_one_that_has_it(sent, tmp_path, workdir):
    with pytest.raises(Transient, match="waiting for a driver that has it"):
        Bucket().code(tmp_path / "there" / "code").require(with_workdir(sent, workdir))


def test_archive_that_is_not_the_code_is_refused_and_never_shelved(sent, tmp_path):
    bucket = Bucket()
    bucket.code(tmp_path / "here" / "code").share(sent)
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("print(2)\n")
    foreign = replace(sent, snapshot=stage.snapshot(other, tmp_path / "here" / "code"))
    bucket.code(tmp_path / "here" / "code").share(foreign)
    bucket.objects[address_of(sent)] = bucket.objects[address_of(foreign)]
    with pytest.raises(Transient, match="does not match the digest"):
        bucket.code(tmp_path / "there" / "code").require(sent)
    assert not (tmp_path / "there" / "code" / sent.snapshot.digest).exists()


def test_bucket_that_a_driver_may_not_write_to_keeps_no_job_from_its_start(sent, tmp_path):
    code = Bucket(closed=True).code(tmp_path / "here" / "code")
    code.share(sent)
    assert (code.require(sent) / "train.py").exists()
