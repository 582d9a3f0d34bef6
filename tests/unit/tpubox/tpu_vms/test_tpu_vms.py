"""TPU VMs of the emulator as hosts: access, programs, and a host's information about itself."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from support.tpu_vm_world import NODES, OPENER, PROJECT, V4_8, V4_16, TpuVms
from support.waiting import until
from tpubox.tpu_vms import processes


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        made.make("pair", V4_16)
        yield made


def test_each_worker_runs_commands_as_the_user_with_its_own_home(vms):
    command = "pwd; echo $USER; echo oops >&2; echo $SSH_CONNECTION > ~/file; exit 3"
    answers = [vms.ssh("pair", command, worker) for worker in (0, 1)]
    assert [answer.exit_status for answer in answers] == [3, 3]
    assert {answer.stderr for answer in answers} == {"oops\n"}
    assert {answer.stdout for answer in answers} == {"/home/ada\nada\n"}
    for worker in (0, 1):
        assert vms.address("pair", worker) in (vms.home("pair", worker) / "file").read_text()


def test_nobody_gets_in_without_the_right_key(vms):
    with pytest.raises(asyncssh.PermissionDenied):
        vms.ssh("pair", "true", key=asyncssh.generate_private_key("ssh-ed25519"))
    with pytest.raises(asyncssh.PermissionDenied):
        vms.ssh("pair", "true", user="eve")


def test_metadata_server_tells_a_worker_who_and_where_it_is(vms):
    assert vms.metadata("pair", "instance/attributes/agent-worker-number", 1) == "1"
    peers = ",".join(f"unknown:unknown:{vms.address('pair', worker)}" for worker in (0, 1))
    assert vms.metadata("pair", "instance/attributes/worker-network-endpoints") == peers
    assert "NODE_ID: 'pair'\n" in vms.metadata("pair", "instance/attributes/tpu-env")
    assert vms.metadata("pair", "instance/attributes/accelerator-type") == "v4-16"
    account = json.loads(vms.metadata("pair", "instance/service-accounts/default/?recursive=true"))
    assert account["email"].endswith("-compute@developer.gserviceaccount.com")


def test_metadata_server_refuses_who_does_not_say_the_header(vms):
    with pytest.raises(urllib.error.HTTPError) as refused:
        vms.metadata("pair", "instance/id", headers={"X-Other": "1"})
    assert refused.value.code == 403


def test_metadata_server_lists_folders_and_answers_recursively(vms):
    assert "attributes/\n" in vms.metadata("pair", "instance/")
    assert vms.metadata("pair", "instance/attributes") == vms.metadata("pair", "instance/attributes/")  # redirected
    everything = json.loads(vms.metadata("pair", "instance/?recursive=true"))
    assert everything["attributes"]["agent-worker-number"] == "0"
    assert everything["networkInterfaces"][0]["ip"] == vms.address("pair")
    assert everything["serviceAccounts"]["default"]["scopes"]
    assert vms.metadata("pair", "project/project-id") == PROJECT
    with pytest.raises(urllib.error.HTTPError) as missing:
        vms.metadata("pair", "instance/attributes/nothing")
    assert missing.value.code == 404


def test_guest_attribute_that_a_program_writes_is_in_the_api(vms):
    vms.metadata("pair", "instance/guest-attributes/mine/step", 1, method="PUT", data=b"40")
    assert vms.metadata("pair", "instance/guest-attributes/mine/step", 1) == "40"
    body = {"workerIds": ["1"], "queryPath": "mine/"}

    def items() -> Any:
        answer = vms.ask("POST", f"{NODES}/pair:getGuestAttributes", body)
        return answer["guestAttributes"][0]["queryValue"]["items"]

    assert until(items) == [{"namespace": "mine", "key": "step", "value": "40"}]


def test_token_of_the_metadata_server_is_that_of_the_nodes_account(vms):
    token = json.loads(vms.metadata("pair", "instance/service-accounts/default/token"))
    request = urllib.request.Request(
        f"{vms.emulator.address}/{NODES}", headers={"Authorization": f"Bearer {token['access_token']}"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused, OPENER.open(request):
        pass
    with refused.value:
        assert refused.value.code == 403  # known, but without any grant
    claims = vms.metadata("pair", "instance/service-accounts/default/identity?audience=https://me").split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["aud"] == "https://me"


def test_key_that_is_taken_away_opens_nothing_from_then_on(vms):
    vms.make("strict")
    assert vms.ssh("strict", "true").exit_status == 0
    vms.ask("PATCH", f"{NODES}/strict?updateMask=metadata", {"metadata": {}})
    with pytest.raises(asyncssh.PermissionDenied):
        vms.ssh("strict", "true")
    project = f"compute/v1/projects/{PROJECT}"
    fingerprint = vms.ask("GET", project)["commonInstanceMetadata"]["fingerprint"]
    items = [{"key": "ssh-keys", "value": f"bob:{vms.public_key}"}]
    vms.ask("POST", f"{project}/setCommonInstanceMetadata", {"fingerprint": fingerprint, "items": items})
    assert vms.ssh("strict", "echo $USER", user="bob").stdout == "bob\n"


def test_program_killed_by_a_signal_says_which(vms):
    done = vms.ssh("pair", "kill -9 $$")
    assert (done.exit_signal[0], done.returncode) == ("KILL", -9)


def test_session_finds_what_jax_needs_and_no_proxy(vms, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    env = dict(line.partition("=")[::2] for line in vms.ssh("pair", "env", 1).stdout.splitlines())
    assert (env["JAX_PLATFORMS"], env["JAX_NUM_CPU_DEVICES"]) == ("cpu", "4")
    assert env["JAX_COORDINATOR_BIND_ADDRESS"] == f"{vms.address('pair', 1)}:8482"
    assert env["GCE_METADATA_HOST"].startswith(vms.address("pair", 1))
    assert not [name for name in env if "proxy" in name.lower()]


def test_node_that_need_not_run_anything_has_no_hosts(vms):
    made = vms.make("paper", {**V4_16, "labels": {"tpukit-simulated": "true"}})
    assert made["state"] == "READY"
    assert not vms.emulator.hypervisor.has_hosts(made["name"])


def test_emulator_without_tpu_vms_starts_no_process_for_them(tmp_path):
    before = set(processes.descendants(os.getpid()))
    with TpuVms(tmp_path) as quiet:
        assert quiet.ask("GET", NODES) == {"nodes": []}
        assert quiet.emulator.hypervisor.network is None
        assert set(processes.descendants(os.getpid())) <= before


def test_host_has_its_own_temporary_files_and_not_those_of_this_machine(vms, tmp_path):
    assert vms.ssh("pair", f"ls {tmp_path}").exit_status == 2
    vms.ssh("pair", "echo one > /tmp/file", 0)
    assert vms.ssh("pair", "ls /tmp/file", 1).exit_status == 2
    assert not Path("/tmp/file").exists()


def test_hosts_have_names_of_their_own_and_know_each_other_by_them(vms):
    names = [vms.ssh("pair", "hostname", worker).stdout.strip() for worker in (0, 1)]
    assert [name.rpartition("-")[2] for name in names] == ["0", "1"]
    assert names[1] != socket.gethostname()
    assert vms.metadata("pair", "instance/name", 1) == names[1]
    found = vms.ssh("pair", f"getent hosts {names[1]}", 0).stdout
    assert found.split()[0] == vms.address("pair", 1)


def test_files_travel_by_sftp_to_where_the_user_says(vms, tmp_path):
    content = os.urandom(300_000)
    (tmp_path / "file").write_bytes(content)

    async def copy() -> bytes:
        async with await vms.connect("pair") as connection, connection.start_sftp_client() as sftp:
            await sftp.put(tmp_path / "file", "copy")
            await sftp.get("/home/ada/copy", tmp_path / "back")
            return (tmp_path / "back").read_bytes()

    assert asyncio.run(copy()) == content
    assert (vms.home("pair") / "copy").read_bytes() == content


def test_client_can_signal_what_it_started(vms):
    async def stop() -> asyncssh.SSHCompletedProcess:
        async with await vms.connect("pair") as connection:
            process = await connection.create_process("echo ready; exec sleep 1000")
            await process.stdout.readline()
            process.terminate()
            return await process.wait()

    assert asyncio.run(stop()).exit_signal[0] == "TERM"


def test_command_with_a_terminal_sees_its_size(vms):
    async def size() -> Any:
        async with await vms.connect("pair") as connection:
            return (await connection.run("stty size; tty", term_type="xterm", term_size=(120, 40))).stdout

    rows, name = asyncio.run(size()).split("\r\n")[:2]
    assert (rows, name.startswith("/dev/pts/")) == ("40 120", True)


def test_ssh_configuration_leads_to_a_host_by_name_and_has_its_key(vms):
    config = vms.emulator.hypervisor.ssh.file
    until(lambda: "pair-w-1" in config.read_text())

    async def name() -> Any:
        connecting = asyncssh.connect(
            "pair-w-1", username="ada", client_keys=[vms.key], config=[str(config)], agent_path=None
        )
        async with connecting as connection:
            return (await connection.run("hostname")).stdout

    assert asyncio.run(name()).strip() == vms.metadata("pair", "instance/name", 1)


def test_chips_are_on_the_bus_of_a_host(vms):
    assert vms.ssh("pair", "cat /sys/bus/pci/devices/*/vendor").stdout == "0x1ae0\n" * 4


def test_data_disk_is_mounted_until_the_next_boot_and_outlives_its_node(vms):
    disk = {"sourceDisk": f"projects/{PROJECT}/zones/us-central2-b/disks/data", "mode": "READ_WRITE"}
    mount = "sudo mkdir -p /mnt/disks/data && sudo mount -o discard,defaults /dev/sdb /mnt/disks/data"
    vms.make("first", {**V4_8, "dataDisks": [disk]})
    done = vms.ssh("first", f"{mount} && mountpoint -q /mnt/disks/data && echo kilo > /mnt/disks/data/file")
    assert done.exit_status == 0, done.stderr
    vms.ask("POST", "emulator/tpu-vms", {"action": "crash", "node": "first"})
    assert vms.ssh("first", "mountpoint -q /mnt/disks/data").exit_status != 0
    vms.ask("DELETE", f"{NODES}/first")
    vms.make("second", {**V4_8, "dataDisks": [{**disk, "mode": "READ_ONLY"}]})
    done = vms.ssh("second", f"{mount}; cat /mnt/disks/data/file; touch /mnt/disks/data/new")
    assert (done.stdout, "Read-only file system" in done.stderr) == ("kilo\n", True)
    assert "special device /dev/sdc does not exist" in vms.ssh("second", "sudo mount /dev/sdc /mnt").stderr


def test_disk_to_write_on_is_refused_for_several_hosts(vms):
    disk = {"sourceDisk": f"projects/{PROJECT}/zones/us-central2-b/disks/data", "mode": "READ_WRITE"}
    status, answer = vms.send("POST", f"{NODES}?nodeId=several", {**V4_16, "dataDisks": [disk]})
    assert (status, "READ_ONLY" in answer["error"]["message"]) == (400, True)


def test_share_of_a_server_is_the_same_on_all_hosts(vms):
    mount = "sudo mkdir -p /mnt/nfs && sudo mount -t nfs 10.0.0.2:/share /mnt/nfs"
    assert vms.ssh("pair", f"{mount} && echo all > /mnt/nfs/file", 0).exit_status == 0
    assert vms.ssh("pair", f"{mount} && cat /mnt/nfs/file && sudo umount /mnt/nfs", 1).stdout == "all\n"
    assert vms.ssh("pair", "ls /mnt/nfs", 1).stdout == ""


def test_machine_without_namespaces_has_hosts_with_homes_in_its_folders(tmp_path):
    with TpuVms(tmp_path, vm_views=False) as plain:
        plain.make("vm")
        assert plain.ssh("vm", "pwd").stdout.strip() == str(plain.home("vm"))
        assert plain.ssh("vm", "echo $PYTHONPATH").stdout.strip().endswith("/site")
        assert "no mount namespaces" in plain.ssh("vm", "mkdir d; mount /dev/sdb d").stderr
