"""Time without movement of hosts is counted from evidence alone, and only for hosts with evidence."""

from __future__ import annotations

from tpukit.jobs.controller.liveness import MOST_AT_ONCE, Liveness
from tpukit.places.base import HostView


def host(name: str = "h", **fields: object) -> HostView:
    return HostView(name, 0, 0, "running", **fields)


def test_count_step_that_does_not_move_adds_up_between_reads():
    liveness = Liveness()
    idle = [liveness.count("j", 0, [host(step=1, heard=at)])[0].idle for at in (10.0, 12.0, 15.0)]
    assert idle == [0.0, 2.0, 5.0]


def test_count_step_that_moves_begins_anew():
    liveness = Liveness()
    for at in (10.0, 15.0):
        liveness.count("j", 0, [host(step=1, heard=at)])
    assert liveness.count("j", 0, [host(step=2, heard=20.0)])[0].idle == 0.0


def test_count_long_silence_counts_only_so_much():
    liveness = Liveness()
    liveness.count("j", 0, [host(step=1, heard=10.0)])
    assert liveness.count("j", 0, [host(step=1, heard=1000.0)])[0].idle == MOST_AT_ONCE


def test_count_hosts_that_were_never_read_are_the_same_objects_and_cost_no_memory():
    liveness = Liveness()
    hosts = [host(f"h{number}") for number in range(1000)]
    counted = liveness.count("j", 0, hosts)
    assert all(one is before for one, before in zip(counted, hosts, strict=True))
    assert not liveness._last


def test_count_host_first_read_late_has_not_been_idle_before():
    liveness = Liveness()
    liveness.count("j", 0, [host()])
    assert liveness.count("j", 0, [host(heard=500.0)])[0].idle == 0.0


def test_keep_only_forgets_jobs_that_are_driven_no_more():
    liveness = Liveness()
    liveness.count("j", 0, [host(step=1, heard=10.0)])
    liveness.keep_only(["other"])
    assert liveness.count("j", 0, [host(step=1, heard=15.0)])[0].idle == 0.0
