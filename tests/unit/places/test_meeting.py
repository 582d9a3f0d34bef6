"""Hosts that never met: those without a connection to any other host."""

from __future__ import annotations

import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from tpukit.places import meeting
from tpukit.places.meeting import SECONDS, Meeting, alone, connections


@given(st.integers(2, 6), st.integers(0, 5))
def test_alone_hosts_around_a_coordinator_have_met_and_one_without_has_not(count, coordinator):
    coordinator %= count
    links = {name: ({(f"a:{name}", "a:0")} if name != coordinator else set()) for name in range(count)}
    links[coordinator] |= {("a:0", f"a:{name}") for name in range(count) if name != coordinator}
    hosts = {str(name): ends for name, ends in links.items()}
    assert alone(hosts) == []
    assert alone({**hosts, "other": {("a:9", "b:443")}}) == ["other"]


def test_alone_hosts_that_only_talk_to_the_same_server_have_not_met():
    assert alone({"one": {("a:1", "b:443")}, "other": {("a:2", "b:443")}}) == ["one", "other"]


def test_connections_of_this_process_have_both_ends():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        held, _ = server.accept()
        with held:
            mine = connections([os.getpid()])
            port = f"{client.getsockname()[1]:04X}"
            assert {ends for ends in mine if ends[0].endswith(port)}
            assert {ends for ends in mine if ends[1].endswith(port)}


def test_meeting_says_nothing_before_the_second_check_and_nothing_of_programs_without_jax(monkeypatch):
    hosts = {"one": [os.getpid()], "other": [os.getppid()]}
    plain = Meeting()
    plain.check(hosts, 0.0)
    plain.check(hosts, SECONDS)
    assert plain.warning == ""
    monkeypatch.setattr(meeting, "_loads_jax", lambda pid: True)
    monkeypatch.setattr(meeting, "connections", lambda pids: set())
    seen = Meeting()
    seen.check(hosts, 0.0)
    seen.check(hosts, SECONDS / 2)
    assert seen.warning == ""
    seen.check(hosts, SECONDS)
    assert "each trains alone" in seen.warning
