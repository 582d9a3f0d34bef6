"""Staging while the file system changes, refuses, or is full: reported at once, with nothing left behind."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.cramped import on_small_disk
from tpukit.core.errors import Invalid, NotFound
from tpukit.jobs import snapshots as stage
from tpukit.jobs.snapshots import code_files, copying

both = pytest.mark.parametrize("in_git", [True, False], ids=["git", "plain"])


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "lib" / "a.py").write_text("a")
    return folder


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "home" / "data" / "code"


def init(folder: Path) -> None:
    subprocess.run(["git", "-C", folder, "init", "-q"], check=True)


def hash_of(folder: Path, tmp_path: Path) -> str:
    """Compute the digest of `folder` from its content."""
    return stage.snapshot(folder, tmp_path / "another" / "shelf").digest


def said(error: pytest.ExceptionInfo[Invalid]) -> list[str]:
    assert error.value.exit_code == 2
    assert all(problem.hint or "more problems" in problem.what for problem in error.value.problems)
    return [problem.what for problem in error.value.problems]


def refuse(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Refuse to open these files and folders for every user, including root."""
    open_, scandir = os.open, os.scandir

    def opened(path, flags, *more, **options):
        if Path(path) in paths:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_(path, flags, *more, **options)

    def scanned(path="."):
        if Path(path) in paths:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "scandir", scanned)


def test_snapshot_file_saved_after_it_was_first_read_lands_under_its_own_hash(code, shelf, tmp_path, monkeypatch):
    make = stage.tempfile.mkdtemp

    def make_while_the_editor_saves(**options):
        (code / "train.py").write_text("print(2)")
        return make(**options)

    monkeypatch.setattr(stage.tempfile, "mkdtemp", make_while_the_editor_saves)
    made = stage.snapshot(code, shelf)
    monkeypatch.undo()
    assert (shelf / made.digest / "train.py").read_text() == "print(2)"
    assert hash_of(shelf / made.digest, tmp_path) == made.digest


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(moment=st.integers(0, 30), text=st.binary(max_size=40))
def test_snapshot_whatever_is_saved_at_any_moment_the_hash_is_that_of_the_copy(tmp_path_factory, moment, text):
    root = tmp_path_factory.mktemp("race")
    code, shelf = root / "code", root / "shelf"
    code.mkdir()
    for name in "abc":
        (code / name).write_bytes(name.encode() * 30)
    reads, read = iter(range(10_000)), os.read

    def read_while_the_editor_saves(handle: int, size: int) -> bytes:
        if next(reads) == moment:
            with (code / "b").open("r+b") as file:
                file.write(text)
        return read(handle, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "CHUNK", 8)
        patch.setattr(copying.os, "read", read_while_the_editor_saves)
        made = stage.snapshot(code, shelf)
    assert hash_of(shelf / made.digest, root) == made.digest
    assert stage.verify(shelf, made.digest)
    assert [path.name for path in shelf.iterdir()] == [made.digest]


def test_snapshot_file_that_vanishes_meanwhile_is_left_out_and_one_that_always_does_is_said(code, shelf, monkeypatch):
    open_ = os.open
    gone = code / "swap"
    gone.touch()

    def opened(path, *more, **options):
        if Path(path) == gone:
            gone.unlink(missing_ok=True)
        return open_(path, *more, **options)

    monkeypatch.setattr(os, "open", opened)
    made = stage.snapshot(code, shelf)
    assert sorted(path.name for path in (shelf / made.digest).iterdir()) == ["lib", "train.py"]

    files = code_files.files
    monkeypatch.setattr(code_files, "files", lambda *arguments: gone.touch() or files(*arguments))
    with pytest.raises(Invalid, match="appear and disappear during staging") as error:
        stage.snapshot(code, shelf)
    assert "swap" in said(error)[0]
    assert [path.name for path in shelf.iterdir()] == [made.digest]


def test_snapshot_file_that_becomes_a_pipe_meanwhile_is_not_waited_for(code, shelf, monkeypatch):
    files = code_files.files

    def then_a_pipe(*arguments):
        listed = files(*arguments)
        if not (code / "train.py").is_fifo():
            (code / "train.py").unlink()
            os.mkfifo(code / "train.py")
        return listed

    monkeypatch.setattr(code_files, "files", then_a_pipe)
    with pytest.raises(Invalid, match=r"train\.py is a pipe"):
        stage.snapshot(code, shelf)


@both
def test_snapshot_everything_that_cannot_be_staged_is_said_at_once(code, shelf, monkeypatch, in_git):
    if in_git:
        init(code)
    (code / "secret").mkdir()
    os.mkfifo(code / "lib" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(code)
        server.bind("socket")
        refuse(monkeypatch, code / "secret")
        with pytest.raises(Invalid) as error:
            stage.snapshot(code, shelf)
    assert said(error) == [
        "code: lib/pipe is a pipe, a socket or a device, and cannot be staged",
        "code: secret is a folder that cannot be read: Permission denied",
        "code: socket is a pipe, a socket or a device, and cannot be staged",
    ]
    assert not shelf.exists()
    assert list(stage.inspect(code).problems) == list(error.value.problems)

    (code / ".gitignore").write_text("secret/\npipe\nsocket\n")
    made = stage.snapshot(code, shelf)
    assert sorted(path.name for path in (shelf / made.digest).iterdir()) == [".gitignore", "lib", "train.py"]


@both
def test_snapshot_unreadable_files_are_all_said(code, shelf, monkeypatch, in_git):
    if in_git:
        init(code)
    for number in range(25):
        (code / f"key-{number:02}").touch()
    os.mkfifo(code / "a-pipe")
    refuse(monkeypatch, *code.glob("key-*"))
    with pytest.raises(Invalid) as error:
        stage.snapshot(code, shelf)
    assert said(error)[:2] == [
        "code: a-pipe is a pipe, a socket or a device, and cannot be staged",
        "code: key-00 cannot be read: Permission denied",
    ]
    assert said(error)[-1] == "code: and 6 more problems"
    assert not shelf.exists()


@both
def test_snapshot_of_a_folder_that_holds_our_own_data_is_refused_unless_it_is_ignored(code, tmp_path, in_git):
    if in_git:
        init(code)
    home = code / ".tpukit"
    for name in ("data", "state"):
        (home / name).mkdir(parents=True)
        (home / name / "x").touch()
    for _ in range(2):
        with pytest.raises(Invalid) as error:
            stage.snapshot(code, home / "data" / "code", own=(home / "data", home / "state"))
        assert said(error) == [
            "code: .tpukit/data is where tpukit keeps its own data",
            "code: .tpukit/state is where tpukit keeps its own data",
        ]
        assert "TPUKIT_HOME" in error.value.problems[0].hint
    (code / ".gitignore").write_text("/.tpukit/\n")
    first = stage.snapshot(code, home / "data" / "code", own=(home / "data", home / "state"))
    assert stage.snapshot(code, home / "data" / "code") == first
    assert sorted(path.name for path in (home / "data" / "code" / first.digest).iterdir()) == [
        ".gitignore",
        "lib",
        "train.py",
    ]


def test_snapshot_git_that_trusts_the_owner_not_says_how_to_trust(code, shelf, monkeypatch):
    init(code)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(Invalid, match="belongs to another user") as error:
        stage.snapshot(code, shelf)
    assert "safe.directory" in error.value.problems[0].hint
    assert not shelf.exists()
    assert stage.inspect(code).problems == error.value.problems


def test_snapshot_git_with_a_broken_index_is_said(code, shelf):
    init(code)
    (code / ".git" / "index").write_text("nonsense")
    with pytest.raises(Invalid, match="git cannot list the files"):
        stage.snapshot(code, shelf)


def test_snapshot_inside_a_git_hook_asks_about_its_own_folder(code, shelf, tmp_path, monkeypatch):
    (tmp_path / "hooked").mkdir()
    init(tmp_path / "hooked")
    init(code)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "hooked" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "hooked"))
    made = stage.snapshot(code, shelf)
    assert (shelf / made.digest / "train.py").exists()


def test_snapshot_too_many_files_are_refused_before_all_are_listed(code, shelf, monkeypatch):
    monkeypatch.setattr(code_files, "MOST_FILES", 10)
    for number in range(20):
        (code / str(number)).touch()
    with pytest.raises(Invalid, match="more than the limit of 10 files"):
        stage.snapshot(code, shelf)


def test_snapshot_problem_with_a_name_that_is_no_text_can_be_printed(code, shelf):
    os.mkfifo(code / os.fsdecode(b"p\xffpe"))
    with pytest.raises(Invalid) as error:
        stage.snapshot(code, shelf)
    assert "p\\xffpe" in str(error.value)
    str(error.value).encode("utf-8")


def test_snapshot_full_disk_is_said_and_leaves_nothing(code, tmp_path):
    script = """
import json, os, sys
from pathlib import Path
from tpukit.jobs import snapshots as stage
from tpukit.core.errors import TpukitError
code, shelf = Path(sys.argv[1]).parent / "code", Path(sys.argv[1]) / "data" / "code"
try:
    print(json.dumps({"made": stage.snapshot(code, shelf).digest}))
except TpukitError as error:
    print(json.dumps({"said": str(error), "exit": error.exit_code, "left": os.listdir(shelf)}))
"""
    for name in ("large", "larger"):
        (code / name).write_bytes(os.urandom(150 << 10))
    answer = on_small_disk(tmp_path / "disk", 200, script)
    assert (answer["exit"], answer["left"]) == (2, [])
    assert "is full" in answer["said"]
    assert "tpu clean" in answer["said"]


def test_snapshot_cut_off_leaves_nothing_on_the_shelf(code, shelf, monkeypatch):
    monkeypatch.setattr(stage.Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        stage.snapshot(code, shelf)
    assert list(shelf.iterdir()) == []


def test_inspect_says_what_a_snapshot_would_be_and_stores_nothing(code, shelf):
    seen = stage.inspect(code)
    assert (len(seen.names), seen.bytes, seen.problems) == (2, 9, ())
    assert not shelf.exists()
    assert stage.snapshot(code, shelf) == seen.snapshot
    with pytest.raises(NotFound):
        stage.inspect(code / "nowhere")


def test_unpack_code_that_is_gone_says_which_and_where_and_what_to_do(code, shelf, tmp_path):
    with pytest.raises(Invalid) as error:
        stage.unpack(shelf, "d" * 64, tmp_path / "run" / "code")
    (what,) = said(error)
    assert "d" * 12 in what
    assert str(shelf) in what
    assert "tpu run" in error.value.problems[0].hint
    assert not (tmp_path / "run").exists()


def test_verify_tells_code_that_was_changed(code, shelf):
    (code / "run.sh").touch(0o755)
    (code / "link").symlink_to("lib")
    made = stage.snapshot(code, shelf)
    assert stage.verify(shelf, made.digest)
    (shelf / made.digest / "run.sh").chmod(0o644)
    assert not stage.verify(shelf, made.digest)
    (shelf / made.digest / "run.sh").chmod(0o755)
    (shelf / made.digest / "train.py").write_text("print(3)")
    assert not stage.verify(shelf, made.digest)
    assert not stage.verify(shelf, "0" * 64)
    assert not stage.verify(shelf, hashlib.sha256().hexdigest())  # the digest of nothing, which is not there either


def test_snapshot_again_counts_as_use(code, shelf):
    made = stage.snapshot(code, shelf)
    os.utime(shelf / made.digest, (1.0, 1.0))
    stage.snapshot(code, shelf)
    assert (shelf / made.digest).stat().st_mtime > 1.0


def test_snapshot_damaged_on_the_shelf_is_stored_anew(code, shelf):
    made = stage.snapshot(code, shelf)
    (shelf / made.digest / "train.py").write_text("")
    assert stage.snapshot(code, shelf) == made
    assert (shelf / made.digest / "train.py").read_text() == "print(1)"
    assert [path.name for path in shelf.iterdir()] == [made.digest]
