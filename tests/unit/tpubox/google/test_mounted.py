"""A bucket seen by callers of Cloud Storage and by pods that mount it: the same content for every writer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.google_world import PROJECT, World
from tpubox.google.wire.api import Request
from tpubox.google.wire.routing import answer as answer_of

NAMES = ("a", "b", "d/a", "d/b", "d/e/a", "d")


class Bucket:
    def __init__(self, folder: Path, **about: object) -> None:
        self.world = World(folder)
        self.folder = folder / "buckets" / "box"
        self.world.ask("POST", "storage/v1/b", {"name": "box", **about}, project=PROJECT)

    def write(self, name: str, content: bytes) -> None:
        self.world.ask("POST", "upload/storage/v1/b/box/o", content, uploadType="media", name=name)

    def delete(self, name: str) -> int:
        return self.world.send("DELETE", f"storage/v1/b/box/o/{quote(name, safe='')}")[0]

    def read(self, name: str, **query: str) -> bytes | None:
        path = f"storage/v1/b/box/o/{quote(name, safe='')}"
        answer = answer_of(self.world.cloud, Request("GET", path, {"alt": "media", **query}, {}))
        return answer.content if answer.status == 200 else None

    def listed(self, **query: str) -> list[str]:
        return [one["name"] for one in self.world.ask("GET", "storage/v1/b/box/o", **query)["items"]]

    def about(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.world.ask("GET", f"storage/v1/b/box/o/{quote(name, safe='')}")
        return found


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    made = Bucket(tmp_path)
    yield made
    made.world.cloud.close()


def test_object_that_a_caller_writes_is_a_file_of_the_mounted_bucket(bucket):
    bucket.write("runs/one/note", b"text")
    assert (bucket.folder / "runs" / "one" / "note").read_bytes() == b"text"
    bucket.delete("runs/one/note")
    assert list(bucket.folder.iterdir()) == []


def test_file_that_a_pod_writes_is_an_object_with_all_that_an_object_has(bucket):
    (bucket.folder / "runs").mkdir()
    (bucket.folder / "runs" / "note").write_bytes(b"text")
    about = bucket.about("runs/note")
    bucket.write("other", b"text")
    same = bucket.about("other")
    assert {key: about[key] for key in ("size", "md5Hash", "crc32c")} == {
        key: same[key] for key in ("size", "md5Hash", "crc32c")
    }
    assert sorted(set(same) - set(about)) == []
    assert bucket.read("runs/note") == b"text"
    assert bucket.listed(prefix="runs/") == ["runs/note"]


def test_file_that_a_pod_writes_to_again_is_a_new_generation_and_one_that_it_removes_is_gone(bucket):
    bucket.write("note", b"one")
    before = bucket.about("note")
    (bucket.folder / "note").write_bytes(b"two!")
    after = bucket.about("note")
    assert int(after["generation"]) > int(before["generation"])
    assert bucket.read("note") == b"two!"
    assert bucket.read("note", generation=before["generation"]) is None
    (bucket.folder / "note").unlink()
    assert bucket.read("note") is None
    assert bucket.listed() == []


def test_versions_that_callers_replaced_are_kept_beside_the_file(tmp_path):
    bucket = Bucket(tmp_path, versioning={"enabled": True})
    for content in (b"one", b"two"):
        bucket.write("note", content)
    older, newer = bucket.world.ask("GET", "storage/v1/b/box/o", versions="true")["items"]
    assert bucket.read("note", generation=older["generation"]) == b"one"
    assert bucket.read("note", generation=newer["generation"]) == b"two"
    assert (bucket.folder / "note").read_bytes() == b"two"
    bucket.world.cloud.close()


@pytest.mark.parametrize("name", ["a//b", "a/", "/a", "../a", "a/./b", "x" * 256])
def test_name_that_no_folder_can_hold_is_an_object_all_the_same(bucket, name):
    bucket.write(name, b"text")
    assert bucket.read(name) == b"text"
    assert bucket.listed() == [name]
    assert [path for path in bucket.folder.rglob("*") if path.is_file()] == []
    assert bucket.delete(name) == 204


def test_link_that_leads_out_of_the_bucket_is_followed_by_nobody(bucket, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (bucket.folder / "link").symlink_to(outside)
    (bucket.folder / "file").symlink_to(outside / "secret")
    assert bucket.listed() == []
    assert bucket.read("link/secret") is None
    assert bucket.read("file") is None
    bucket.write("link/new", b"text")
    assert [file.name for file in outside.iterdir()] == ["secret"]


def test_bucket_with_files_of_pods_is_not_empty_and_takes_its_folder_along_when_it_goes(bucket):
    (bucket.folder / "empty" / "folders").mkdir(parents=True)
    (bucket.folder / "note").touch()
    assert bucket.world.refusal("DELETE", "storage/v1/b/box")[0] == 409
    bucket.delete("note")
    bucket.world.ask("DELETE", "storage/v1/b/box")
    assert not bucket.folder.exists()


@given(
    st.lists(st.tuples(st.sampled_from(["api", "pod", "drop", "rm"]), st.sampled_from(NAMES), st.binary(max_size=3)))
)
def test_callers_and_pods_agree_whatever_both_did(acts):
    folder = Path(tempfile.mkdtemp())
    bucket = Bucket(folder)
    expected: dict[str, bytes] = {}
    try:
        for act, name, content in acts:
            file = bucket.folder / name
            blocked = file.is_dir() or any(parent.is_file() for parent in file.parents)
            if blocked:  # objects of both names can exist; files cannot
                continue
            if act == "api":
                bucket.write(name, content)
                expected[name] = content
            elif act == "pod":
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                expected[name] = content
            elif act == "drop":
                assert bucket.delete(name) == (204 if expected.pop(name, None) is not None else 404)
            else:
                file.unlink(missing_ok=True)
                expected.pop(name, None)
        found = {
            str(path.relative_to(bucket.folder)): path.read_bytes()
            for path in bucket.folder.rglob("*")
            if path.is_file()
        }
        assert found == expected
        assert sorted(bucket.listed()) == sorted(expected)
        assert {name: bucket.read(name) for name in expected} == expected
    finally:
        bucket.world.cloud.close()
        shutil.rmtree(folder)


_SPELLED = st.text("ab/-0\té", min_size=1, max_size=6)


@given(
    written=st.sets(_SPELLED, max_size=12),
    copied=st.sets(_SPELLED, max_size=6),
    prefix=st.sampled_from(["", "a", "a/", "ab"]),
    delimiter=st.sampled_from(["", "/", "-"]),
    size=st.integers(1, 4),
    versions=st.booleans(),
)
def test_pages_together_hold_what_one_large_page_would(written, copied, prefix, delimiter, size, versions):
    with tempfile.TemporaryDirectory() as folder:
        bucket = Bucket(Path(folder), versioning={"enabled": True})
        try:
            for name in sorted(written):
                bucket.write(name, b"old")
                bucket.write(name, b"new")
            for name in sorted(copied):
                file = bucket.folder / name
                if not {"", ".", ".."} & set(name.split("/")) and not file.is_dir() and _all_folders(file.parent):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(b"by a pod")
            query = {"prefix": prefix, "delimiter": delimiter, "versions": str(versions).lower()}
            whole = bucket.world.ask("GET", "storage/v1/b/box/o", **query)
            found, token = [], ""
            while token is not None:
                page = bucket.world.ask("GET", "storage/v1/b/box/o", **query, maxResults=str(size), pageToken=token)
                found += [*page["items"], *page.get("prefixes", [])]
                assert 1 <= len([*page["items"], *page.get("prefixes", [])]) <= size or not found
                token = page.get("nextPageToken")
            assert [one["id"] for one in found if isinstance(one, dict)] == [one["id"] for one in whole["items"]]
            assert [one for one in found if isinstance(one, str)] == whole.get("prefixes", [])
            everything = bucket.world.ask("GET", "storage/v1/b/box/o", versions=query["versions"])["items"]
            names = {one["name"] for one in everything if one["name"].startswith(prefix)}
            assert {name for name in names if not delimiter or delimiter not in name[len(prefix) :]} == {
                one["name"] for one in whole["items"]
            }
            assert written <= {one["name"] for one in everything}
        finally:
            bucket.world.cloud.close()


def _all_folders(path: Path) -> bool:
    return all(not part.exists() or part.is_dir() for part in (path, *path.parents))
