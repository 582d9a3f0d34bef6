"""Requests to hosts over real SSH: only with Google's host key and a known user key, and after reconnects."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from support import terminal
from support.tpu_vm_world import TpuVms
from support.waiting import PATIENCE, until
from tpukit.core import paths
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Denied, Transient
from tpukit.google.tpu_vm import Client
from tpukit.jobs import plan
from tpukit.jobs.plan import VmTarget
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Attempt, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store.home import open_store
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.places.tpu_vm.channel import Call, Login
from tpukit.places.tpu_vm.ssh import CONFIG, Ssh

REQUEST = {"do": "prepare", "job": "try-1", "attempt": 0}


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        made.make("one")
        yield made


@pytest.fixture
def ssh(vms: TpuVms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ssh]:
    monkeypatch.setenv(CONFIG, vms.emulator.environment()[CONFIG])
    vms.key.write_private_key(str(tmp_path / "key"))
    channel = Ssh(tmp_path, str(tmp_path / "key"))
    yield channel
    channel.close()


def login(vms: TpuVms, user: str = "ada", key: str = "") -> Login:
    attributes = vms.ask(
        "POST", "tpu/v2/projects/tpu-project/locations/us-central2-b/nodes/one:getGuestAttributes", {"workerIds": [""]}
    )
    items = attributes["guestAttributes"][0]["queryValue"]["items"]
    keys = [f"{one['key']} {one['value']}" for one in items if one["namespace"] == "hostkeys"]
    return Login(vms.address("one"), user, (key,) if key else tuple(keys))


def test_command_is_run_with_its_words_as_they_are_and_its_exit_code_comes_back(vms, ssh, capfd):
    words = ["sh", "-c", 'printf "%s\\n" "$@"; echo wrong >&2; exit 7', "x", "a  b; $HOME", "it's"]
    assert ssh.attached(login(vms), words, terminal=False) == 7
    assert capfd.readouterr() == ("a  b; $HOME\nit's\n", "wrong\n")


def test_exec_opens_a_shell_with_a_terminal_on_a_host_of_a_job_and_its_exit_code_comes_back(
    vms, ssh, tmp_path, monkeypatch
):
    own = {"project": "tpu-project", "zone": "us-central2-b", "ssh_user": "ada", "ssh_key": str(tmp_path / "key")}
    own["external_ips"] = True
    (tmp_path / "settings.yaml").write_text(json.dumps(own))
    for name, value in {**vms.emulator.environment(), "TPUKIT_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    place = TpuVmPlace(paths.data(), SystemClock(), lambda: "store")
    spec = JobSpec.from_json({"name": "train", "tpu": "v4-8", "command": ["true"]})
    made = replace(plan.make(spec, Settings.from_json(own), "tpu-vm"), target=VmTarget("", "", "", ("one",)))
    made = place.prepare(made)
    place.close()
    running = Attempt(0, stage=0, origin=0, state=State.RUNNING)
    store = open_store("sqlite", paths.state())
    store.create(JOBS, made.id, Job(made.id, "tpu-vm", "", "ada", 1.0, made.to_json(), attempts=(running,)))
    store.close()
    env = {**os.environ, "TPUKIT_SETTINGS": str(tmp_path / "settings.yaml"), "TERM": "xterm"}
    argv = [sys.executable, "-m", "tpukit", "job", "exec", "train", "0-0"]
    line = "test -t 0 && test -t 1 && echo a terminal: $((6 * 7)); exit 5"
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    typed = terminal.run(argv, env, tmp_path, answers={r"[$#] $": line}, seconds=PATIENCE)
    assert typed.code == 5, typed.text
    assert "a terminal: 42" in typed.text
    words = ["--", "sh", "-c", 'printf "%s\\n" "$@"; exit 7', "x", "a  b; $HOME"]
    done = subprocess.run([*argv, *words], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "a  b; $HOME\n"), done.stderr


def test_host_is_asked_before_and_after_its_connection_was_cut(vms, ssh):
    call = Call(login(vms), REQUEST)
    assert ssh.ask([call, call]) == ssh.ask([call, call])
    for task in ssh._connections.values():
        task.get_loop().call_soon_threadsafe(task.result().abort)
    (answer,) = ssh.ask([call])
    assert answer["held"] is None and answer["boot"]


def test_host_with_another_key_than_google_has_of_it_is_refused(vms, ssh):
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key("openssh").decode()
    (answer,) = ssh.ask([Call(login(vms, key=other), REQUEST)])
    assert isinstance(answer, Denied) and "unexpected SSH host key" in answer.message


def test_host_that_does_not_know_us_says_so_and_others_are_answered_all_the_same(vms, ssh):
    nowhere = Login("127.0.0.99", "ada", login(vms).host_keys)
    refused, lost, answered = ssh.ask(
        [Call(login(vms, user="eve"), REQUEST), Call(nowhere, REQUEST), Call(login(vms), REQUEST)]
    )
    assert isinstance(refused, Denied) and "eve" in refused.message
    assert isinstance(lost, Transient)
    assert isinstance(answered, dict)


def test_thread_that_waits_for_a_host_is_told_when_the_channel_is_closed(vms, ssh, monkeypatch):
    monkeypatch.delenv(CONFIG)
    monkeypatch.setattr("tpukit.places.tpu_vm.ssh.CONNECT_SECONDS", 1000.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        real = asyncssh.connect
        monkeypatch.setattr(asyncssh, "connect", lambda host, **more: real(host, mute.getsockname()[1], **more))
        answers: list[object] = []

        def ask() -> None:
            try:
                ssh.ask([Call(Login("127.0.0.1", "ada", login(vms).host_keys), REQUEST)])
            except Transient as error:
                answers.append(error.message)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        with mute.accept()[0]:
            ssh.close()
            thread.join(PATIENCE)
    assert answers == ["the connections were closed before a response arrived"]


def test_project_with_os_login_knows_our_key_and_says_who_we_are(vms, ssh, monkeypatch):
    for name, value in vms.emulator.environment().items():
        monkeypatch.setenv(name, value)
    cloud = Client("tpu-project")
    assert cloud.login(ssh.public_key()) == ""  # OS Login is off
    project = "compute/v1/projects/tpu-project"
    fingerprint = vms.ask("GET", project)["commonInstanceMetadata"]["fingerprint"]
    items = [{"key": "enable-oslogin", "value": "TRUE"}]
    vms.ask("POST", f"{project}/setCommonInstanceMetadata", {"fingerprint": fingerprint, "items": items})
    until(lambda: vms.ask("GET", project)["commonInstanceMetadata"].get("items") == items, "OS Login to be on")

    def refused() -> bool:
        (answer,) = ssh.ask([Call(login(vms), REQUEST)])
        ssh._drop(login(vms))
        return isinstance(answer, Denied)

    until(refused, "the key in metadata to count for nothing")
    name = cloud.login(ssh.public_key())
    assert name == "owner_example_com"

    def answered() -> bool:
        (answer,) = ssh.ask([Call(login(vms, user=name), REQUEST)])
        return isinstance(answer, dict)

    until(answered, "OS Login to let us in")
