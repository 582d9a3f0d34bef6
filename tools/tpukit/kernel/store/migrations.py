"""Tables of the SQLite file, and migrations of files of older versions."""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE jobs (id TEXT PRIMARY KEY, created REAL NOT NULL, active INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;
    CREATE INDEX jobs_active ON jobs (created) WHERE active = 1;
    CREATE INDEX jobs_created ON jobs (created);
    CREATE TABLE events (seq INTEGER PRIMARY KEY, job TEXT NOT NULL, at REAL NOT NULL, text TEXT NOT NULL) STRICT;
    CREATE INDEX events_job ON events (job, seq);
    """,
    # Row numbers are never reused (AUTOINCREMENT): they distinguish a recreated document from the deleted one, and the
    # tokens of one lease.
    """
    CREATE TABLE documents (
        number INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, key TEXT NOT NULL,
        revision INTEGER NOT NULL, state TEXT NOT NULL, sort REAL NOT NULL, doc TEXT NOT NULL,
        UNIQUE (collection, key)) STRICT;
    CREATE INDEX documents_sort ON documents (collection, sort, key);
    CREATE INDEX documents_state ON documents (collection, state, sort, key);
    CREATE TABLE leases (
        token INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, holder TEXT NOT NULL,
        seconds REAL NOT NULL, ends REAL NOT NULL) STRICT;
    CREATE TABLE changes (collection TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT;
    ALTER TABLE events RENAME TO old_events;
    DROP INDEX events_job;
    CREATE TABLE events (
        collection TEXT NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY (collection, key, seq)) STRICT, WITHOUT ROWID;
    INSERT INTO documents (collection, key, revision, state, sort, doc)
        SELECT 'jobs', id, 1, CASE WHEN json_valid(doc) THEN ifnull(json_extract(doc, '$.state'), '') ELSE '' END,
        created, doc FROM jobs;
    INSERT INTO events
        SELECT 'jobs', job, row_number() OVER (PARTITION BY job ORDER BY seq), at, text FROM old_events;
    DROP TABLE jobs;
    DROP TABLE old_events
    """,
)
"""Migrations, each to the next version. Never edit a released one: add another."""
