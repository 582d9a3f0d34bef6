"""Code on its way to a cluster: packed reproducibly, shared by its hash, and removed when unused."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import tarfile
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core.errors import Invalid
from tpukit.jobs import snapshots as stage
from tpukit.places.gke import code

DAY = 86400.0
NOW = 1_800_000_000.0
digests = st.sampled_from(["a" * 64, "b" * 64, "c" * 64, "d" * 64])


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sent(digest="a" * 64, parts=3, content=b"x", created=NOW):
    made = code.config_maps("research", digest, [content] * parts)
    for one in made:
        one["metadata"]["creationTimestamp"] = at(created)
    return made


def unpacked(parts):
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as tar:
        return [(entry.name, entry.linkname, oct(entry.mode), entry.mtime, entry.uid, entry.uname) for entry in tar]


def test_pack_same_content_makes_the_same_bytes_and_links_stay_links(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder, mode in ((first, 0o600), (second, 0o664)):
        (folder / "lib").mkdir(parents=True, mode=0o700 if folder is first else 0o775)
        (folder / "lib" / "x.py").write_text("x")
        (folder / "lib" / "x.py").chmod(mode)
        (folder / "run").touch()
        (folder / "run").chmod(mode | 0o100)
        (folder / "main.py").symlink_to("lib/x.py")
    os.utime(first / "lib" / "x.py", (1, 1))
    assert code.pack(first) == code.pack(second)
    assert unpacked(code.pack(first)) == [
        ("lib", "", "0o755", 0, 0, ""),
        ("lib/x.py", "", "0o644", 0, 0, ""),
        ("main.py", "lib/x.py", "0o777", 0, 0, ""),
        ("run", "", "0o755", 0, 0, ""),
    ]


def test_pack_of_a_folder_that_a_person_made_open_is_that_of_its_snapshot(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a").touch(0o777)
    made = stage.snapshot(tmp_path / "code", tmp_path / "shelf")
    assert code.pack(tmp_path / "code") == code.pack(tmp_path / "shelf" / made.digest)


def test_pack_names_that_are_long_or_no_ascii_are_read_by_any_tar(tmp_path):
    names = ["ü☃", "x" * 120, f"{'d' * 90}/{'e' * 90}", os.fsdecode(b"\xff")]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    packed = io.BytesIO(b"".join(code.pack(tmp_path)))
    with tarfile.open(fileobj=packed) as tar:
        assert {os.fsdecode(entry.name.encode("utf-8", "surrogateescape")) for entry in tar} >= set(names)
        assert not any(entry.pax_headers for entry in tar)


def test_pack_large_code_is_cut_and_too_large_code_is_refused_before_it_is_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(code, "PART_BYTES", 1000)
    (tmp_path / "data").write_bytes(random.Random(1).randbytes(5000))
    parts = code.pack(tmp_path)
    assert len(parts) == 6
    assert all(len(part) <= 1000 for part in parts)
    assert code.packed_bytes(tmp_path, ["data"]) == sum(map(len, parts))
    assert code.check(tmp_path).names == ("data",)
    (tmp_path / "data").write_bytes(random.Random(1).randbytes(1000 * code.MOST_PARTS))
    for refused in (code.pack, code.check):
        with pytest.raises(Invalid, match=r"more than the limit of .* MiB for a cluster") as error:
            refused(tmp_path)
        assert error.value.exit_code == 2


def test_check_says_what_staging_would_say(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="pipe is a pipe"):
        code.check(tmp_path)


def test_config_maps_are_named_by_the_code_and_sort_in_the_order_of_the_parts():
    made = code.config_maps("research", "0123456789abcdef" * 4, [b"x"] * 11)
    assert [one["metadata"]["name"] for one in made] == code.names("0123456789abcdef" * 4, 11)
    assert made[0]["metadata"]["name"] == "code-0123456789abcdef0123-0"
    keys = [key for one in made for key in one["binaryData"]]
    assert keys == sorted(keys)
    for one in made:
        assert one["immutable"] is True
        assert "ownerReferences" not in one["metadata"]
        assert one["metadata"]["namespace"] == "research"
        assert (
            code.selector("0123456789abcdef" * 4) == f"tpukit.dev/code={one['metadata']['labels']['tpukit.dev/code']}"
        )
        assert all(len(value) <= 63 for value in one["metadata"]["labels"].values())
    assert base64.b64decode(made[3]["binaryData"]["code.03"]) == b"x"
    assert json.dumps(made)


@given(st.integers(1, code.MOST_PARTS), st.sets(st.integers(0, code.MOST_PARTS - 1)), st.randoms())
def test_complete_is_the_count_exactly_when_every_part_is_there(count, gone, dice):
    maps = [one for number, one in enumerate(sent(parts=count)) if number not in gone] + sent("b" * 64)
    dice.shuffle(maps)
    expected = None if any(number < count for number in gone) else count
    assert code.complete(maps, "a" * 64) == expected


def test_complete_parts_of_two_archives_do_not_fit_and_those_in_the_way_are_named():
    ours, theirs = sent(content=b"x"), sent(content=b"y")
    mixed = [ours[0], theirs[1], ours[2]]
    assert code.complete(mixed, "a" * 64) is None
    assert code.in_the_way(mixed, ours) == {theirs[1]["metadata"]["name"]: ""}
    assert code.in_the_way(ours, ours) == {}


def test_complete_another_code_with_the_same_beginning_is_not_ours():
    assert code.complete(sent("a" * 64), "a" * 40 + "b" * 24) is None


@pytest.mark.parametrize("count", ["", "x", "0", "-1", "13", "²"])
def test_complete_count_that_is_none_is_not_believed(count):
    maps = sent(parts=1)
    maps[0]["metadata"]["annotations"][code.PARTS] = count
    assert code.complete(maps, "a" * 64) is None


@given(
    st.dictionaries(digests, st.floats(0, 60)),
    st.sets(digests),
    st.sets(digests),
    st.dictionaries(digests, st.floats(0, 60)),
    st.integers(1, 40),
)
def test_unused_is_old_and_neither_in_a_jobset_nor_needed(ages, in_jobsets, needed, used, limit):
    maps = []
    for digest, age in ages.items():
        parts = sent(digest, created=NOW - age * DAY)
        if digest in used:
            parts[0]["metadata"]["annotations"] |= code.mark_used(NOW - used[digest] * DAY)["metadata"]["annotations"]
        maps += parts
    maps.append({"metadata": {"name": "of-the-team", "creationTimestamp": at(0)}})
    jobsets = [{"metadata": {"name": "j", "annotations": {"tpukit.dev/code": digest}}} for digest in in_jobsets]
    removed = set(code.unused(maps, jobsets, NOW, limit * DAY, needed))
    for digest, age in ages.items():
        youngest = min(age, used.get(digest, 100.0))
        mine = set(code.names(digest, 3))
        if digest in in_jobsets or digest in needed or youngest < limit - 0.01:
            assert not mine & removed
        elif youngest > limit + 0.01:
            assert mine <= removed
    assert "of-the-team" not in removed


def test_unused_without_a_time_is_left_alone():
    maps = sent()
    for one in maps:
        one["metadata"]["creationTimestamp"] = None
    assert code.unused(maps, [], NOW, 1.0) == []
