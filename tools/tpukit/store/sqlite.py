"""The store's embedded home: one SQLite file, shared by every `tpu` on this machine.

WAL lets readers go on while one writes; every write takes the write lock first (BEGIN IMMEDIATE), because a read that
turns into a write fails under contention no matter how long it waits.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tpukit.errors import Conflict, Denied, NotFound, TpukitError, Transient
from tpukit.store import Event, Job

MIGRATIONS = (
    """
    CREATE TABLE jobs (id TEXT PRIMARY KEY, created REAL NOT NULL, active INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;
    CREATE INDEX jobs_active ON jobs (created) WHERE active = 1;
    CREATE INDEX jobs_created ON jobs (created);
    CREATE TABLE events (seq INTEGER PRIMARY KEY, job TEXT NOT NULL, at REAL NOT NULL, text TEXT NOT NULL) STRICT;
    CREATE INDEX events_job ON events (job, seq);
    """,
)
"""Each brings a file one version further. Never edit one that was released: add another."""

WAIT_SECONDS = 20.0
_KIND = 0xFF  # of an error code: the kind of trouble, without its details
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class SqliteStore:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._locks = path.parent / "locks"
        with self._translated():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._locks.mkdir(exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
            try:
                self._wait_for_wal()
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._migrate()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        self._db.close()

    def add(self, job: Job) -> None:
        with self._transaction() as db:
            try:
                db.execute(
                    "INSERT INTO jobs (id, created, active, doc) VALUES (?, ?, ?, ?)",
                    (job.id, job.created, not job.state.ended, json.dumps(job.to_json())),
                )
            except sqlite3.IntegrityError as error:
                raise Conflict(f"there is a job {job.id} already") from error
            self._note(job.id, job.created, f"sent to {job.place} by {job.owner}")

    def get(self, job_id: str) -> Job:
        with self._translated():
            row = self._db.execute("SELECT doc FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            raise NotFound(f"there is no job {job_id}", hint="see `tpu job list`")
        return Job.from_json(json.loads(row[0]))

    def jobs(self, *, active: bool = False, limit: int = 0) -> Sequence[Job]:
        query = (
            "SELECT doc FROM jobs WHERE active = 1 ORDER BY created"
            if active
            else "SELECT doc FROM jobs ORDER BY created DESC"
        )
        with self._translated():
            rows = self._db.execute(f"{query} LIMIT ?", (limit or -1,)).fetchall()
        return [Job.from_json(json.loads(doc)) for (doc,) in rows]

    def taken(self, prefix: str) -> frozenset[str]:
        with self._translated():
            rows = self._db.execute("SELECT id FROM jobs WHERE substr(id, 1, ?) = ?", (len(prefix), prefix))
            return frozenset(row[0] for row in rows)

    def change(self, job_id: str, change: Callable[[Job], Job], *, note: str = "", at: float = 0.0) -> Job:
        with self._transaction() as db:
            job = change(self.get(job_id))
            db.execute(
                "UPDATE jobs SET active = ?, doc = ? WHERE id = ?",
                (not job.state.ended, json.dumps(job.to_json()), job_id),
            )
            if note:
                self._note(job_id, at, note)
        return job

    def events(self, job_id: str) -> Sequence[Event]:
        with self._translated():
            rows = self._db.execute("SELECT job, at, text FROM events WHERE job = ? ORDER BY seq", (job_id,)).fetchall()
        return [Event(*row) for row in rows]

    @contextmanager
    def hold(self, job_id: str) -> Iterator[bool]:
        # The kernel gives a file lock up when its process dies, however it dies: no lease to wait out.
        with self._translated():
            handle = os.open(self._locks / job_id, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(handle)

    def _note(self, job_id: str, at: float, text: str) -> None:
        self._db.execute("INSERT INTO events (job, at, text) VALUES (?, ?, ?)", (job_id, at, text))

    def _migrate(self) -> None:
        version = self._version()
        if version > len(MIGRATIONS):
            raise Conflict(
                f"{self._path} was written by a newer tpukit (version {version}, this one knows {len(MIGRATIONS)})",
                hint="upgrade tpukit, or point $TPUKIT_HOME at another folder",
            )
        while version < len(MIGRATIONS):
            with self._transaction() as db:
                version = self._version()  # another process may have been faster
                if version < len(MIGRATIONS):
                    for statement in MIGRATIONS[version].split(";"):
                        db.execute(statement)
                    version += 1
                    db.execute(f"PRAGMA user_version = {version}")

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _wait_for_wal(self) -> None:
        """Turning WAL on does not wait for other processes by itself."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _KIND != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a mistake of ours
        except (sqlite3.DatabaseError, OSError) as error:
            raise _translation(self._path, error) from error


def _translation(path: Path, error: sqlite3.DatabaseError | OSError) -> TpukitError:
    if isinstance(error, OSError):
        full, forbidden, damaged = error.errno == errno.ENOSPC, error.errno in (errno.EACCES, errno.EROFS), False
    else:
        code = error.sqlite_errorcode & _KIND
        full, forbidden, damaged = code == sqlite3.SQLITE_FULL, code in _FORBIDDEN, code in _DAMAGED
    if damaged:
        return Conflict(f"the store {path} is damaged: {error}", hint="move it away, or restore it from a backup")
    if forbidden:
        return Denied(
            f"the store {path} cannot be written: {error}", hint="point $TPUKIT_HOME at a folder that you may write to"
        )
    hint = "free some disk space" if full else "try again"
    return Transient(f"the store {path} could not be read or written: {error}", hint=hint)


def open_store(folder: Path) -> SqliteStore:
    return SqliteStore(folder / "store.db")
