"""The effect of a securityContext on real containers, seen from inside, and pods that may not run."""

from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.agent_world import World, with_cpu_node
from tpubox.kubelet import security
from tpubox.kubelet.env import BadConfig
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Confinement
from tpukit.places.local.processes.confine import CAPABILITIES

NOBODY = 65532
SCRATCH: dict[str, Any] = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
AT_DATA = [{"name": "scratch", "mountPath": "/data"}]
WRITES = """
import errno, os, sys
def wrote(path):
    try:
        with open(path, "w") as file:
            file.write("x")
    except OSError as error:
        return errno.errorcode[error.errno]
    os.unlink(path)
    return "wrote"
for path in sys.argv[1:]:
    print(path, wrote(os.path.expandvars(path)))
"""
STATUS = """
wanted = ("Uid", "Gid", "NoNewPrivs", "CapPrm", "CapEff", "CapBnd")
for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if name in wanted:
        print(name, value.split()[0])
"""


world = pytest.fixture(name="world")(with_cpu_node)


def said(world: World, *words: str, context: dict[str, Any], **options: Any) -> dict[str, str]:
    """Return the words that a program prints, each with its value on one line."""
    world.pod("python", "-c", *words, securityContext=context, **options)
    ended = world.phase("Succeeded", "Failed")
    assert ended["phase"] == "Succeeded", f"{world.container()}: {world.log()}"
    return dict(line.split() for line in world.log().splitlines())


def names(mask: str) -> set[str]:
    return {name for number, name in enumerate(CAPABILITIES) if int(mask, 16) >> number & 1}


def test_container_without_a_context_keeps_what_containerd_leaves(world: World):
    found = said(world, STATUS, context={})
    assert found["NoNewPrivs"] == "0"
    assert names(found["CapBnd"]) == security.DEFAULT
    assert found["Uid"] == str(os.getuid())


def test_all_capabilities_dropped_and_no_escalation_hold_in_the_process(world: World):
    found = said(world, STATUS, context={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}})
    assert found["NoNewPrivs"] == "1"
    assert {int(found[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0}


def test_user_and_group_of_the_container_win_over_those_of_the_pod_and_files_stay_the_agents(world: World, home: Path):
    spec = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}, **SCRATCH}
    code = STATUS + "import os\nopen('/data/kept', 'w').close()\nopen('here', 'w').close()\n"
    code += "print('owner', os.stat('/data/kept').st_uid)"
    found = said(world, code, context={"runAsUser": NOBODY}, spec=spec, volumeMounts=AT_DATA)
    assert (found["Uid"], found["Gid"], found["owner"]) == (str(NOBODY), "1000", str(NOBODY))
    assert int(found["CapEff"], 16) == 0
    (kept,) = (home / "agent" / "pods").glob("*/volumes/scratch/kept")
    assert kept.stat().st_uid == os.getuid()


def test_user_without_a_group_is_in_group_0(world: World):
    found = said(world, STATUS, context={"runAsUser": NOBODY})
    assert (found["Uid"], found["Gid"]) == (str(NOBODY), "0")


@pytest.mark.parametrize("user", [{}, {"runAsUser": NOBODY, "runAsGroup": NOBODY}], ids=["own user", "another user"])
def test_read_only_root_lets_nothing_be_written_but_volumes_and_shared_memory(world: World, user: dict[str, int]):
    paths = ("/tmp/x", "/etc/x", "/x", "x", "$HOME/x", "/dev/x")
    volumes = ("/data/x", f"/dev/shm/tpukit-{os.getpid()}", "$TPUKIT_PROGRESS")
    context = {"readOnlyRootFilesystem": True, **user}
    found = said(world, WRITES, *paths, *volumes, context=context, spec=SCRATCH, volumeMounts=AT_DATA)
    assert found == {**dict.fromkeys(paths, "EROFS"), **dict.fromkeys(volumes, "wrote")}


def test_read_only_root_with_a_volume_at_tmp_lets_tmp_be_written_and_nothing_seen_through_it(world: World, home: Path):
    beside = home / "agent" / "bin" / "x"
    mounts = [{"name": "scratch", "mountPath": "/tmp"}]
    context = {"readOnlyRootFilesystem": True, "runAsUser": NOBODY}
    found = said(world, WRITES, "/tmp/x", str(beside), context=context, spec=SCRATCH, volumeMounts=mounts)
    assert found == {"/tmp/x": "wrote", str(beside): "EROFS"}


def test_termination_message_can_be_written_on_a_read_only_root(world: World):
    context = {"readOnlyRootFilesystem": True, "runAsUser": NOBODY}
    world.shell("echo the end > /dev/termination-log", securityContext=context)
    world.phase("Succeeded", "Failed")
    assert world.container()["state"]["terminated"]["message"] == "the end\n"


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"runAsNonRoot": True}, "container has runAsNonRoot and image will run as root"),
        ({"runAsNonRoot": True, "runAsUser": 0}, "container's runAsUser breaks non-root policy"),
        ({"capabilities": {"drop": ["EVERYTHING"]}}, 'unknown capability "CAP_EVERYTHING"'),
    ],
    ids=["no user", "root", "unknown capability"],
)
def test_context_that_a_kubelet_refuses_keeps_the_container_waiting_and_says_why(
    world: World, context: dict[str, Any], message: str
):
    world.shell("true", securityContext=context)
    world.until(lambda: world.status().get("containerStatuses"))
    waiting = world.container()["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"].startswith(message)


@pytest.mark.parametrize("added", [[], ["SYS_RESOURCE"]], ids=["without the capability", "with SYS_RESOURCE"])
def test_limit_of_locked_memory_can_be_raised_by_who_has_the_capability_alone(world: World, added: list[str]):
    code = "import resource\nprint('memlock', ','.join(map(str, resource.getrlimit(resource.RLIMIT_MEMLOCK))))"
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": added}}
    soft, hard = map(int, said(world, code, context=context)["memlock"].split(","))
    of_machine = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    rights = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    may_raise = rights >> CAPABILITIES.index("SYS_RESOURCE") & 1
    assert 0 < soft <= 8 << 20
    assert hard == (-1 if added and may_raise else of_machine if added else soft)


def test_command_that_joins_a_container_is_the_same_user_with_the_same_limits(world: World, home: Path):
    context = {
        **{"runAsUser": NOBODY, "runAsGroup": NOBODY, "readOnlyRootFilesystem": True},
        **{"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    world.shell("sleep 60", securityContext=context)
    world.phase("Running")
    (run,) = (home / "agent" / "pods").glob("*/main/0")
    code = f"{STATUS}\nimport os\nprint('root', os.statvfs('/').f_flag & os.ST_RDONLY)"
    argv = pods.joining(run, pods.status(run).pid, ["python3", "-c", code])
    shown = dict(line.split() for line in subprocess.check_output(argv, text=True).splitlines())
    assert (shown["Uid"], shown["Gid"], shown["NoNewPrivs"], shown["root"]) == (str(NOBODY), str(NOBODY), "1", "1")
    assert {int(shown[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0}


def test_machine_without_namespaces_holds_what_needs_none(world: World):
    driver = world.agent.kubelet._driver
    driver._machine = dataclasses.replace(driver._machine, mounts=False, users=False)
    context = {
        **{"runAsUser": NOBODY, "readOnlyRootFilesystem": True},
        **{"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    found = said(world, STATUS, context=context)
    assert (found["Uid"], found["NoNewPrivs"], int(found["CapBnd"], 16)) == (str(os.getuid()), "1", 0)


def confinement(context: dict[str, Any], of_pod: dict[str, Any] | None = None) -> Confinement:
    metadata = {"name": "p", "namespace": "default", "uid": "1"}
    pod = {"metadata": metadata, "spec": {"securityContext": of_pod}}
    return security.confinement(pod, {"name": "c", "securityContext": context}, mounts=True, users=True)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"drop": ["NET_RAW", "CAP_CHOWN"]}, security.DEFAULT - {"NET_RAW", "CHOWN"}),
        ({"drop": ["all"], "add": ["NET_BIND_SERVICE"]}, {"NET_BIND_SERVICE"}),
        ({"add": ["SYS_PTRACE"]}, security.DEFAULT | {"SYS_PTRACE"}),
        ({"add": ["ALL"], "drop": ["SYS_ADMIN"]}, set(CAPABILITIES) - {"SYS_ADMIN"}),
    ],
    ids=["two dropped", "one left", "one added", "all but one"],
)
def test_capabilities_are_added_and_dropped_as_containerd_does(told: dict[str, list[str]], kept: set[str]):
    assert set(confinement({"capabilities": told}).capabilities or ()) == kept


def test_privileged_container_keeps_every_capability():
    assert confinement({"privileged": True, "capabilities": {"drop": ["ALL"]}}) == Confinement()


def test_container_that_takes_back_what_its_pod_says_may_be_root():
    assert confinement({"runAsNonRoot": False, "runAsUser": 0}, {"runAsNonRoot": True}).user == (0, 0)
    with pytest.raises(BadConfig):
        confinement({"runAsUser": None}, {"runAsNonRoot": True})
