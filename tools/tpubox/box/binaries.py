"""The programs of the sandbox and their manifests, built once from pinned Go modules.

The cache folder keeps them by a hash of their pins and flags, so a change of either causes another build and a warm
start needs no Go. A killed build leaves nothing that could be mistaken for a complete one. `python -m
tpubox.box.binaries` builds them ahead of need.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpukit.core import resources
from tpukit.core.errors import NotFound, TpukitError

Report = Callable[[str], None]
"""A function that receives a progress sentence, repeatedly during a step."""


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module under tools/sandbox, and its program."""

    name: str
    package: str
    pin: str  # the module whose version is the program's
    version_flags: str  # for the linker: kubectl and Kueue refuse a server of unknown version
    manifests: tuple[tuple[str, str], ...] = ()  # file names, and the kustomization in the pinned module for each


_VERSION = "-X k8s.io/component-base/version."
MODULES = (
    Module(
        "kube",
        package=".",
        pin="k8s.io/kubernetes",
        version_flags=f"{_VERSION}gitVersion={{version}} {_VERSION}gitMajor={{major}} {_VERSION}gitMinor={{minor}}",
    ),
    Module(
        "jobset",
        package="sigs.k8s.io/jobset",
        pin="sigs.k8s.io/jobset",
        version_flags="-X sigs.k8s.io/jobset/pkg/version.GitVersion={version}",
        manifests=(("jobset", "config/default"),),
    ),
    Module(
        "kueue",
        package="sigs.k8s.io/kueue/cmd/kueue",
        pin="sigs.k8s.io/kueue",
        version_flags="-X sigs.k8s.io/kueue/pkg/version.GitVersion={version}",
        manifests=(("kueue", "config/default"),),
    ),
    Module(
        "kwok",
        package="sigs.k8s.io/kwok/cmd/kwok",
        pin="sigs.k8s.io/kwok",
        version_flags="-X sigs.k8s.io/kwok/pkg/consts.Version={version}",
        manifests=(("kwok-rbac", "kustomize/rbac"), ("kwok-stages", "kustomize/stage/fast")),
    ),
)
BUILD_FLAGS = ("-trimpath", "-buildvcs=false")
KUBE_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""Names under which the one binary `kube` is called."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """A finished build."""

    folder: Path

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def manifests(self, name: str) -> list[dict[str, object]]:
        documents: list[dict[str, object]] = json.loads((self.folder / "manifests" / f"{name}.json").read_bytes())
        return documents


def versions() -> dict[str, str]:
    """Return the pinned versions."""
    found = {module.name: _pinned(module.name, module.pin) for module in MODULES}
    return {"kubernetes": found.pop("kube"), "etcd": _pinned("kube", "go.etcd.io/etcd/server/v3"), **found}


def ensure(report: Report = lambda text: None) -> Binaries:
    """Return the build of this tpukit's pins; build it if it is not in the cache yet (minutes)."""
    folder = _cache() / _digest()
    if not folder.is_dir():
        with alone(folder, "programs", report):
            if not folder.is_dir():
                _check_go()
                _build(folder, report)
    return Binaries(folder)


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tpukit" / "sandbox"


def _digest() -> str:
    digest = hashlib.sha256(repr((MODULES, KUBE_PROGRAMS, BUILD_FLAGS, platform.machine())).encode())
    for module in MODULES:
        for file in sorted(_source(module.name).iterdir()):
            digest.update(f"\0{module.name}/{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _source(name: str) -> Path:
    return resources.folder("sandbox") / name


def _pinned(name: str, dependency: str) -> str:
    text = (_source(name) / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^\s+{re.escape(dependency)} (v\S+)", text, re.MULTILINE)
    assert found, f"{name}/go.mod does not pin {dependency}"
    return found[1]


@contextmanager
def alone(folder: Path, what: str, report: Report) -> Iterator[None]:
    """Hold the lock of a folder; a second process waits until the first one has made the folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                report(f"waiting for another process that builds the same {what}, {_elapsed(began)}")
                time.sleep(1)
        yield


def _check_go() -> None:
    hint = "install Go (https://go.dev/dl) and try again; Go is needed only until the programs are built"
    if shutil.which("go") is None:
        raise NotFound("go is not on PATH, and is needed to build the sandbox's programs", hint=hint)
    # Run where the modules are: a Go that is too old reports that, or fetches a newer one if allowed.
    asked = subprocess.run(["go", "env", "GOVERSION"], cwd=_source("kube"), capture_output=True, text=True, check=False)
    if asked.returncode:
        raise NotFound(f"this Go cannot build the sandbox's programs: {asked.stderr.strip()}", hint=hint)


def _build(folder: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as scratch:
        made = Path(scratch) / "made"
        (made / "bin").mkdir(parents=True)
        (made / "manifests").mkdir()
        for number, module in enumerate(MODULES, start=1):
            what = f"building {module.name} {_pinned(module.name, module.pin)} ({number} of {len(MODULES)}, once)"
            binary = made / "bin" / module.name
            argv = ["go", "build", *BUILD_FLAGS, "-ldflags", _linker_flags(module), "-o", str(binary), module.package]
            _run(argv, module, partial(_tell, report, what))
        for program in KUBE_PROGRAMS:
            (made / "bin" / program).symlink_to("kube")
        for module in MODULES:
            for name, kustomization in module.manifests:
                _write_manifests(made, module, name, kustomization)
        made.rename(folder)


def _tell(report: Report, what: str, elapsed: str) -> None:
    report(f"{what}, {elapsed}")


def _linker_flags(module: Module) -> str:
    version = _pinned(module.name, module.pin)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    return "-s -w " + module.version_flags.format(version=version, major=major, minor=minor)


def _write_manifests(made: Path, module: Module, name: str, kustomization: str) -> None:
    """Write manifests as JSON, which loads in milliseconds where YAML takes seconds."""
    import yaml

    pin = f"{module.pin}@{_pinned(module.name, module.pin)}"
    where = json.loads(_run(["go", "mod", "download", "-json", pin], module, lambda elapsed: None))["Dir"]
    text = _run([str(made / "bin" / "kubectl"), "kustomize", f"{where}/{kustomization}"], module, lambda elapsed: None)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [document for document in yaml.load_all(text, loader) if document]
    (made / "manifests" / f"{name}.json").write_text(json.dumps(documents), encoding="utf-8")


def _run(argv: list[str], module: Module, tick: Callable[[str], None]) -> str:
    """Run a program and return its output; report its elapsed time every second."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            argv,
            cwd=_source(module.name),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "CGO_ENABLED": "0"},
        )
        try:
            while True:
                tick(_elapsed(began))
                try:
                    process.wait(1)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        out.seek(0)
        err.seek(0)
        if process.returncode:
            said = "\n  ".join(err.read().decode(errors="replace").strip().splitlines()[-8:])
            raise TpukitError(
                f"`{' '.join(argv[:3])}` for {module.name} ended with {process.returncode}:\n  {said}",
                hint="this is the error of Go; to fetch modules, it needs a network or GOPROXY",
            )
        return out.read().decode()


def _elapsed(began: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    return f"{minutes}m {seconds:02d}s" if minutes else f"{seconds}s"


def main() -> int:
    told = set()

    def report(text: str) -> None:
        """Print each step once: its elapsed time is for a terminal."""
        step = text.rpartition(", ")[0]
        if step not in told:
            told.add(step)
            print(step, flush=True)

    try:
        print(ensure(report).folder)
    except TpukitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
