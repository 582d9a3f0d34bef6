"""Faults of TPU VM hosts: each takes away exactly what it should."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tpukit
from support.tpu_vm_world import NODES, OPENER, PROJECT, V4_16, TpuVms
from support.waiting import PATIENCE, until
from tpubox.box import fault_commands
from tpubox.box.folder import Folder
from tpubox.tpu_vms import processes
from tpukit.core.errors import Invalid

SLEEPER = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        yield made


def strike(vms: TpuVms, action: str, node: str, **words: Any) -> Any:
    return vms.ask("POST", "emulator/tpu-vms", {"action": action, "node": node, **words})


def sleeper(vms: TpuVms, node: str, worker: int = 0) -> int:
    """Start a process that left its session and outlives its connection, and return its id."""
    return int(vms.ssh(node, SLEEPER, worker).stdout)


def lives(pid: int) -> bool:
    return bool(processes.started(pid))


def refused(vms: TpuVms, node: str, address: str = "") -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((address or vms.address(node), vms.ssh_port)) != 0


def test_process_outlives_its_connection_and_goes_with_its_node(vms):
    vms.make("short")
    address, pid = vms.address("short"), sleeper(vms, "short")
    assert lives(pid)
    folder = vms.home("short")
    assert folder.exists()
    vms.ask("DELETE", f"{NODES}/short")
    until(lambda: not lives(pid))
    until(lambda: refused(vms, "short", address))  # its server stops after its processes
    until(lambda: not folder.exists())


def test_preemption_gives_notice_then_a_signal_then_takes_everything(vms):
    vms.make("spot", V4_16)
    stubborn = vms.ssh("spot", "trap '' TERM; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!", 1)
    saves = "setsid bash -c 'trap \"echo saved > ~/note; exit\" TERM; while :; do sleep 0.05; done'"
    polite = int(vms.ssh("spot", f"{saves} </dev/null >/dev/null 2>&1 & echo $!").stdout)
    home = vms.home("spot")
    notices: list[str] = []
    now, etag = vms.metadata_with_etag("spot", "instance/preempted", 1)
    assert now == "FALSE"
    path = f"instance/preempted?wait_for_change=true&timeout_sec=60&last_etag={etag}"
    waiter = threading.Thread(target=lambda: notices.append(vms.metadata("spot", path, 1)))
    waiter.start()
    strike(vms, "preempt", "spot", grace=4)
    waiter.join()
    assert notices == ["TRUE"]
    assert vms.node("spot")["state"] == "READY"
    until(lambda: (home / "note").exists() or not home.exists())
    until(lambda: vms.node("spot")["state"] == "PREEMPTED")
    assert not lives(polite)
    assert not lives(int(stubborn.stdout))
    until(lambda: refused(vms, "spot"))
    until(lambda: not home.exists())


def test_preemption_that_the_api_knows_first_still_leaves_the_hosts_their_time(vms):
    vms.make("early")
    pid = int(vms.ssh("early", "trap '' TERM; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!").stdout)
    strike(vms, "preempt", "early", grace=4, after=0)
    until(lambda: vms.node("early")["state"] == "PREEMPTED")
    assert lives(pid)
    until(lambda: not lives(pid))


def test_machines_that_were_lent_for_a_while_shut_down_at_its_end_and_are_gone(vms):
    vms.make("warm")
    vms.ssh("warm", "true")  # the first host starts slowly, which would use up the run duration
    alpha = NODES.replace("/v2/", "/v2alpha1/").removesuffix("/nodes") + "/queuedResources"
    body = {"tpu": {"nodeSpec": [{"nodeId": "lent", "node": V4_16}]}, "runDuration": {"maxRunDuration": "10s"}}
    vms.ask("POST", f"{alpha}?queuedResourceId=lent", body)
    until(lambda: vms.ask("GET", f"{alpha}/lent")["state"]["state"] == "ACTIVE")
    address, node = vms.address("lent"), vms.node("lent")["name"]
    until(lambda: vms.emulator.hypervisor.has_hosts(node))
    until(lambda: vms.ask("GET", f"{alpha}/lent")["state"]["state"] == "SUSPENDED")
    assert not vms.emulator.hypervisor.has_hosts(node)
    assert refused(vms, "lent", address)
    assert vms.send("GET", f"{NODES}/lent")[0] == 404


def test_repair_takes_processes_and_keeps_disk_and_host_key(vms):
    vms.make("broken")
    pid = sleeper(vms, "broken")
    vms.ssh("broken", "echo data > file")
    strike(vms, "repair", "broken", seconds=4)
    assert vms.node("broken")["state"] == "REPAIRING"
    until(lambda: not lives(pid))
    until(lambda: vms.node("broken")["state"] == "READY")
    until(lambda: not refused(vms, "broken"))
    assert vms.ssh("broken", "cat file").stdout == "data\n"  # the connection checks the published host key


def test_maintenance_is_announced_and_takes_only_the_workers_it_names(vms):
    vms.make("pair", V4_16)
    gone, stays = sleeper(vms, "pair", 1), sleeper(vms, "pair", 0)
    strike(vms, "maintenance", "pair", worker=1, notice=4, seconds=1, grace=1)
    node = vms.node("pair")
    assert (node["health"], node["upcomingMaintenance"]["maintenanceStatus"]) == ("UNHEALTHY_MAINTENANCE", "PENDING")
    assert vms.metadata("pair", "instance/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE"
    assert json.loads(vms.metadata("pair", "instance/upcoming-maintenance"))["maintenance_status"] == "PENDING"
    until(lambda: not lives(gone))
    until(lambda: vms.node("pair")["health"] == "HEALTHY")
    until(lambda: vms.metadata("pair", "instance/maintenance-event") == "NONE")
    assert lives(stays)
    until(lambda: not refused(vms, "pair", vms.address("pair", 1)))
    assert vms.ssh("pair", "echo back", 1).stdout == "back\n"


def test_simulated_maintenance_event_is_an_alpha_method(vms):
    vms.make("alpha")
    assert vms.send("POST", f"{NODES}/alpha:simulateMaintenanceEvent", {"workerIds": ["0"]})[0] == 404
    alpha = NODES.replace("/v2/", "/v2alpha1/")
    vms.ask("POST", f"{alpha}/alpha:simulateMaintenanceEvent", {"workerIds": ["0"]})
    assert vms.node("alpha")["health"] == "UNHEALTHY_MAINTENANCE"
    assert vms.send("POST", f"{alpha}/alpha:simulateMaintenanceEvent", {"workerIds": ["7"]})[0] == 400


def test_unhealthy_node_goes_on_running_with_symptoms(vms):
    vms.make("sick")
    pid = sleeper(vms, "sick")
    strike(vms, "unhealthy", "sick", symptom="HBM_OUT_OF_MEMORY", details="16 GiB")
    node = vms.node("sick")
    assert (node["health"], node["symptoms"][0]["symptomType"]) == ("UNHEALTHY_TENSORFLOW", "HBM_OUT_OF_MEMORY")
    assert lives(pid)
    strike(vms, "restore", "sick")
    assert (vms.node("sick")["health"], vms.node("sick").get("symptoms")) == ("HEALTHY", None)


def test_frozen_host_takes_connections_and_says_nothing_until_restored(vms):
    vms.make("ice")
    pid = sleeper(vms, "ice")

    async def talk() -> None:
        async with await vms.connect("ice") as connection:
            await asyncio.to_thread(strike, vms, "freeze", "ice")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.run("true"), 0.5)
            assert state_of(pid) == "T"
            assert not await asyncio.to_thread(refused, vms, "ice")
            await asyncio.to_thread(strike, vms, "restore", "ice")
            assert (await connection.run("echo thawed")).stdout == "thawed\n"

    asyncio.run(talk())
    assert lives(pid)


def test_unreachable_host_answers_nobody_while_its_programs_go_on(vms):
    vms.make("dark")
    ticks = "setsid bash -c 'while :; do date +%s.%N > ~/tick; sleep 0.05; done' </dev/null >/dev/null 2>&1 &"
    vms.ssh("dark", ticks)
    file = vms.home("dark") / "tick"
    until(file.exists)
    strike(vms, "unreachable", "dark")
    probe = socket.socket()
    probe.settimeout(1.0)
    with probe, pytest.raises(TimeoutError):
        probe.connect((vms.address("dark"), vms.ssh_port))
    before = file.read_text()
    until(lambda: file.read_text() not in ("", before))
    strike(vms, "restore", "dark")
    assert vms.ssh("dark", "echo seen").stdout == "seen\n"


def test_crashed_host_boots_again_without_its_programs(vms):
    vms.make("crash", **{"startup-script": "echo booted >> ~/boots"})
    pid = sleeper(vms, "crash")
    boots = vms.home("crash", user="root") / "boots"
    until(lambda: boots.exists() and boots.read_text() == "booted\n")
    strike(vms, "crash", "crash")
    assert not lives(pid)
    until(lambda: boots.read_text() == "booted\nbooted\n")
    assert vms.node("crash")["state"] == "READY"


def test_connection_that_is_open_at_a_preemption_is_cut(vms):
    vms.make("cut")

    async def talk() -> None:
        connection = await vms.connect("cut")
        process = await connection.create_process("trap '' TERM; sleep 1000")
        await asyncio.to_thread(strike, vms, "preempt", "cut", grace=0)
        await asyncio.wait_for(connection.wait_closed(), PATIENCE)
        assert process.exit_status is None
        with pytest.raises(OSError):
            await vms.connect("cut")

    asyncio.run(talk())


def test_killed_emulator_takes_its_hosts_along_frozen_ones_at_its_next_start(tmp_path):
    def start() -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            "tpubox.google",
            f"--folder={tmp_path}",
            f"--project={PROJECT}",
            "--api=*",
            "--seconds=0",
        ]
        env = {**os.environ, "PYTHONPATH": str(Path(tpukit.__file__).parents[1])}
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=env)
        assert process.stdout
        about.update(json.loads(process.stdout.readline()))
        process.stdout.close()
        return process

    def ask(method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {about['token']}"}
        request = urllib.request.Request(f"{about['address']}/{path}", data, headers, method=method)
        with OPENER.open(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def hosts() -> list[int]:
        texts = [file.read_text() for file in tmp_path.glob("tpu-vms/*/*/pid")]
        return [int(text.split()[0]) for text in texts if text]  # one may be partly written

    about: dict[str, str] = {}
    first = start()
    ask("POST", f"{NODES}?nodeId=vm", V4_16)
    ask("POST", "emulator/tpu-vms", {"action": "freeze", "node": "vm", "worker": 1})
    awake, frozen = sorted(hosts(), key=lambda pid: state_of(pid) == "T")
    first.kill()
    first.wait()
    until(lambda: not lives(awake))
    assert lives(frozen)
    second = start()
    until(lambda: not lives(frozen))
    until(lambda: len([pid for pid in hosts() if lives(pid)]) == 2)
    last = hosts()
    second.terminate()
    second.wait()
    assert not [pid for pid in last if lives(pid)]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_restarted_emulator_boots_its_vms_with_their_disks(tmp_path):
    with TpuVms(tmp_path) as first:
        first.make("vm")
        pid = sleeper(first, "vm")
        first.ssh("vm", "echo data > file")
        key = first.key
    assert not lives(pid)
    with TpuVms(tmp_path) as second:
        second.key = key
        until(lambda: second.emulator.hypervisor.has_hosts(second.node("vm")["name"]))
        until(lambda: not refused(second, "vm"))
        assert second.ssh("vm", "cat file").stdout == "data\n"


def test_command_line_reaches_a_vm_and_says_what_is_wrong(vms, tmp_path):
    vms.make("ordered")
    (tmp_path / "token").write_text(vms.emulator.token)
    place = Folder(tmp_path, {"google": vms.emulator.port})
    assert fault_commands.strike_vm(place, "unhealthy", "ordered", worker=0)["health"] == "UNHEALTHY_TENSORFLOW"
    with pytest.raises(Invalid, match="has no worker 3"):
        fault_commands.strike_vm(place, "freeze", "ordered", worker=3)
    with pytest.raises(Invalid, match="there are 0 TPU VMs nobody"):
        fault_commands.strike_vm(place, "freeze", "nobody")
    with pytest.raises(Invalid, match="cannot be told"):
        fault_commands.strike_vm(place, "crash", "ordered", grace=3)
