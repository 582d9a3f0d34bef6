"""Tests of leases, and of writes under them, for every store backend, with threads and with many processes."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from support.store_home import LONG, SHORT, A, B, edit, job, lapsed, put, texts
from support.waiting import PATIENCE, until
from tpukit.core.errors import Conflict
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import Event, Holder, Lease
from tpukit.kernel.store.process import this_process


def test_acquire_is_for_one_at_a_time(store, home):
    other = home.open()
    mine = store.acquire("jobs/a", A, LONG)
    assert mine
    assert other.acquire("jobs/a", B, LONG) is None
    assert other.acquire("jobs/b", B, LONG)
    assert other.lease("jobs/a") == mine
    assert [(lease.name, lease.holder) for lease in other.leases()] == [("jobs/a", A), ("jobs/b", B)]
    assert abs(mine.ends - store.now() - LONG) < 30


def test_acquire_again_by_its_holder_prolongs_it_with_the_same_token(store):
    first = store.acquire("x", A, LONG)
    second = store.acquire("x", A, 2 * LONG)
    assert first and second
    assert second.token == first.token
    assert second.ends > first.ends + LONG / 2
    assert store.lease("x") == second


def test_release_frees_it_at_once_and_counts_on(store, home):
    first = store.acquire("x", A, LONG)
    store.release(first)
    assert store.lease("x") is None
    assert store.leases() == []
    second = home.open().acquire("x", B, LONG)
    assert second.token > first.token
    store.release(first)
    assert store.lease("x") == second


def test_renew_goes_on_with_the_same_token(store):
    lease = store.acquire("x", A, SHORT)
    longer = store.renew(lease, LONG)
    assert (longer.token, longer.holder) == (lease.token, A)
    assert store.lease("x") == longer


def test_renew_what_lapsed_and_nobody_took_goes_through(store):
    lease = store.acquire("x", A, SHORT)
    lapsed(store, "x")
    assert store.renew(lease, LONG).token == lease.token
    assert store.acquire("x", B, LONG) is None


def test_renew_what_somebody_else_has_or_was_given_up_conflicts(store):
    lease = store.acquire("x", A, SHORT)
    lapsed(store, "x")
    taken = store.acquire("x", B, LONG)
    with pytest.raises(Conflict, match="x"):
        store.renew(lease, LONG)
    store.release(taken)
    for old in (lease, taken):
        with pytest.raises(Conflict):
            store.renew(old, LONG)
    with pytest.raises(Conflict):
        store.renew(Lease("never", A, 0.0, 1), LONG)


def test_acquire_after_it_lapsed_gives_a_higher_token_even_to_its_last_holder(store):
    first = store.acquire("x", A, SHORT)
    lapsed(store, "x")
    second = store.acquire("x", A, LONG)
    assert second.token > first.token


def test_put_by_a_holder_that_was_paused_is_refused(store, home):
    """The holder lost its lease without noticing: the document is unchanged, and still the write is refused."""
    entry = store.create(JOBS, "a-1", job())
    lease = store.acquire("a-1", A, SHORT)
    lapsed(store, "a-1")
    with pytest.raises(Conflict, match="lease a-1"):
        put(store, entry, lease=lease)
    taken = home.open().acquire("a-1", B, LONG)
    with pytest.raises(Conflict, match="lease a-1"):
        put(store, entry, lease=lease, events=[Event(1.0, "never")])
    assert put(store, entry, lease=taken, events=[Event(1.0, "b did")]).revision == 2
    assert texts(store) == ["b did"]


def test_put_under_a_lease_goes_through_while_it_is_renewed(store):
    entry = store.create(JOBS, "a-1", job())
    lease = store.acquire("a-1", A, LONG)
    store.renew(lease, 2 * LONG)
    entry = put(store, entry, lease=lease)
    entry = put(store, entry, lease=lease, fields={"message": "again"})
    assert store.get(JOBS, "a-1").revision == 3
    with pytest.raises(Conflict, match="a-1 was changed"):
        put(store, replace(entry, revision=2, proof=None), lease=lease)


def test_put_under_a_lease_that_was_given_up_is_refused(store):
    entry = store.create(JOBS, "a-1", job())
    lease = store.acquire("a-1", A, LONG)
    store.release(lease)
    with pytest.raises(Conflict, match="lease a-1"):
        put(store, entry, lease=lease)


def test_put_that_releases_frees_the_lease_with_it_and_one_that_is_refused_does_not(store, home):
    entry = store.create(JOBS, "a", job("a"))
    lease = store.acquire("jobs/a", A, LONG)
    put(store, entry, lease=lease)
    with pytest.raises(Conflict):
        put(store, entry, lease=lease, release=True)  # it was written since
    assert store.lease("jobs/a").token == lease.token
    put(store, store.get(JOBS, "a"), lease=lease, release=True)
    assert store.lease("jobs/a") is None
    assert home.open().acquire("jobs/a", B, LONG).token > lease.token
    with pytest.raises(Conflict):
        put(store, store.get(JOBS, "a"), lease=lease)


def test_claim_is_lease_and_write_in_one_and_nothing_where_somebody_was_faster(store, home):
    entry = store.create(JOBS, "a-1", job())
    other = home.open()
    record = edit(message="mine")(entry.value)
    claimed, lease = store.claim(JOBS, entry, record, "a-1", A, LONG, events=[Event(1.0, "a did")])
    assert (store.lease("a-1"), store.get(JOBS, "a-1").value.message) == (lease, "mine")
    assert other.claim(JOBS, claimed, record, "a-1", B, LONG) is None  # A holds it
    put(store, claimed, lease=lease, release=True)
    assert other.claim(JOBS, entry, record, "a-1", B, LONG) is None  # it was written since
    assert other.lease("a-1") is None
    assert texts(store) == ["a did"]
    assert other.claim(JOBS, other.get(JOBS, "a-1"), record, "a-1", B, LONG)[1].token > lease.token


def test_threads_race_for_a_claim_and_exactly_one_wins(store):
    entry = store.create(JOBS, "a-1", job())
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda n: store.claim(JOBS, entry, entry.value, "a-1", Holder(f"h{n}"), LONG), range(8)))
    (won,) = [one for one in claims if one]
    assert store.lease("a-1") == won[1]
    assert store.get(JOBS, "a-1").revision == 2


def test_lease_of_a_process_that_was_killed_is_free_at_once(store, home):
    script = "print(store.acquire('x', this_process(), 600), flush=True); time.sleep(60)"
    process = home.process("h", script, ready=True)
    held = store.lease("x")
    assert held.holder.pid == process.pid
    assert store.acquire("x", this_process(), LONG) is None
    process.send_signal(signal.SIGKILL)
    until(lambda: store.lease("x") is None, "its death to be noticed, before anybody asked for its exit code")
    assert store.acquire("x", this_process(), LONG).token > held.token


def test_lease_is_not_handed_down_to_what_its_process_starts(store, home):
    """Hosts outlive the process that started them; they must not keep the job from being driven."""
    script = (
        "import subprocess\n"
        "store.acquire('x', this_process(), 600)\n"
        "child = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True); sys.stdin.readline()"
    )
    process = home.process("h", script)
    pid = int(process.stdout.readline())
    try:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=PATIENCE)
        assert store.acquire("x", this_process(), LONG)
    finally:
        os.kill(pid, signal.SIGKILL)


# Concurrency


def test_threads_race_for_a_lease_and_exactly_one_wins(store):
    ready = threading.Barrier(6)

    def race(number: int) -> Lease | None:
        ready.wait()
        return store.acquire("x", Holder(f"h{number}"), LONG)

    with ThreadPoolExecutor(6) as threads:
        won = [lease for lease in threads.map(race, range(6)) if lease]
    assert [store.lease("x")] == won


def test_processes_that_hold_a_lease_never_overlap(home, store):
    """Each process writes a begin and an end event under its lease: these pairs must not interleave."""
    script = (
        "done = 0\n"
        "while done < 5:\n"
        "    lease = store.acquire('a-1', this_process(), 60)\n"
        "    if lease:\n"
        "        for word in ('begin', 'end'):\n"
        "            entry = store.get(JOBS, 'a-1')\n"
        "            store.put(JOBS, entry, count(entry.value), lease=lease, events=[Event(1.0, f'{word} {name}')])\n"
        "        store.release(lease)\n"
        "        done += 1\n"
        "    else: time.sleep(0.01)\n"
    )
    store.create(JOBS, "a-1", job())
    for index in range(3):
        home.process(f"p{index}", script)
    home.finish()
    notes = [text.split() for text in texts(store)]
    assert len(notes) == 30
    for begin, end in zip(notes[::2], notes[1::2], strict=True):
        assert (begin, end) == (["begin", begin[1]], ["end", begin[1]])


def test_prune_removes_leases_that_lapsed_long_ago_and_their_tokens_are_never_given_again(store, home, monkeypatch):
    now, day = store.now(), 86_400.0
    old = [store.acquire(f"jobs/old-{index}", A, SHORT) for index in range(5)]
    for lease in old:
        lapsed(store, lease.name)
    assert store.prune() == 0  # not long ago enough
    later = home.open()
    monkeypatch.setattr(later, "now", lambda: now + 2 * day)
    assert later.prune() == 5
    for lease in old:
        again = store.acquire(lease.name, B, LONG)
        assert again.token > lease.token
        with pytest.raises(Conflict):
            store.renew(lease, LONG)


def test_leases_of_many_jobs_that_were_deleted_leave_a_bounded_number_behind(store, home, monkeypatch):
    for index in range(60):
        entry = store.create(JOBS, f"a-{index}", job(f"a-{index}"))
        store.release(store.acquire(f"jobs/a-{index}", A, LONG))
        store.delete(JOBS, entry)
    later = home.open()
    now = store.now()
    monkeypatch.setattr(later, "now", lambda: now + 2 * 86_400.0)
    later.prune()
    assert later.prune() == 0
    assert store.leases() == []
