"""Real JAX on TPU VMs of the sandbox, over SSH.

A 2-host slice is preempted, recreated and trained to the end, and every kind of end has its right name. Only the
emulator runs.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import tpukit
from support.tpu_vm_driving import SENDER, Driving, reasons
from support.tpu_vm_world import V4_16, TpuVms
from support.waiting import until
from tpubox.google.wire.settings import number_of
from tpukit import cli
from tpukit.cli import context, vm_doctor
from tpukit.cli import vms as vm_commands
from tpukit.core.errors import Denied, Transient
from tpukit.jobs.plan import VmTarget
from tpukit.jobs.reasons import Reason, State
from tpukit.places import peers
from tpukit.places.tpu_vm import TpuVmPlace, outcome
from tpukit.places.verdict import ABORTED
from tpukit.sharing import inventory
from tpukit.sharing.doctor import Done
from tpukit.sharing.inventory import Vm

STEPS = 30
TRAIN = """
import json, os, sys, time
import jax
jax.distributed.initialize(heartbeat_timeout_seconds=10, shutdown_timeout_seconds=5)
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

shared, steps, trouble = sys.argv[1], int(sys.argv[2]), sys.argv[3]
me, saved = jax.process_index(), os.path.join(shared, "saved")
assert (jax.process_count(), jax.device_count()) == (2, 8), (jax.process_count(), jax.device_count())
mesh = Mesh(np.array(jax.devices()), ("chips",))
chips = NamedSharding(mesh, PartitionSpec("chips"))
add = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
first = int(open(saved).read()) if os.path.exists(saved) else 0
for step in range(first, steps):
    while step == 10 and trouble == "waits" and not os.path.exists(os.path.join(shared, "open")):
        time.sleep(0.1)
    assert int(add(jax.make_array_from_callback((8,), chips, lambda at: np.full(8, step, np.int32)[at]))) == 8 * step
    if me == 0:
        open(saved + ".new", "w").write(str(step + 1))
        os.replace(saved + ".new", saved)
    if step == 3 and me == 1 and trouble == "hangs":
        time.sleep(1000)  # before its report: of hosts that made the same step, either may have been the first to stop
    with open(os.environ["TPUKIT_PROGRESS"] + ".new", "w") as report:
        json.dump({"step": step + 1, "saved": step + 1, "time": time.time()}, report)
    os.replace(report.name, os.environ["TPUKIT_PROGRESS"])
    if step == 3 and me == 1:
        if trouble == "raises":
            raise ValueError("a mistake of the user")
        if trouble == "memory":
            jnp.zeros((1 << 40,)).block_until_ready()
    time.sleep(0.1)
if me == 0:
    print("from", first, "to", steps)
"""

SCALARS = """
import os
from tpukit.host.scalars import Scalars
if os.environ["TPU_WORKER_ID"] == "0":
    scalars = Scalars(os.environ["TPUKIT_WORKDIR"] + "/tensorboard/train")
    for step in range(3):
        scalars.write(step, loss=2.0 - step)
    scalars.close()
"""


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        made.make("pair", V4_16)
        yield made


@pytest.fixture
def driving(vms: TpuVms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driving]:
    for name, value in vms.emulator.environment().items():
        monkeypatch.setenv(name, value)
    # The default would give up a host after six silent seconds, which happens on a busy machine.
    monkeypatch.setattr(outcome, "SILENT_SECONDS", 600.0)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAIN)
    made = Driving(tmp_path, lambda root, clock: TpuVmPlace(root, clock, lambda: SENDER))
    yield made
    made.close()


@pytest.fixture
def shared() -> Iterator[str]:
    """Yield a folder in place of a bucket. Hosts have their own disks and /tmp, as TPU VMs do."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield folder


def train(driving: Driving, shared: str, trouble: str, **fields: Any) -> str:
    """Send a training job.

    With "waits" it waits at step 10 for a file `open`, so it cannot end before the fault.
    """
    command = ["python", "train.py", shared, str(STEPS), trouble]
    if trouble == "waits":
        fields["max"] = {"stall": "2h"}
    return driving.send(command, code=driving.folder / "code", **fields)


def process_of(job_id: str, worker: int) -> int:
    words = {f"TPUKIT_JOB={job_id}".encode(), f"TPU_WORKER_ID={worker}".encode()}
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if words <= set(entry.read_bytes().split(b"\0")):
                return int(entry.parent.name)
    raise AssertionError(f"no process of {job_id} runs on worker {worker}")


def at_step(driving: Driving, job_id: str, step: int) -> None:
    """Wait until the first attempt reaches a step."""

    def there(job: Any) -> bool:
        seen = driving.seen.get(job_id)
        steps = [host.step or 0 for host in seen.hosts] if seen and len(job.attempts) == 1 else []
        return bool(steps) and min(steps) >= step

    driving.until(job_id, there, f"step {step}")


def test_preempted_slice_is_made_anew_and_training_goes_on_from_the_last_save(driving, vms, shared):
    job_id = train(driving, shared, "waits", capacity="spot")
    at_step(driving, job_id, 5)
    vms.ask("POST", "emulator/tpu-vms", {"action": "preempt", "node": f"{job_id}-0", "grace": 1})
    driving.until(job_id, lambda job: len(job.attempts) == 2, "the next attempt")
    Path(shared, "open").touch()  # only now, because the first attempt could finish within its grace period
    job = driving.ended(job_id)
    assert (job.state, reasons(job)) == (State.COMPLETED, [Reason.PREEMPTED, Reason.DONE])
    (said,) = [line for line in driving.log(job_id, 1) if line.startswith("from ")]
    first = int(said.split()[1])
    assert said == f"from {first} to {STEPS}" and first >= 5
    assert not [one for one in vms.emulator.cloud.state.all("vm") if job_id in one]
    assert not [one for one in vms.emulator.cloud.state.all("queued") if job_id in one]


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("raises", Reason.USER_ERROR),
        ("memory", Reason.OUT_OF_MEMORY),
        ("hangs", Reason.HANG),
    ],
)
def test_each_way_in_which_a_run_ends_is_named_rightly(driving, vms, shared, trouble, reason):
    stall = "60s" if trouble == "hangs" else "30m"
    job_id = train(driving, shared, trouble, on=("pair",), max={"stall": stall, "grace": "2s"})
    job = driving.ended(job_id)
    assert (job.state, job.reason) == (State.FAILED, reason), (job.message, driving.notes)
    assert job.attempts[0].host.endswith("-slice-0-1")


def test_hosts_that_lost_each_other_are_no_fault_of_the_program(driving, vms, shared, monkeypatch):
    """Suspend one host for longer than JAX's heartbeat timeout, then resume it."""
    monkeypatch.setattr(peers, "ABANDONED_SECONDS", 120.0)
    job_id = train(driving, shared, "waits", on=("pair",))
    at_step(driving, job_id, 3)
    pid = process_of(job_id, worker=1)
    os.kill(pid, signal.SIGSTOP)

    def given_up(job: Any) -> bool:
        return any(host.code == ABORTED for host in driving.seen[job_id].hosts)

    driving.until(job_id, given_up, "its peer to give it up")
    os.kill(pid, signal.SIGCONT)
    assert driving.ended(job_id).reason is Reason.PEER_LOST


def test_job_that_starts_on_one_tpu_vm_leaves_the_processes_of_another_alone(driving, vms):
    vms.make("other", V4_16)
    first = driving.send(["sleep", "1000"], on=("pair",))
    driving.running(first)
    assert driving.ended(driving.send(["true"], on=("other",))).state is State.COMPLETED
    assert driving.observe(first).state is State.RUNNING
    driving.stop(first)
    assert driving.ended(first).state is State.CANCELLED


def test_host_that_freezes_is_lost_and_named(driving, vms, shared, monkeypatch):
    vms.make("cold", V4_16)
    job_id = train(driving, shared, "waits", on=("cold",))
    at_step(driving, job_id, 3)
    vms.ask("POST", "emulator/tpu-vms", {"action": "freeze", "node": "cold", "worker": 1})
    monkeypatch.setattr(outcome, "SILENT_SECONDS", 60.0)
    job = driving.until(job_id, lambda job: job.outcome or job.state.ended, "the host to be given up")
    assert job.attempts[0].reason is Reason.HOST_LOST
    assert job.attempts[0].host.endswith("-slice-0-1")
    vms.ask("DELETE", "tpu/v2/projects/tpu-project/locations/us-central2-b/nodes/cold")
    assert driving.ended(job_id).state is State.FAILED


def test_first_host_uploads_tensorboard_data_with_the_account_of_its_tpu_vm(driving, vms):
    boards = "projects/tpu-project/locations/us-central1/tensorboards"
    board = vms.ask("POST", f"vertex_ai/v1/{boards}", {"displayName": "board"})["response"]["name"]
    account = f"serviceAccount:{number_of('tpu-project')}-compute@developer.gserviceaccount.com"
    binding = {"role": "roles/aiplatform.user", "members": [account]}
    policy = {"policy": {"bindings": [binding]}}
    vms.ask("POST", "resource_manager/v1/projects/tpu-project:setIamPolicy", policy)
    job_id = driving.send(
        ["python", "-c", SCALARS],
        on=("pair",),
        settings={"tensorboard": board},
        tensorboard=True,
        env={"PYTHONPATH": str(Path(tpukit.__file__).parents[1])},
    )
    assert driving.ended(job_id).state is State.COMPLETED
    series = f"vertex_ai/v1/{board}/experiments/{job_id}/runs/train/timeSeries/loss:read"

    def written() -> list[Any]:
        status, answer = vms.send("GET", series)  # the last upload follows the end
        return answer["timeSeriesData"]["values"] if status == 200 else []

    until(lambda: len(written()) >= 3, "every point to be written", every=0.2)
    assert [point["scalar"]["value"] for point in written()] == [2.0, 1.0, 0.0]
    writes = vms.emulator.cloud.requests(path=f"{job_id}:write")
    assert writes and {one["principal"] for one in writes} == {account}


def test_share_of_a_job_is_mounted_on_all_hosts_before_its_program_starts(driving, vms):
    """Mount by the supervisor, with the hosts' own sudo, mount and mountpoint. In the sandbox a share is a folder."""
    share = VmTarget("", "", "", ("pair",), disk="10.0.0.2:/share", mount="/mnt/share")
    script = """
        mountpoint -q /mnt/share || exit 9
        touch /mnt/share/host-$TPU_WORKER_ID
        while [ ! -e /mnt/share/host-0 ] || [ ! -e /mnt/share/host-1 ]; do sleep 0.1; done
    """
    assert driving.ended(driving.send(script, target=share)).state is State.COMPLETED


@pytest.fixture
def typed(vms: TpuVms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Configure settings for `tpu vm` commands."""
    vms.key.write_private_key(str(tmp_path / "key"))
    about = {"project": "tpu-project", "zone": "us-central2-b", "ssh_user": "ada", "ssh_key": str(tmp_path / "key")}
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(about))
    own = {"TPUKIT_HOME": str(tmp_path / "home"), "TPUKIT_SETTINGS": str(settings), **vms.emulator.environment()}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TPUKIT_STORE", raising=False)
    cached = (context.store, context.places, vm_commands.settings, vm_commands.cloud)
    for one in cached:
        one.cache_clear()
    inventory.register(context.store(), Vm("pair", "us-central2-b", "v4-16", 1.0), 1.0)
    yield settings
    context.store().close()
    for one in cached:
        one.cache_clear()


def solve(*words: str) -> dict[str, tuple[str, str]]:
    done = CliRunner().invoke(cli.command, ["vm", "solve", "pair", "--json", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return {one["check"]: (one["outcome"], one["says"]) for one in json.loads(done.stdout)}


def test_doctor_enters_all_hosts_and_finds_a_sound_tpu_sound(vms, typed):
    findings = solve()
    assert {outcome for outcome, _ in findings.values()} == {"good"}, findings
    assert len(findings) == 11


def test_doctor_whom_hosts_do_not_let_in_says_so_and_examines_nothing_behind_that(vms, typed):
    typed.write_text(typed.read_text().replace("ada", "eve"))
    findings = solve("--dry-run")
    assert findings["SSH"][0] == "bad" and "eve" in findings["SSH"][1]
    assert {findings[name][0] for name in ("clock", "free disk", "JAX sees all chips")} == {"not examined"}


def test_program_on_all_hosts_gives_exit_codes_output_and_errors_of_each(vms, typed):
    shell = vm_doctor.shell(inventory.get(context.store(), "pair"))
    try:
        words = "it's $HOME; `no` shell"
        assert shell.run(["echo", words]) == [Done(0, f"{words}\n")] * 2
        assert shell.run(["sh", "-c", "echo bad >&2; exit 3"]) == [Done(3, "", "bad\n")] * 2
        assert [done.code for done in shell.run(["no-such-program"])] == [127, 127]
        slow = shell.run(["sleep", "1000"], seconds=0.5)
        assert [type(one) for one in slow] == [Transient, Transient]
        typed.write_text(typed.read_text().replace("ada", "eve"))
        vm_commands.settings.cache_clear()
        stranger = vm_doctor.shell(inventory.get(context.store(), "pair"))
        assert [type(one) for one in stranger.run(["true"])] == [Denied, Denied]
        stranger.close()
    finally:
        shell.close()
