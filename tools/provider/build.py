"""Build the google provider for Terraform where no registry is reachable, from pinned Go modules, and cache it by hash.

    python tools/provider/build.py              build it if it is missing, print the CLI configuration
    python tools/provider/build.py --no-build   fail, with the command to run, if it is missing
    python tools/provider/build.py --with-clis  also build the command lines of tests: Terraform 1.5.7, OpenTofu
    python tools/provider/build.py --where NAME print the path of that command line; fail if it is missing

With `export TF_CLI_CONFIG_FILE=$(python tools/provider/build.py)`, init, plan and test of Terraform work offline. The
build writes only to the cache folder, and needs only the standard library. It takes about ten minutes on two idle
cores, the command lines two each; `GOFLAGS=-p=1 nice -n 19 python ...` leaves the machine to others.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROVIDER = "github.com/hashicorp/terraform-provider-google"
VERSION = "8.0.0"


@dataclass(frozen=True)
class Program:
    """A program that is built from the Go modules pinned in a folder."""

    name: str  # of the binary
    pins: Path  # folder with go.mod and go.sum
    package: str
    flags: str  # for the linker

    def cache(self) -> Path:
        """Return the folder of this pinned program. A change of go.mod or go.sum gives another folder."""
        pins = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            pins.update((self.pins / name).read_bytes())
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(root) / "tpukit" / "provider" / pins.hexdigest()[:16]

    def binary(self) -> Path:
        return self.cache() / self.name


GOOGLE = Program("terraform-provider-google", HERE, PROVIDER, f"-X {PROVIDER}/version.ProviderVersion={VERSION}")
CLIS = {
    # Terraform 1.5.7: the newest that Infrastructure Manager runs, and the last one under the Mozilla licence.
    "terraform-1.5.7": Program(
        *("terraform", HERE / "terraform-1.5.7", "github.com/hashicorp/terraform"),
        flags="-X github.com/hashicorp/terraform/version.dev=no",
    ),
    "opentofu": Program(
        *("tofu", HERE / "opentofu", "github.com/opentofu/opentofu/cmd/tofu"),
        flags="-X github.com/opentofu/opentofu/version.dev=no",
    ),
}


class Missing(Exception):
    """Something that must be installed or built first. The text gives the reason."""


def cache() -> Path:
    return GOOGLE.cache()


def build(program: Program = GOOGLE) -> Path:
    """Return the program's binary, and build it if it is missing."""
    binary = program.binary()
    if binary.is_file():
        return binary
    if shutil.which("go") is None:
        raise Missing(f"go is not on PATH: install Go 1.26.6 or newer, {program.name} is built with it")
    binary.parent.mkdir(parents=True, exist_ok=True)
    # Built in a draft folder and renamed, so that an interrupted build is never used.
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        built = Path(scratch) / binary.name
        command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {program.flags}", "-o", str(built), program.package]
        # Without cgo, as for the sandbox's programs, so that shared packages are compiled once.
        environment = {**os.environ, "CGO_ENABLED": "0"}
        done = subprocess.run(command, cwd=program.pins, env=environment, check=False)
        if done.returncode:
            ended = f"go build ended with {done.returncode}, its messages are above"
            raise Missing(f"{program.name} did not build ({ended})")
        built.rename(binary)
    return binary


def where(name: str) -> Path:
    """Return the binary of a command line that was built."""
    binary = CLIS[name].binary()
    if not binary.is_file():
        raise Missing(f"{name} is not built yet: run `python {HERE / 'build.py'} --with-clis` once (minutes)")
    return binary


def cli_config(cli: str = "terraform", *, may_build: bool = True) -> Path:
    """Return a CLI configuration with which `cli` takes the provider from the cache and contacts nothing."""
    binary = GOOGLE.binary()
    if not binary.is_file():
        if not may_build:
            raise Missing(f"the google provider is not built yet: run `python {HERE / 'build.py'}` once (minutes)")
        build()
    mirror = cache() / "mirror"
    folder = mirror / _source(cli) / VERSION / _platform(cli)
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / f"terraform-provider-google_v{VERSION}_x5"
    if not link.exists():
        draft = cache() / f"link.{os.getpid()}"  # another process may create it too
        draft.symlink_to(binary)
        draft.replace(link)
    config = cache() / "terraform.rc"
    # Without a `direct` block no other source is contacted.
    _write(config, f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n')
    return config


def _write(file: Path, text: str) -> None:
    """Write a file atomically, because other processes read it at any moment. Leave a correct one alone."""
    if file.is_file() and file.read_text() == text:
        return
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(file)


def _source(cli: str) -> str:
    """Return the provider's full address. Terraform and OpenTofu differ in their default host, so ask the CLI."""
    with tempfile.TemporaryDirectory() as scratch:
        text = 'terraform {\n  required_providers {\n    google = { source = "hashicorp/google" }\n  }\n}\n'
        (Path(scratch) / "main.tf").write_text(text)
        found = re.search(r"provider\[([^]]+)]", _ask(cli, "providers", cwd=scratch))
    if not found:
        raise Missing(f"`{cli} providers` names no provider: is it Terraform 1.5.7 or newer, or OpenTofu?")
    return found.group(1)


def _platform(cli: str) -> str:
    found = re.search(r"^on (\w+)$", _ask(cli, "version"), re.MULTILINE)
    if not found:
        raise Missing(f"`{cli} version` names no platform: is it Terraform 1.5.7 or newer, or OpenTofu?")
    return found.group(1)


def _ask(cli: str, *words: str, cwd: str | None = None) -> str:
    if shutil.which(cli) is None:
        raise Missing(f"{cli} is not on PATH: install Terraform 1.5.7 or newer, or OpenTofu")
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1"}
    done = subprocess.run([cli, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--no-build", action="store_true", help="fail if the provider is not built yet")
    words.add_argument("--cli", default="terraform", help="terraform (the default) or tofu")
    words.add_argument("--with-clis", action="store_true", help="build Terraform 1.5.7 and OpenTofu as well")
    words.add_argument("--where", choices=list(CLIS), help="print where that command line is, and nothing else")
    said = words.parse_args()
    try:
        if said.where:
            print(where(said.where))
            return 0
        for program in CLIS.values() if said.with_clis else ():
            build(program)
        print(cli_config(said.cli, may_build=not said.no_build))
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
