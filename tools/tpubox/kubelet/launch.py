"""The start of one run of a container, as processes of this machine.

There are no images: the machine is the image, and `python` is the interpreter that runs this. If the system supports
mount namespaces, a container sees only the Python packages of its image (within the limits of `image_packages`), its
volumes at their paths, all hosts by name, and its own temporary files (`pod_isolation`). Elsewhere it sees all of them,
and paths and names are replaced in its environment and command; this covers neither files nor paths that programs build
themselves. A securityContext is enforced as far as `security` describes. `hooks` runs lifecycle hooks.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tpubox.kubelet import (
    bucket_limits,
    container_logs,
    image_names,
    mounted_buckets,
    pod_isolation,
    security,
    service_links,
    tpu_environment,
    volumes,
)
from tpubox.kubelet import env as environment
from tpubox.kubelet.containers import Container
from tpubox.kubelet.host_names import rewrite
from tpubox.kubelet.image_packages import not_in_image
from tpubox.kubelet.volumes import Made
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Mount, Pod

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
NOTHING = "nothing"
PROGRESS = "report/progress"
"""Path of the program's progress report below the folder of a run. The program creates files beside it."""
TOOLS = str(Path(__file__).resolve().parents[2])
"""Location of this tpukit, which images with tpukit have installed."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Google:
    """Variables that point Google's clients to the emulator, as its owner or with the metadata server's identity."""

    owner: Mapping[str, str] = field(default_factory=dict)
    identified: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    """Settings that all containers of this agent share."""

    bin: Path  # commands that take precedence over the machine's
    env: Mapping[str, str]  # the pod's own variables win
    google: Google  # how programs of pods reach Google's APIs
    mounts: bool  # mount namespaces are available
    users: bool  # user namespaces are available too
    visible: tuple[Path, ...] = ()  # folders that volumes must not hide
    hidden: tuple[Path, ...] = ()  # files and folders of the sandbox that pods must not read
    instead: Path = Path()  # a folder with one empty file, mounted over the hidden paths
    guard: bool = False  # mounted buckets refuse what GCS FUSE refuses
    server: Mapping[str, str] = field(default_factory=dict)  # variables that point to the API server


@dataclass(frozen=True, slots=True)
class Site:
    """The surroundings of a pod."""

    context: volumes.Context
    folder: Path  # the pod's
    labels: Mapping[str, str]  # of the node
    address: str  # the pod's own
    names: Mapping[str, str]  # addresses of all hosts of the namespace
    slice_names: tuple[str, ...]  # of the hosts of its slice
    hosts_file: Path
    metadata: str = ""  # HOST:PORT of the pod's metadata server; "": the pod acts as the owner


def make_bin(folder: Path) -> Path:
    """Create the commands `python` and `python3`, which run this interpreter, and `tpu`, which tpukit's images have.

    A link would not do: the interpreter would not find its packages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in (("python", ""), ("python3", ""), ("tpu", "-m tpukit ")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return folder


def start(machine: Machine, site: Site, container: Container, made: Made) -> None:
    """Start the container's next run with the volumes of its pod, or raise BadConfig."""
    spec = container.spec
    confined = security.confinement(site.context.pod, spec, mounts=machine.mounts, users=machine.users)
    folder = container.run_folder(len(container.runs))
    known, env = _environment(machine, site, container, folder)
    argv = tuple(environment.expand(word, known) for word in [*spec.get("command", []), *spec.get("args", [])])
    if not spec.get("command"):
        image = spec["image"]
        raise environment.BadConfig(
            f"images are not pulled here, so the command of {image} is unknown: write a command"
        )
    denied = mounted_buckets.denied(site.context.pod, spec, made.buckets)
    inside = volumes.mounts(spec, made, known, denied)
    work = Path(spec.get("workingDir") or folder / "cwd")
    report = (folder / PROGRESS).parent
    for own in (folder / "cwd", report):
        own.mkdir(parents=True, exist_ok=True)
    fixed = confined.read_only_root
    toolkit = image_names.has_tpukit(spec["image"])
    own_paths = pod_isolation.temporary(inside) if machine.mounts else []
    targets = [*own_paths, *(mount.target for mount in inside)]
    through = _seen_through(targets, (*machine.visible, site.folder), read_only=fixed)
    if machine.mounts:
        mounts = [
            *_hidden(machine),
            *(_not_of_the_image() if fixed else ()),
            *([] if fixed else pod_isolation.made(folder, own_paths)),
            *inside,
            *through,
            *(mount for mount in _hidden(machine) if _within(mount, through)),
            Mount(report, str(report)),
            Mount(site.hosts_file, "/etc/hosts"),
            Mount(_termination_log(folder), spec.get("terminationMessagePath") or "/dev/termination-log"),
        ]
    else:
        mounts = []
        paths = {mount.target: str(mount.source) for mount in (*inside, *through)}
        replaced = {**site.names, **paths}
        argv = tuple(rewrite(word, replaced) for word in argv)
        env = {name: rewrite(value, replaced) for name, value in env.items()}
        work = Path(rewrite(str(work), paths))
    if _PYTHON.fullmatch(Path(argv[0]).name):
        argv = (sys.executable, *argv[1:])
    limits = bucket_limits.rename_limits(site.context.pod, spec, site.labels) if machine.guard and mounts else {}
    limit = spec.get("resources", {}).get("limits", {}).get("memory")
    memory = int(environment.quantity(str(limit))) if limit else 0
    pods.start(
        [
            Pod(
                folder,
                argv,
                env,
                work,
                memory=memory,
                memory_folders=volumes.in_memory(site.context.pod, spec, made.folders),
                mounts=tuple(mounts),
                absent=not_in_image(Path(sysconfig.get_path("purelib")), toolkit=toolkit),
                empty=tuple(own_paths) if fixed else (),
                hostname=pod_isolation.host_name(site.context.pod),
                shared_memory=pod_isolation.shared_memory(site.context.pod, inside),
                stamped=True,
                log_bytes=container_logs.MAX_FILE_BYTES,
                init=True,
                confinement=confined,
                buckets=limits,
                denied=tuple(os.path.realpath(path) for path in denied if limits),
            )
        ]
    )


def _environment(
    machine: Machine, site: Site, container: Container, folder: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables that a kubelet knows, and the whole environment of the process."""
    spec, pod, context = container.spec, site.context.pod, site.context
    given = tpu_environment.given(pod, spec, site.labels, site.slice_names)
    base = {
        "PATH": f"{machine.bin}:{_SYSTEM_PATH}",
        "HOME": str(folder / "cwd"),
        "HOSTNAME": pod_isolation.host_name(pod) or pod["spec"]["nodeName"],
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        **({"PYTHONPATH": TOOLS} if image_names.has_tpukit(spec["image"]) else {}),
        **machine.env,
        **(_identified(machine, site.metadata) if site.metadata else machine.google.owner),
        **given,
    }
    links = service_links.of_pod(pod, context.sources.services)
    first = {**links, **machine.server, **tpu_environment.injected(given)}
    known = environment.environment(spec, pod, first, context.addresses, context.capacity, context.sources)
    env = {**base, **known}
    simulated = tpu_environment.simulated(spec, site.labels, site.address, env)
    return known, {**env, **simulated, "TPUKIT_PROGRESS": str(folder / PROGRESS)}


def _identified(machine: Machine, metadata: str) -> dict[str, str]:
    names = ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT")
    return {**machine.google.identified, **dict.fromkeys(names, metadata)}


def _seen_through(over: list[str], needed: tuple[Path, ...], *, read_only: bool) -> list[Mount]:
    """Return mounts that keep the image and the pod visible where a volume, such as one at /tmp, would hide them."""
    image = (Path(sys.prefix), Path(sys.base_prefix), Path(TOOLS))
    targets = list(map(Path, over))
    hidden = [
        path
        for path in sorted({*image, *needed})
        if path not in targets and any(path.is_relative_to(target) for target in targets) and path.exists()
    ]
    return [Mount(path, str(path), read_only) for path in hidden]


def _within(mount: Mount, others: list[Mount]) -> bool:
    return any(Path(mount.target).is_relative_to(other.target) for other in others)


def _not_of_the_image() -> list[Mount]:
    """Return the paths that stay writable although the root is read only."""
    return [Mount(Path(path), path) for path in ("/proc", "/dev/mqueue") if Path(path).is_dir()]


def _hidden(machine: Machine) -> list[Mount]:
    there = [path for path in machine.hidden if path.exists()]
    nothing = machine.instead / NOTHING
    return [Mount(machine.instead if path.is_dir() else nothing, str(path), read_only=True) for path in there]


def _termination_log(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "termination-log"
    note.touch()
    return note
