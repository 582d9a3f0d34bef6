"""One SQLite file: connections for any thread, transactions, migrations, and readable errors."""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Conflict, Denied, TpukitError, Transient
from tpukit.kernel.store import migrations

WAIT_SECONDS = 20.0
_CLASS = 0xFF  # of an error code: the class of error, without its details
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_log = logging.getLogger(__name__)


class Connection(sqlite3.Connection):
    durable = False  # commits wait for the disk


class File:
    """A pool of connections, each used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._watches: list[Callable[[], None]] = []
        self._closed = False
        with self._translated():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with self.connection() as db:
                self._migrate(db)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            watches, self._watches = self._watches, []
        for end in watches:
            end()
        for db in idle:
            db.close()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection to the calling thread."""
        with self._lock:
            if self._closed:
                raise Conflict(f"the store {self._path} was closed")
            db = self._idle.pop() if self._idle else None
        with self._translated():
            db = db or self._connect()
            try:
                yield db
            except BaseException:
                if db.in_transaction:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                raise
            finally:
                with self._lock:
                    reuse = not self._closed and not db.in_transaction
                    if reuse:
                        self._idle.append(db)
                if not reuse:
                    db.close()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[Connection]:
        """Run a transaction. `durable`: wait for the disk, so that the write survives a loss of power."""
        with self.connection() as db:
            if db.durable is not durable:
                db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                db.durable = durable
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    def watch(
        self, read: Callable[[sqlite3.Connection], Any], wake: Callable[[], None], seconds: float
    ) -> Callable[[], None]:
        """Call `wake` whenever the result of `read` changes."""
        stop = threading.Event()

        def value() -> Any:
            with self.connection() as db:
                return read(db)

        try:
            first = value()
        except TpukitError:
            first = self  # differs from anything that can be read, so the first success wakes

        def poll() -> None:
            before, seen = first, -1
            own: sqlite3.Connection | None = None
            while not stop.wait(seconds):
                try:
                    own = own or self._connect()
                    # A number that SQLite has at hand; `read` runs only if it moved.
                    number = own.execute("PRAGMA data_version").fetchone()[0]
                    if number == seen:
                        continue
                    current = read(own)
                    seen = number
                except (sqlite3.Error, OSError):
                    continue  # real reads report the error
                if current != before:
                    before = current
                    try:
                        wake()
                    except Exception:  # the watch goes on  # noqa: BLE001
                        _log.exception("a callback for a change of the store failed")
            if own:
                own.close()

        thread = threading.Thread(target=poll, name="store-watch", daemon=True)
        thread.start()

        def end() -> None:
            stop.set()
            with self._lock:
                self._watches = [other for other in self._watches if other is not end]
            if thread is not threading.current_thread():
                thread.join()

        with self._lock:
            self._watches.append(end)
        return end

    def _connect(self) -> Connection:
        db = sqlite3.connect(
            self._path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False, factory=Connection
        )
        try:
            _wait_for_wal(db)
            db.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        steps = migrations.MIGRATIONS
        version = _version(db)
        if version > len(steps):
            raise Conflict(
                f"{self._path} was written by a newer tpukit (version {version}, this one knows {len(steps)})",
                hint="upgrade tpukit, or point $TPUKIT_HOME at another folder",
            )
        while version < len(steps):
            db.execute("BEGIN IMMEDIATE")
            version = _version(db)  # another process may have migrated it
            if version < len(steps):
                for statement in steps[version].split(";"):
                    db.execute(statement)
                version += 1
                db.execute(f"PRAGMA user_version = {version}")
            db.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a bug of ours
        except (sqlite3.DatabaseError, OSError) as error:
            raise _translation(self._path, error) from error


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _wait_for_wal(db: sqlite3.Connection) -> None:
    """Turn on WAL mode, which does not wait for other processes by itself."""
    until = SYSTEM.monotonic() + WAIT_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _CLASS != sqlite3.SQLITE_BUSY or SYSTEM.monotonic() > until:
                raise
            SYSTEM.sleep(0.01)


def _translation(path: Path, error: sqlite3.DatabaseError | OSError) -> TpukitError:
    if isinstance(error, OSError):
        full, forbidden, damaged = error.errno == errno.ENOSPC, error.errno in (errno.EACCES, errno.EROFS), False
    else:
        code = error.sqlite_errorcode & _CLASS
        full, forbidden, damaged = code == sqlite3.SQLITE_FULL, code in _FORBIDDEN, code in _DAMAGED
    if damaged:
        return Conflict(f"the store {path} is damaged: {error}", hint="move it away, or restore it from a backup")
    if forbidden:
        return Denied(
            f"the store {path} cannot be written: {error}", hint="point $TPUKIT_HOME at a folder that you may write to"
        )
    hint = "free some disk space" if full else "try again"
    return Transient(f"the store {path} could not be read or written: {error}", hint=hint)
