"""Snapshots of the user's code: their content, their names, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tpukit
from support.waiting import PATIENCE
from tpukit.core.errors import Invalid, NotFound
from tpukit.jobs import snapshots as stage
from tpukit.jobs.snapshots import code_files

GIT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    write(folder, {"train.py": "print(1)", "lib/a.py": "a"})
    return folder


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "shelf"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True, env=GIT)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return git(folder, "rev-parse", "HEAD")


def staged(shelf: Path, digest: str) -> dict[str, str]:
    root = shelf / digest
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if not path.is_dir()}


def test_snapshot_holds_the_files(code, shelf):
    made = stage.snapshot(code, shelf)
    assert staged(shelf, made.digest) == {"train.py": "print(1)", "lib/a.py": "a"}
    assert (made.commit, made.dirty) == ("", False)


def test_snapshot_of_a_missing_folder_is_not_found(tmp_path, shelf):
    with pytest.raises(NotFound, match="nowhere") as error:
        stage.snapshot(tmp_path / "nowhere", shelf)
    assert error.value.hint


def test_snapshot_twice_is_stored_once(code, shelf):
    first = stage.snapshot(code, shelf)
    inode = (shelf / first.digest).stat().st_ino
    assert stage.snapshot(code, shelf) == first
    assert (shelf / first.digest).stat().st_ino == inode
    assert list(shelf.iterdir()) == [shelf / first.digest]


def test_digest_is_of_content_and_not_of_time_place_or_order(code, shelf, tmp_path):
    copy = tmp_path / "elsewhere"
    write(copy, {"lib/a.py": "a", "train.py": "print(1)"})
    os.utime(copy / "train.py", (0, 0))
    assert stage.snapshot(code, shelf).digest == stage.snapshot(copy, shelf).digest


@pytest.mark.parametrize(
    "change",
    [
        lambda code: (code / "train.py").write_text("print(2)"),
        lambda code: (code / "train.py").rename(code / "main.py"),
        lambda code: (code / "train.py").chmod(0o755),
        lambda code: (code / "new").touch(),
        lambda code: (code / "train.py").unlink(),
        lambda code: (code / "link").symlink_to("train.py"),
    ],
    ids=["content", "name", "executable", "added", "removed", "link"],
)
def test_digest_changes_with_what_matters(code, shelf, change):
    before = stage.snapshot(code, shelf).digest
    change(code)
    assert stage.snapshot(code, shelf).digest != before


def test_digest_files_that_run_into_each_other_differ(tmp_path, shelf):
    write(tmp_path / "one", {"a": "bc", "d": ""})
    write(tmp_path / "two", {"a": "b", "cd": ""})
    assert stage.snapshot(tmp_path / "one", shelf).digest != stage.snapshot(tmp_path / "two", shelf).digest


def test_snapshot_keeps_the_executable_bit_and_relative_links(code, shelf, tmp_path):
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    (code / "lib" / "up").symlink_to("../train.py")
    (code / "folder").symlink_to("lib")
    made = stage.snapshot(code, shelf)
    stage.unpack(shelf, made.digest, tmp_path / "run" / "code")
    for root in (shelf / made.digest, tmp_path / "run" / "code"):
        assert os.access(root / "run.sh", os.X_OK)
        assert not os.access(root / "train.py", os.X_OK) or not (root / "train.py").stat().st_mode & 0o111
        assert (root / "lib" / "up").readlink() == Path("../train.py")
        assert (root / "folder").is_symlink()


@pytest.mark.parametrize("target", ["../../secret", "/etc/passwd", "lib/../../secret"])
@pytest.mark.parametrize("in_git", [True, False])
def test_snapshot_link_that_leads_out_is_refused(code, shelf, target, in_git):
    (code / "out").symlink_to(target)
    if in_git:
        commit(code)
    with pytest.raises(Invalid, match="out is a link to a file outside") as error:
        stage.snapshot(code, shelf)
    assert error.value.problems[0].hint
    assert not shelf.exists()


def test_snapshot_absolute_link_into_the_folder_is_refused_as_it_would_not_be_frozen(code, shelf):
    (code / "again").symlink_to(code / "train.py")
    with pytest.raises(Invalid, match="again is a link"):
        stage.snapshot(code, shelf)


def test_snapshot_link_to_itself_does_not_hang(code, shelf):
    (code / "loop").symlink_to("loop")
    made = stage.snapshot(code, shelf)
    assert (shelf / made.digest / "loop").is_symlink()


def test_snapshot_too_large_names_the_largest_files(code, shelf, monkeypatch):
    monkeypatch.setattr(stage, "MOST_BYTES", 3 << 20)
    (code / "small.bin").write_bytes(b"x" * (1 << 20))
    (code / "large.bin").write_bytes(b"x" * (5 << 20))
    with pytest.raises(Invalid, match="holds 6 MiB, more than the limit of 3 MiB") as error:
        stage.snapshot(code, shelf)
    assert "the largest files are large.bin, small.bin" in error.value.problems[0].hint
    assert not shelf.exists()
    (code / ".gitignore").write_text("large.bin\n")
    stage.snapshot(code, shelf)


def test_snapshot_of_an_empty_folder_is_empty(tmp_path, shelf):
    (tmp_path / "empty").mkdir()
    made = stage.snapshot(tmp_path / "empty", shelf)
    assert staged(shelf, made.digest) == {}


def test_snapshot_in_git_knows_the_commit(code, shelf):
    head = commit(code)
    clean = stage.snapshot(code, shelf)
    assert (clean.commit, clean.dirty) == (head, False)
    (code / "train.py").write_text("print(2)")
    dirty = stage.snapshot(code, shelf)
    assert (dirty.commit, dirty.dirty) == (head, True)
    assert dirty.digest != clean.digest
    assert str(dirty) == f"{dirty.digest[:12]} (commit {head[:10]} with uncommitted changes)"


def test_snapshot_in_git_takes_new_files_and_not_deleted_or_ignored_ones(code, shelf):
    write(code, {".gitignore": "*.log\n/data/\n", "old.py": "", "x.log": "", "data/big": ""})
    commit(code)
    (code / "old.py").unlink()
    (code / "new.py").touch()
    made = stage.snapshot(code, shelf)
    assert set(staged(shelf, made.digest)) == {".gitignore", "lib/a.py", "new.py", "train.py"}


def test_snapshot_in_git_of_a_subfolder_is_that_folder_alone(code, shelf):
    head = commit(code)
    (code / "train.py").write_text("changed elsewhere")
    made = stage.snapshot(code / "lib", shelf)
    assert staged(shelf, made.digest) == {"a.py": "a"}
    assert (made.commit, made.dirty) == (head, False)


def test_snapshot_in_git_before_the_first_commit(code, shelf):
    git(code, "init", "-q")
    made = stage.snapshot(code, shelf)
    assert (made.commit, set(staged(shelf, made.digest))) == ("", {"lib/a.py", "train.py"})


def test_snapshot_in_git_of_a_folder_that_git_ignores_is_taken_all_the_same(code, shelf):
    """The folder was requested by name; only its own .gitignore files exclude anything."""
    write(code, {".gitignore": "built/\n", "built/out.py": "x", "built/.gitignore": "*.log", "built/y.log": ""})
    commit(code)
    made = stage.snapshot(code / "built", shelf)
    assert set(staged(shelf, made.digest)) == {".gitignore", "out.py"}


def test_snapshot_in_git_holds_checkouts_inside_the_checkout(code, shelf):
    write(code, {"vendor/dep/x.py": "x", "vendor/dep/.gitignore": "*.o", "vendor/dep/x.o": ""})
    commit(code / "vendor" / "dep")
    commit(code)  # git stores the inner repository as a link to its commit
    write(code, {"other/y.py": "y"})
    commit(code / "other")  # git does not know this one
    made = stage.snapshot(code, shelf)
    assert {name for name in staged(shelf, made.digest) if not name.startswith("lib")} == {
        "other/y.py",
        "train.py",
        "vendor/dep/.gitignore",
        "vendor/dep/x.py",
    }


def test_snapshot_in_git_submodule_that_was_not_fetched_is_empty(code, shelf, tmp_path):
    write(code, {"dep/x.py": "x"})
    commit(code / "dep")
    commit(code)
    git(tmp_path, "clone", "-q", str(code), "clone")
    made = stage.snapshot(tmp_path / "clone", shelf)
    assert set(staged(shelf, made.digest)) == {"lib/a.py", "train.py"}


@pytest.mark.parametrize("in_git", [True, False])
def test_snapshot_strange_names_are_kept(code, shelf, in_git):
    names = [
        " leading",
        "trailing ",
        "tab\there",
        "new\nline",
        "ünï☃",
        "-dash",
        "quo'\"te",
        "a\\b",
        "$(id)",
        os.fsdecode(b"\xff"),
    ]
    write(code, dict.fromkeys(names, "x"))
    if in_git:
        commit(code)
    made = stage.snapshot(code, shelf)
    assert set(names) <= set(staged(shelf, made.digest))


def test_snapshot_without_git_installed_still_works(code, shelf, monkeypatch):
    commit(code)
    monkeypatch.setenv("PATH", "/nonexistent")
    made = stage.snapshot(code, shelf)
    assert (made.commit, set(staged(shelf, made.digest))) == ("", {"lib/a.py", "train.py"})


RULES = st.sampled_from(
    ["*.log", "/a", "a/", "b/*", "!keep", "!*.log", "**/c", "a/**/b", "x.log", "/b/c/", "#a", "", "\\!a", "[ab]", "c*"]
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "keep", "x.log"]), min_size=1, max_size=3).map("/".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sets(PATHS, min_size=1, max_size=8), st.lists(RULES, max_size=4), st.lists(RULES, max_size=3))
def test_ignore_rules_outside_git_are_those_of_git(tmp_path_factory, paths, rules, deeper):
    folder = tmp_path_factory.mktemp("tree")
    for path in sorted(paths, key=len, reverse=True):
        if not (folder / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).touch()
    (folder / ".gitignore").write_text("\n".join(rules))
    if (folder / "b").is_dir():
        (folder / "b" / ".gitignore").write_text("\n".join(deeper))
    outside = set(code_files.files(folder).names)
    git(folder, "init", "-q")
    assert outside == set(code_files.files(folder).names)


def test_unpack_gives_a_copy_that_may_be_written(code, shelf, tmp_path):
    made = stage.snapshot(code, shelf)
    target = tmp_path / "run" / "code"
    stage.unpack(shelf, made.digest, target)
    (target / "train.py").write_text("mine")
    assert (shelf / made.digest / "train.py").read_text() == "print(1)"
    stage.unpack(shelf, made.digest, target)  # a second unpack overwrites nothing
    assert (target / "train.py").read_text() == "mine"


def test_unpack_cut_off_leaves_no_half_at_the_target(code, shelf, tmp_path, monkeypatch):
    made = stage.snapshot(code, shelf)
    target = tmp_path / "run" / "code"
    with monkeypatch.context() as broken:
        broken.setattr(stage.Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            stage.unpack(shelf, made.digest, target)
    assert not target.exists()
    stage.unpack(shelf, made.digest, target)
    assert list((tmp_path / "run").iterdir()) == [target]


def test_snapshot_many_processes_at_once_store_one(code, shelf):
    write(code, {f"lib/{index}.py": str(index) for index in range(200)})
    script = (
        "import sys; from pathlib import Path; from tpukit.jobs import snapshots as stage\n"
        "print(stage.snapshot(Path(sys.argv[1]), Path(sys.argv[2])).digest)"
    )
    argv = [sys.executable, "-c", script, str(code), str(shelf)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(tpukit.__file__).parents[1])}
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    digests = {process.communicate(timeout=PATIENCE)[0].strip() for process in started}
    assert {process.returncode for process in started} == {0}
    (digest,) = digests
    assert list(shelf.iterdir()) == [shelf / digest]
    assert len(staged(shelf, digest)) == 202


def test_unpack_many_at_once_make_one(code, shelf, tmp_path):
    made = stage.snapshot(code, shelf)
    target = tmp_path / "run" / "code"
    threads = [threading.Thread(target=stage.unpack, args=(shelf, made.digest, target)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (target / "lib" / "a.py").read_text() == "a"
    assert list((tmp_path / "run").iterdir()) == [target]
