"""TPU VMs of the emulator as hosts: who gets in, what runs there, and what a host knows about itself."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator

import asyncssh
import pytest

from unit.tpu_vm_world import V4_16, TpuVms


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        made.make("pair", V4_16)
        yield made


def test_each_worker_runs_commands_as_the_user_with_its_own_home(vms):
    answers = [vms.ssh("pair", "pwd; echo $USER; echo oops >&2; exit 3", worker) for worker in (0, 1)]
    assert [answer.exit_status for answer in answers] == [3, 3]
    assert {answer.stderr for answer in answers} == {"oops\n"}
    homes = [answer.stdout.splitlines()[0] for answer in answers]
    assert len(set(homes)) == 2
    assert {answer.stdout.splitlines()[1] for answer in answers} == {"ada"}
    assert all(home.endswith("/home/ada") for home in homes)


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
