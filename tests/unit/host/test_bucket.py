"""Files that workers share, in a folder and in a bucket: one suite for both, and transient errors of a bucket."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tpu_vm_world import PROJECT, TpuVms
from tpukit.host import bucket
from tpukit.host.stream_claims import Claims

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        yield made


@pytest.fixture
def remote(google: TpuVms, monkeypatch: pytest.MonkeyPatch) -> bucket.Files:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.emulator.address)
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    monkeypatch.setattr(bucket, "LONGEST_WAIT", 0.0)
    name = f"files-{next(NUMBERS)}"
    google.ask("POST", f"storage/v1/b?project={PROJECT}", {"name": name})
    return bucket.opened(f"gs://{name}/some/prefix")


@pytest.fixture(params=["folder", "bucket"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> bucket.Files:
    if request.param == "folder":
        return bucket.opened(str(tmp_path / "files"))
    files: bucket.Files = request.getfixturevalue("remote")
    return files


def test_files_are_created_once_replaced_by_who_read_them_last_listed_and_deleted(files, tmp_path):
    assert files.read("a/x") is None
    assert files.create("a/x", b"first")
    assert not files.create("a/x", b"second")
    content, mark = files.read("a/x")
    assert content == b"first"
    assert files.replace("a/x", b"third", mark)
    assert files.replace("a/x", b"fourth", mark) is None
    assert files.replace("b/y", b"", "") is not None
    assert files.replace("b/y", b"more", "") is None
    assert files.list("a/") == {"a/x": 5}
    assert set(files.list("")) == {"a/x", "b/y"}
    assert files.fetch("a/x", tmp_path / "copy") == hashlib.sha256(b"third").hexdigest()
    assert (tmp_path / "copy").read_bytes() == b"third"
    files.delete("a/x")
    files.delete("a/x")
    assert files.read("a/x") is None


def test_claim_is_of_one_worker_until_it_lapses_or_is_released(files):
    now = 0.0
    one, two = (Claims(files, name, seconds=60, clock=lambda: now) for name in ("one", "two"))
    assert one.take("stream")
    assert not two.take("stream")
    now = 50.0
    assert one.renew()
    assert not two.take("stream")
    now = 100.0
    assert not two.take("stream")
    now = 111.0
    assert two.take("stream")
    assert not one.renew()
    two.release()
    assert one.take("stream")


def test_claim_of_an_earlier_process_of_the_same_worker_is_taken_over_at_once(files):
    assert Claims(files, "one").take("stream")
    assert Claims(files, "one").take("stream")


@pytest.mark.parametrize("status", [429, 503])
def test_bucket_that_is_busy_is_asked_again(google, remote, tmp_path, status):
    fault = {"kind": "refuse", "match": "storage", "status": status, "times": 3}
    google.ask("POST", "emulator/faults", fault)
    assert remote.create("x", b"content")
    google.ask("POST", "emulator/faults", fault)
    assert remote.read("x")[0] == b"content"
    google.ask("POST", "emulator/faults", fault)
    assert remote.fetch("x", tmp_path / "copy") == hashlib.sha256(b"content").hexdigest()


def test_file_whose_upload_was_done_but_not_answered_counts_as_created(google, remote):
    google.ask("POST", "emulator/faults", {"kind": "lost", "match": "upload", "times": 1})
    assert remote.create("x", b"content")
    assert not remote.create("x", b"other content")


def test_bucket_that_does_not_exist_or_stays_away_is_named(google, remote):
    with pytest.raises(FileNotFoundError, match="gs://no-such-bucket/: 404"):
        bucket.opened("gs://no-such-bucket").create("x", b"")
    google.ask("POST", "emulator/faults", {"kind": "refuse", "match": "storage", "times": bucket.TRIES})
    with pytest.raises(bucket.Away, match="did not respond in 10 tries: 503"):
        remote.read("x")


def test_files_of_a_bucket_are_asked_for_with_the_token_of_the_machine(google, remote, monkeypatch):
    google.make("t0")
    network = google.emulator.hypervisor.network
    monkeypatch.setenv("GCE_METADATA_HOST", f"{google.address('t0')}:{network.metadata_port}")
    name = remote._bucket  # type: ignore[attr-defined]
    machine = bucket.opened(f"gs://{name}")
    with pytest.raises(PermissionError, match=r"403 .*-compute@developer"):
        machine.create("x", b"content")
    account = google.metadata("t0", "instance/service-accounts/default/email")
    binding = {"role": "roles/storage.objectAdmin", "members": [f"serviceAccount:{account}"]}
    google.ask("PUT", f"storage/v1/b/{name}/iam", {"bindings": [binding]})
    assert machine.create("x", b"content")
