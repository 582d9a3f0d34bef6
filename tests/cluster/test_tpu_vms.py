"""TPU VMs of the sandbox with real programs: OpenSSH, gcloud and JAX. Only the emulator runs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from support.tpu_vm_world import NODES, PROJECT, V4_16, TpuVms
from support.waiting import PATIENCE, until
from tpubox.tpu_vms import network, processes
from tpukit.places.local import processes as pods

ZONE = "us-central2-b"


@dataclass(frozen=True)
class Shell:
    """The environment of `tpu sandbox shell`, for a user with a separate home."""

    vms: TpuVms
    home: Path

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        hypervisor = self.vms.emulator.hypervisor
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CLOUDSDK_", "SSH_"))},
            **self.vms.emulator.environment(),
            "PATH": f"{hypervisor.ssh.programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "CLOUDSDK_CONFIG": str(self.home / "gcloud"),
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_COMPUTE_ZONE": ZONE,
        }
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        assert not check or done.returncode == 0, (argv, done.returncode, done.stdout, done.stderr)
        return done

    def ssh(self, target: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        words = ["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", str(self.home / "key"), *options]
        return self.run("ssh", *words, target, command, check=False)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    for program in ("ssh", "scp", "ssh-keygen", "gcloud"):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not on PATH: install OpenSSH's client (apt install openssh-client) and gcloud")
    home = tmp_path_factory.mktemp("home")
    # As for a user without root: port 22 is unavailable, so the wrappers have to set the port.
    usual, network.SSH_PORTS = network.SSH_PORTS, (9822, 9822)
    try:
        with TpuVms(tmp_path_factory.mktemp("google")) as vms:
            vms.key.write_private_key(str(home / "key"))
            (home / "key").chmod(0o600)
            external = {"networkConfig": {"enableExternalIps": True}}
            vms.make("pair", {**V4_16, **external})
            yield Shell(vms, home)
    finally:
        network.SSH_PORTS = usual


def test_ssh_gets_in_by_name_and_address_with_a_key_and_a_host_key_it_knows(shell):
    until(lambda: "pair-w-1" in shell.vms.emulator.hypervisor.ssh.file.read_text())
    by_name = shell.ssh("ada@pair-w-1", "echo $USER on $TPUKIT_SIMULATED_CHIPS; exit 7")
    assert (by_name.returncode, by_name.stdout) == (7, "ada on 4\n"), by_name.stderr
    strict = ("-o", "StrictHostKeyChecking=yes")
    assert shell.ssh(f"ada@{shell.vms.address('pair')}", "true", *strict).returncode == 0


def test_ssh_without_the_key_is_refused(shell):
    refused = shell.ssh("eve@pair-w-0", "true")
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr


def test_root_cannot_log_in_and_is_shown_the_way(shell):
    refused = shell.ssh("root@pair-w-0", "true")
    assert refused.returncode == 255
    assert "root cannot log in to a TPU VM: write USER@NAME" in refused.stderr


def test_scp_copies_both_ways_and_says_so(shell, tmp_path):
    (tmp_path / "file").write_bytes(os.urandom(100_000))
    words = ("-o", "BatchMode=yes", "-i", str(shell.home / "key"))
    shell.run("scp", *words, str(tmp_path / "file"), "ada@pair-w-0:~/copy")
    shell.run("scp", *words, "-O", "ada@pair-w-0:copy", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()


def test_ssh_with_a_terminal_gives_one(shell):
    done = shell.run(
        "ssh", "-tt", "-o", "BatchMode=yes", "-i", str(shell.home / "key"), "ada@pair-w-0", "tty; exit 3", check=False
    )
    assert done.returncode == 3
    assert done.stdout.startswith("/dev/pts/")


def test_gcloud_logs_in_to_all_workers_and_copies(shell, tmp_path):
    tpu_vm = ("gcloud", "compute", "tpus", "tpu-vm")
    (tmp_path / "file").write_text("data\n")
    shell.run(*tpu_vm, "scp", str(tmp_path / "file"), "bob@pair:", "--worker=all")
    done = shell.run(*tpu_vm, "ssh", "bob@pair", "--worker=all", "--command=cat file")
    assert done.stdout.splitlines().count("data") == 2, done
    keys = shell.vms.node("pair")["metadata"]["ssh-keys"]
    assert "bob:ssh-rsa " in keys
    assert "ada:" in keys


def test_gcloud_logs_in_with_os_login(shell):
    shell.vms.make("personal", **{"enable-oslogin": "TRUE"})
    tpu_vm = ("gcloud", "compute", "tpus", "tpu-vm")
    done = shell.run(*tpu_vm, "ssh", "personal", "--command=echo $USER")
    assert done.stdout == "owner_example_com\n"
    # OS Login ignores keys in metadata, although gcloud writes them.
    assert shell.ssh("ada@personal-w-0", "true").returncode == 255


def test_gcloud_refuses_a_preempted_vm(shell):
    shell.vms.make("gone")
    shell.vms.ask("POST", "emulator/tpu-vms", {"action": "preempt", "node": "gone", "grace": 0})
    until(lambda: shell.vms.node("gone")["state"] == "PREEMPTED")
    done = shell.run("gcloud", "compute", "tpus", "tpu-vm", "ssh", "gone", "--command=true", check=False)
    assert done.returncode == 1
    assert "terminal state" in done.stderr


PROGRAM = """
import jax
jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils
total = multihost_utils.process_allgather(jnp.array([jax.process_index()]))
print("RESULT", jax.process_index(), jax.process_count(), jax.local_device_count(), jax.device_count(), int(total.sum()))
"""  # noqa: E501
COMMAND = f"cat > program.py <<'END'\n{PROGRAM}\nEND\npython program.py"


def results(outputs: list[str]) -> list[str]:
    return [line for output in outputs for line in output.splitlines() if line.startswith("RESULT")]


def test_jax_finds_its_peers_over_two_slices_of_two_hosts_without_an_argument(shell):
    node = {**V4_16, "metadata": {"ssh-keys": f"ada:{shell.vms.public_key}"}}
    spec = {"multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "multi"}, "node": node}
    where = f"tpu/v2/projects/{PROJECT}/locations/{ZONE}/queuedResources"
    shell.vms.ask("POST", f"{where}?queuedResourceId=multi", {"tpu": {"nodeSpec": [spec]}})
    until(lambda: shell.vms.ask("GET", f"{where}/multi")["state"]["state"] == "ACTIVE")
    hosts = [f"ada@multi-{number}-w-{worker}" for number in (0, 1) for worker in (0, 1)]
    until(lambda: "multi-1-w-1" in shell.vms.emulator.hypervisor.ssh.file.read_text())
    for host in hosts:  # a host that does not listen yet would delay the others
        until(lambda host=host: shell.ssh(host, "true").returncode == 0)
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda host: shell.ssh(host, COMMAND), hosts))
    assert results([one.stdout for one in done]) == [f"RESULT {number} 4 4 16 6" for number in range(4)], done


def test_jax_finds_its_peers_on_a_machine_without_namespaces(tmp_path):
    with TpuVms(tmp_path, vm_views=False) as plain:
        plain.make("pair", V4_16)
        with ThreadPoolExecutor(2) as threads:
            done = list(threads.map(lambda worker: plain.ssh("pair", COMMAND, worker), (0, 1)))
    assert results([str(one.stdout) for one in done]) == [f"RESULT {number} 2 4 8 1" for number in (0, 1)], done


def test_after_any_order_of_troubles_hosts_are_up_and_nothing_of_before_runs(tmp_path):
    dice = random.Random(20261115)
    with TpuVms(tmp_path) as vms:
        names = ["one", "two", "three"]
        for name in names:
            vms.make(name, V4_16)
        started: list[int] = []
        silent: set[tuple[str, int]] = set()
        actions = [
            "crash",
            "freeze",
            "unreachable",
            "restore",
            "restore",
            "repair",
            "maintenance",
            "start",
            "start",
            "new",
        ]
        for _ in range(60):
            name, workers = dice.choice(names), dice.choice([(0, 1), (0,), (1,)])
            action = dice.choice(actions)
            hosts = {(name, worker) for worker in workers}
            if action == "start" and not hosts & silent:
                command = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"
                started.append(int(answers(vms, name, workers[0], command) or 0))
            elif action == "new":
                vms.ask("DELETE", f"{NODES}/{name}")
                vms.make(name, V4_16)
                silent -= {(name, 0), (name, 1)}
            elif action != "start":
                more = {"repair": {"seconds": 0.1}, "maintenance": {"seconds": 0.1, "grace": 0.1}}.get(action, {})
                one = {"worker": workers[0]} if len(workers) == 1 else {}
                vms.ask("POST", "emulator/tpu-vms", {"action": action, "node": name, **one, **more})
                silent = silent - hosts if action == "restore" else silent
                silent = silent | hosts if action in ("freeze", "unreachable") else silent
        for name in names:
            until(lambda name=name: vms.node(name)["state"] == "READY" and vms.node(name)["health"] == "HEALTHY")
            vms.ask("POST", "emulator/tpu-vms", {"action": "restore", "node": name})
            for worker in (0, 1):
                assert until(lambda name=name, worker=worker: answers(vms, name, worker)) == "up\n"
            vms.ask("POST", "emulator/tpu-vms", {"action": "crash", "node": name})
        until(lambda: not [pid for pid in started if pid and processes.started(pid)])
        assert len(processes.descendants(os.getpid())) >= 1 + 2 * len(names)
    assert any(started)
    assert not pods.strays(tmp_path)


def answers(vms: TpuVms, name: str, worker: int, command: str = "echo up") -> str:
    try:
        return str(vms.ssh(name, command, worker, login_timeout=5, connect_timeout=5).stdout)
    except (OSError, TimeoutError, asyncssh.Error):
        return ""
