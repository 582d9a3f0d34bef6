"""Tests with two users of one store, one of whom is killed at every write of every command that writes.

The kill comes before or right after the write. Other users are not blocked, and the same command succeeds afterwards. A
module that imports this one provides the fixtures of `store_home`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.manager_desk import Desk
from tpukit import cli
from tpukit.cli import context, spellings
from tpukit.core.errors import TpukitError
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import Store, change
from tpukit.sharing import inventory, tpu_aliases, users, windows
from tpukit.sharing.collections import KINDS

TPU = "g-v4-8-1"
COMMANDS = (
    "user add eva",
    "set-cur 3 xibo",
    "del-dir 2 xibo",
    "swap-dir 1 2 xibo",
    "-a own config.x.y xibo",
    "del-config-alias lr xibo",
    "set-settings monitor_length 500 xibo",
    "reset-settings xibo",
    "reset-window-num 1 xibo",
    "log xibo",
    f"-ta mine {TPU}",
    "vm apply g-v4-8-2",
    "vm delete g-v4-8-3 --yes",
    f"vm note {TPU} busy",
    f"release {TPU} xibo",
    "mount-disk g-v4-8-3",
    "add-tag 1 long xibo",
    "upd-log xibo:1 /logs/run /staging/code",
    "finish-job xibo:1",
    "ack xibo",
    "kill 1 xibo",
    "resume windows=2 xibo --detach",
    "rerun windows=2 xibo --detach",
    "clear xibo",
    "clear-error xibo",
    "clean xibo -re",
)
SENDING = (f"run {TPU} xibo -q --yes", "run v4-8 xibo -q", "rerun windows=2 tpu=g-v4-8-3 xibo --detach")
"""Commands that create a window and a job, whose names differ each time."""


class Killed(BaseException):
    pass


class DyingStore:
    """A store whose process is killed at a write: before it, or right after it."""

    def __init__(self, store: Store, writes: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, writes, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in ("create", "put", "delete", "acquire"):
            return real

        def write(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            done = real(*args, **options)
            if self._left < 0:
                raise Killed
            return done

        return write


class Group:
    """Two users and their data."""

    def __init__(self, desk: Desk, store: Store, use: Callable[[Any], None]) -> None:
        self.desk, self.store, self._use = desk, store, use
        for name in ("xibo", "lyy"):
            users.add(store, name, (), 1.0)
            users.set_setting(store, name, "monitor_after_run", "False", 1.0)
            for number in (1, 2):
                users.set_directory(store, name, number, str(Path.cwd()), 1.0)
        for name in (TPU, "g-v4-8-3"):
            desk(f"vm apply {name}")
        inventory.set_disk(store, TPU, "10.0.0.2:/share", "/mnt/share", 1.0)
        for _ in range(2):
            desk(f"run {TPU} xibo -q --yes")
        change(store, JOBS, desk.job("xibo:2").id, lambda job: msgspec.structs.replace(job, state=State.FAILED))
        tpu_aliases.add(store, "theirs", TPU, (), 1.0)
        self.before = self.documents()

    def documents(self) -> dict[tuple[str, str], Any]:
        return {
            (kind.name, key): self.store.get(kind, key).value
            for kind in (*KINDS, JOBS)
            for key in self.store.keys(kind)
        }

    def restore(self) -> None:
        for kind in (*KINDS, JOBS):
            for key in self.store.keys(kind):
                wanted = self.before.get((kind.name, key))
                entry = self.store.get(kind, key)
                if wanted is None:
                    self.store.delete(kind, entry)
                elif entry.value != wanted:
                    self.store.put(kind, entry, wanted)
            for (name, key), value in self.before.items():
                if name == kind.name and key not in self.store.keys(kind, key):
                    self.store.create(kind, key, value)

    def killed(self, line: str, writes: int, *, after: bool) -> bool:
        """Run a command that is killed at a write, and return whether it got that far."""
        self._use(DyingStore(self.store, writes, after=after))
        try:
            self.desk._runner.invoke(cli.command, spellings.canonical(line.split()))
        except Killed:
            return True
        finally:
            self._use(self.store)
        return False

    def again(self, line: str) -> None:
        """Repeat a command; an error is allowed if the command took effect before it was killed."""
        done = self.desk._runner.invoke(cli.command, spellings.canonical(line.split()))
        known = done.exception is None or isinstance(done.exception, (SystemExit, TpukitError))
        assert known, f"{line}: {done.output} {done.exception!r}"


@pytest.fixture
def group(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    root, code = tmp_path / "root", tmp_path / "code"
    root.mkdir()
    code.mkdir()
    desk = Desk(root, code, monkeypatch)
    used: list[Any] = [store]
    monkeypatch.setattr(context, "store", lambda: used[0])
    yield Group(desk, store, lambda one: used.__setitem__(0, one))
    for number, handler in heard.items():
        signal.signal(number, handler)


def _plain(documents: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Return the documents without timestamps, which differ each time."""
    plain = {}
    for key, value in documents.items():
        fields = {name: one for name, one in msgspec.to_builtins(value).items() if name not in _MOMENTS}
        plain[key] = fields | {"finished": bool(fields["finished"])} if "finished" in fields else fields
    return plain


_MOMENTS = ("created", "since", "read_until", "ended")


@pytest.mark.parametrize("line", COMMANDS)
def test_command_killed_at_any_write_holds_nobody_up_and_goes_through_again(group, line):
    group.desk(line)
    done = _plain(group.documents())
    group.restore()
    kills = 0
    for after in (False, True):
        for writes in range(20):
            if not group.killed(line, writes, after=after):
                group.restore()
                break
            kills += 1
            group.desk("set-cur 2 lyy")  # the other user is not blocked
            group.again(line)
            assert _plain(group.documents()) == done, f"killed at write {writes}"
            group.restore()
    assert kills >= 2


@pytest.mark.parametrize("line", SENDING)
def test_sending_killed_at_any_write_leaves_no_job_without_a_window_and_no_tpu_held(group, line):
    known = len(windows.of_user(group.store, "xibo"))
    for after in (False, True):
        died = 0
        for writes in range(20):
            if not group.killed(line, writes, after=after):
                group.restore()
                break
            died += 1
            listed = windows.of_user(group.store, "xibo")
            shown = {window.job for window in listed}
            jobs = {key: group.store.get(JOBS, key).value for key in group.store.keys(JOBS)}
            active = {key for key, job in jobs.items() if not job.state.ended}
            assert active <= shown, f"killed at write {writes}"
            assert len(listed) <= known + 1
            group.desk.end()
            group.desk("clean xibo")
            assert not windows.of_user(group.store, "xibo")
            assert all(row.free for row in _rows()), f"killed at write {writes}"
            group.restore()
        assert died > 3


def _rows() -> list[inventory.Row]:
    from tpukit.cli import vms

    return vms.rows()
