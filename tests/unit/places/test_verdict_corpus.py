"""Verdicts on logs of real programs: messages of JAX, gloo, libtpu, and users' programs.

Each file of tests/fixtures/log-tails names its source and its meaning. Those of jax 0.12 come from two processes on
one machine. The messages of libtpu, older JAX and database clients are quoted from the address in their first line;
their order of hosts and exit codes are assumed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.places import log_tail
from tpukit.places.log_tail import Cause
from tpukit.places.verdict import HostEnd, verdict

FOLDER = Path(__file__).parents[2] / "fixtures" / "log-tails"
_HOST = re.compile(r"== (host-\d+): exit (\d+), at ([\d.]+)(, signalled by us)?")


@dataclass(frozen=True)
class Case:
    name: str
    reason: Reason
    host: str
    hosts: tuple[HostEnd, ...]


def load(path: Path) -> Case:
    source, expect, *lines = path.read_text(encoding="utf-8").splitlines()
    assert source.startswith("# ")
    reason, host = expect.removeprefix("# expect: ").split(", ")
    port = 0
    hosts: list[HostEnd] = []
    for line in lines:
        if line.startswith("# own port: "):
            port = int(line.removeprefix("# own port: "))
        elif match := _HOST.fullmatch(line):
            name, code, at, ours = match.groups()
            hosts.append(HostEnd(name, int(code), float(at), signalled_by_us=bool(ours), own_port=port))
        else:
            hosts[-1] = replace(hosts[-1], tail=(*hosts[-1].tail, line))
    return Case(path.stem, Reason(reason), host, tuple(hosts))


CASES = [load(path) for path in sorted(FOLDER.glob("*.txt"))]
CHARGED = [case for case in CASES if MEANINGS[case.reason].budget is Budget.USER]
cases = st.sampled_from(CASES)


def ids(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_verdict_real_logs_name_the_reason_and_the_host(case):
    said = verdict(case.hosts)
    assert (said.reason, said.host) == (case.reason, case.host)


@pytest.mark.parametrize("case", CHARGED, ids=ids)
def test_verdict_charged_end_quotes_the_program_and_not_the_stack_or_jax(case):
    detail = verdict(case.hosts).detail
    assert "coordination" not in detail
    assert " @ " not in detail
    assert "***" not in detail


WORDS = {
    "redis-worker": "ConnectionRefusedError: [Errno 111] Connection refused",
    "check-first": "Check failed: vocab.size() == expected (32000 vs. 32128)",
    "check-worker": "Check failed: vocab.size() == expected (32000 vs. 32128)",
    "assert-worker": "Assertion `count > 0' failed.",
    "terminate-first": "shard 7 is corrupt",
    "error-worker": "ValueError: bad shape (3, 4)",
    "error-first": "ValueError: bad shape (3, 4)",
    "xla-flags": "Unknown flag in XLA_FLAGS: --xla_no_such_flag=1",
    "redis-py": "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
    "psycopg2": "psycopg2.OperationalError: connection to server",
    "hardexit-first": "train.py: no such dataset",
    "shutdown-noise": "ValueError: 2 processes found in Grain checkpoint directory",
    "shutdown-noise-only": "train.py: no such dataset: /data/missing",
}


@pytest.mark.parametrize(("name", "words"), WORDS.items(), ids=WORDS)
def test_verdict_programs_own_error_comes_with_its_words(name, words):
    detail = verdict(next(case for case in CASES if case.name == name).hosts).detail
    assert words in detail.replace("\\'", "'")


@given(cases, st.data())
def test_verdict_real_logs_in_any_order_of_hosts_say_the_same(case, data):
    assert verdict(data.draw(st.permutations(case.hosts))) == verdict(case.hosts)


def _follower(name: str, at: float, tail: tuple[str, ...], code: int) -> HostEnd:
    return HostEnd(name, code, at, tail=tail)


FOLLOWERS = [
    end.tail
    for case in CASES
    for end in case.hosts
    if end.code == 134 and end.host != case.host and log_tail.read(end.tail).cause is Cause.PEER
]


@given(cases, st.lists(st.tuples(st.sampled_from(FOLLOWERS), st.sampled_from([1, 134])), max_size=4))
def test_verdict_more_peers_that_only_followed_do_not_change_the_culprit(case, followers):
    last = max(end.order for end in case.hosts)
    more = [_follower(f"peer-{n}", last + 1 + n, tail, code) for n, (tail, code) in enumerate(followers)]
    assert verdict([*case.hosts, *more]) == verdict(case.hosts)


@given(cases, st.sampled_from([HostEnd("gone", 137), HostEnd("gone", 137, lost=True)]), st.floats(0, 100))
def test_verdict_hardware_that_went_is_never_charged_whatever_the_logs_say(case, gone, at):
    said = verdict([*case.hosts, replace(gone, order=at)])
    assert MEANINGS[said.reason].budget is not Budget.USER


@given(cases, st.sampled_from([Reason.PREEMPTED, Reason.MAINTENANCE, Reason.HOST_LOST]), st.floats(0, 100))
def test_verdict_hardware_that_the_place_took_is_the_reason_whatever_the_logs_say(case, taken, at):
    said = verdict([*case.hosts, HostEnd("gone", 143, at, taken=taken)])
    assert (said.reason, said.host) == (taken, "gone")


@given(st.lists(st.sampled_from(FOLLOWERS), min_size=2, max_size=5), st.sampled_from([1, 134, 139]))
def test_verdict_peers_that_lost_each_other_are_never_charged(tails, code):
    said = verdict([_follower(f"host-{n}", n, tail, code) for n, tail in enumerate(tails)])
    assert said.reason is Reason.PEER_LOST


def test_verdict_error_that_was_logged_and_survived_is_not_why_a_peer_was_lost():
    survived = (
        "ERROR:root:the shard could not be read",
        "Traceback (most recent call last):",
        '  File "/code/data.py", line 7, in read',
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "INFO:root:retrying",
        "step 40 loss 2.1",
    )
    hosts = [_follower(f"host-{n}", n, (*survived, *tail), 134) for n, tail in enumerate(FOLLOWERS[:2])]
    assert verdict(hosts).reason is Reason.PEER_LOST


def test_verdict_error_that_was_raised_from_a_lost_peer_is_a_lost_peer():
    tail = (
        "Traceback (most recent call last):",
        '  File "/code/train.py", line 7, in step',
        "jax.errors.JaxRuntimeError: UNKNOWN: Gloo all-reduce failed: [gloo/transport/tcp/pair.cc:547]",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/code/train.py", line 9, in <module>',
        "RuntimeError: training failed at step 7",
    )
    assert verdict([_follower("a", 1, tail, 1), _follower("b", 2, tail, 1)]).reason is Reason.PEER_LOST


BIND = "E1115 add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved for '127.0.0.1:{}'"


@pytest.mark.parametrize(
    ("own", "said", "reason"),
    [(41234, 41234, Reason.PORT_LOST), (41234, 6006, Reason.PORT_IN_USE), (0, 41234, Reason.PORT_IN_USE)],
    ids=["the port that tpukit chose", "a port of the program", "tpukit chose none"],
)
def test_verdict_port_in_use_is_charged_only_where_it_was_not_ours(own, said, reason):
    line = f"{BIND.format(said)} (Error in bind for address: Address already in use)"
    hosts = [HostEnd("a", 139, 1, own_port=own, tail=[line]), HostEnd("b", 143, 2, signalled_by_us=True, own_port=own)]
    assert (verdict(hosts).reason, verdict(hosts).host) == (reason, "a")


@given(st.lists(st.text(max_size=80), max_size=30))
def test_read_any_lines_give_a_reading(lines):
    assert len(log_tail.read(lines).words) <= log_tail.WORDS_MOST
