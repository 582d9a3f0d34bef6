"""Workdirs with the output of another job: a program that resumes from its checkpoints would train nothing."""

from __future__ import annotations

from typing import Any

import pytest

from support.gke_driving import Driving
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, Invalid, NotFound
from tpukit.jobs import plan
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.places.workdirs import MARKER, Held, Storage, Workdirs

WORKDIR = "gs://my-bucket/runs/mine"
SPEC = {"name": "train", "tpu": "v4-16", "command": ["true"], "image": "image:1"}


class Bucket:
    """Objects of Cloud Storage, by address."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.denied = False

    def names(self, address: str, most: int) -> list[str]:
        self._answer()
        return [name.removeprefix(address) for name in sorted(self.objects) if name.startswith(address)][:most]

    def download(self, address: str) -> bytes:
        self._answer()
        if address not in self.objects:
            raise NotFound(address)
        return self.objects[address]

    def create(self, address: str, data: bytes) -> None:
        self._answer()
        self.objects.setdefault(address, data)

    def upload(self, address: str, data: bytes) -> None:
        self._answer()
        self.objects[address] = data

    def _answer(self) -> None:
        if self.denied:
            raise Denied("storage.objects.list")

    def put(self, name: str, workdir: str = WORKDIR) -> None:
        self.objects[f"{workdir}/{name}"] = b"data"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def workdirs(bucket: Bucket) -> Workdirs:
    return Workdirs(Storage(bucket.names, bucket.download, bucket.create, bucket.upload))


def made(*, resume: bool = False, workdir: str | None = WORKDIR, **fields: Any) -> Plan:
    spec = JobSpec.from_json({**SPEC, **({"workdir": workdir} if workdir else {}), **fields})
    settings = Settings.from_json({"artifacts": "gs://my-bucket"})
    return plan.with_fresh_id(plan.make(spec, settings, "gke", resume=resume), ())


def test_claim_an_empty_workdir_marks_it_with_the_id_and_again_is_fine(workdirs, bucket):
    job = made()
    workdirs.claim(job, job.workdir)
    Workdirs(workdirs.storage).claim(job, job.workdir)
    assert bucket.objects == {f"{WORKDIR}/{MARKER}": job.id.encode()}


def test_claim_a_workdir_with_another_jobs_output_is_refused_and_names_that_job_and_the_ways_out(workdirs, bucket):
    first, second = made(), made()
    workdirs.claim(first, first.workdir)
    bucket.put("checkpoints/100/state")
    with pytest.raises(Invalid) as refused:
        workdirs.claim(second, second.workdir)
    said = str(refused.value)
    assert f"{WORKDIR} holds the output of job {first.id}" in said
    for way in (f"`tpu job resume {first.id}`", "`--resume`", "`--set workdir="):
        assert way in said
    assert bucket.objects[f"{WORKDIR}/{MARKER}"] == first.id.encode()


def test_claim_with_resume_takes_another_jobs_workdir_over(workdirs, bucket):
    first, second = made(), made(resume=True)
    workdirs.claim(first, first.workdir)
    bucket.put("checkpoints/100/state")
    workdirs.claim(second, second.workdir)
    assert bucket.objects[f"{WORKDIR}/{MARKER}"] == second.id.encode()


def test_checkpoints_that_no_job_marked_are_another_runs_output(workdirs, bucket):
    bucket.put("checkpoints/100/state")
    job = made()
    assert workdirs.held(job, job.workdir) == Held(WORKDIR, "", output=True)
    assert "holds checkpoints of another run" in workdirs.held(job, job.workdir).problem.what


def test_files_that_are_no_checkpoints_and_that_no_job_marked_are_nobodys(workdirs, bucket):
    bucket.put("vocabulary.txt")
    bucket.put(".tpukit/code/abc.tar.gz")
    job = made()
    assert workdirs.held(job, job.workdir) is None


def test_two_jobs_that_claim_an_empty_workdir_at_once_one_is_refused(workdirs, bucket):
    first, second = made(), made()
    assert workdirs.held(first, WORKDIR) is workdirs.held(second, WORKDIR) is None
    workdirs.claim(first, first.workdir)
    with pytest.raises(Invalid):
        workdirs.claim(second, second.workdir)


def test_workdir_in_a_mounted_bucket_is_looked_at_in_the_bucket(workdirs, bucket):
    mounts = [{"bucket": "my-bucket", "path": "/data", "read_only": False}]
    first = made(workdir="/data/runs/mine", mounts=mounts)
    workdirs.claim(first, first.workdir)
    assert bucket.objects == {f"{WORKDIR}/{MARKER}": first.id.encode()}


def test_workdir_on_disks_of_other_machines_and_that_of_the_id_alone_are_not_looked_at(workdirs, bucket):
    bucket.denied = True
    for job in (made(workdir="/mnt/share/run"), made(workdir=None)):
        assert workdirs.held(job, job.workdir) is None
        workdirs.claim(job, job.workdir)


def test_claim_where_the_bucket_may_not_be_read_lets_the_job_run(workdirs, bucket):
    bucket.denied = True
    job = made()
    workdirs.claim(job, job.workdir)
    with pytest.raises(Denied):
        workdirs.held(job, job.workdir)


def test_folder_of_this_machine_is_marked_and_refused_like_a_bucket(workdirs, tmp_path):
    first, second = made(workdir=str(tmp_path)), made(workdir=str(tmp_path))
    workdirs.claim(first, str(tmp_path), this_machine=True)
    assert (tmp_path / MARKER).read_text() == first.id
    (tmp_path / "checkpoints" / "100").mkdir(parents=True)
    (tmp_path / "checkpoints" / "100" / "state").touch()
    workdirs.claim(first, str(tmp_path), this_machine=True)
    with pytest.raises(Invalid):
        workdirs.claim(second, str(tmp_path), this_machine=True)


def test_claim_that_was_denied_is_not_repeated_with_every_submission(workdirs, bucket):
    bucket.denied = True
    job = made()
    workdirs.claim(job, job.workdir)
    bucket.denied = False
    workdirs.claim(job, job.workdir)
    assert bucket.objects == {}


def test_gke_second_job_in_a_workdir_cannot_start_and_says_whose_it_is(workdirs, tmp_path):
    driving = Driving(tmp_path)
    try:
        driving.place._workdirs = workdirs
        first = driving.send(workdir=WORKDIR)
        driving.run(first)
        second = driving.send(workdir=WORKDIR)
        job = driving.until(second, State.FAILED)
        assert (job.reason, driving.cluster.jobset(second)) == (Reason.CANNOT_START, None)
        assert f"{WORKDIR} is the workdir of job {first}" in job.message
    finally:
        driving.close()


def test_tpu_vm_second_job_in_a_workdir_is_refused_before_anything_is_requested(workdirs, tmp_path):
    def nothing(project: str) -> Any:
        raise AssertionError("no request is made")

    first, second = made(), made()
    workdirs.claim(first, first.workdir)
    place = TpuVmPlace(tmp_path, ManualClock(), lambda: "store", cloud=nothing, workdirs=workdirs)
    with pytest.raises(Invalid, match=f"is the workdir of job {first.id}"):
        place.submit(Handle(second, Attempt(0, stage=0, origin=0)))


def test_rerun_in_a_workdir_that_was_taken_over_does_not_find_the_reruns_of_the_job_before():
    first, second, third = made(), made(resume=True), made(resume=True)
    folders = [one.workdir_of(1) for one in (first, second, third)]
    assert folders == [f"{WORKDIR}/rerun-1", f"{WORKDIR}/{second.id}-rerun-1", f"{WORKDIR}/{third.id}-rerun-1"]
    assert second.workdir_of(0) == WORKDIR


def test_plan_remembers_that_resume_was_asked_for():
    assert Plan.from_json(made(resume=True).to_json()).resume
    assert not Plan.from_json(made().to_json()).resume
