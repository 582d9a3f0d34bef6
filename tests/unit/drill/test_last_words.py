"""Hosts that hang say where."""

from __future__ import annotations

import signal
import subprocess
import sys

from support.waiting import until
from tpukit.core.clock import SystemClock
from tpukit.drill import last_words, processes
from tpukit.drill.sites import Host

HANGS = """
import sys

def waits_for_a_peer():
    print("step 7", flush=True)
    sys.stdin.read()

waits_for_a_peer()
"""


def test_hosts_that_hang_leave_the_end_of_their_log_and_their_stack_even_if_stopped(tmp_path):
    hosts, started = [], []
    for number in range(2):
        log = tmp_path / f"log-{number}"
        argv = ["sh", "-c", '"$@"; exit 3', "sh", sys.executable, "-S", "-X", "faulthandler", "-c", HANGS]
        with log.open("w") as file:
            started.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=file, stderr=file))
        hosts.append(Host(0, number, 0, number, (log,), (started[-1].pid,)))
    until(lambda: all("step 7" in host.logs[0].read_text() for host in hosts))
    processes.signal_all(processes.family(hosts[1].pids), signal.SIGSTOP)
    said = last_words.of_hosts(hosts, SystemClock())
    for process in started:
        process.stdin.close()
        process.wait()
    assert sorted(said) == ["0-0", "0-1"]
    for text in said.values():
        assert text.startswith("step 7")
        assert "in waits_for_a_peer" in text
