"""TPU VMs of the emulator as hosts: who gets in, what runs there, and what a host knows about itself."""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import asyncssh
import pytest

from tpukit.sandbox.tpu_vms import processes
from unit.tpu_vm_world import NODES, OPENER, PROJECT, V4_16, TpuVms, eventually


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

    assert eventually(items) == [{"namespace": "mine", "key": "step", "value": "40"}]


def test_token_of_the_metadata_server_is_that_of_the_nodes_account(vms):
    token = json.loads(vms.metadata("pair", "instance/service-accounts/default/token"))
    request = urllib.request.Request(
        f"{vms.emulator.address}/{NODES}", headers={"Authorization": f"Bearer {token['access_token']}"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused, OPENER.open(request):
        pass
    with refused.value:
        assert refused.value.code == 403  # known, and nobody granted it anything
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
    made = vms.make("paper", {**V4_16, "labels": {"tpukit.dev/simulated": "true"}})
    assert made["state"] == "READY"
    assert not vms.emulator.hypervisor.has_hosts(made["name"])


def test_emulator_without_tpu_vms_starts_no_process_for_them(tmp_path):
    before = set(processes.descendants(os.getpid()))
    with TpuVms(tmp_path) as quiet:
        assert quiet.ask("GET", NODES) == {"nodes": []}
        assert quiet.emulator.hypervisor.network is None
        assert set(processes.descendants(os.getpid())) <= before
