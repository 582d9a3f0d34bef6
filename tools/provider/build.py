"""Gives Terraform the google provider where no registry can be reached: built from pinned Go modules, kept by hash.

    python tools/provider/build.py              builds it if it is not there yet, prints the CLI configuration
    python tools/provider/build.py --no-build   fails, with the command to run, if it is not there yet

With `export TF_CLI_CONFIG_FILE=$(python tools/provider/build.py)`, init, plan and test of Terraform work offline.
Nothing outside the cache folder is written, and the standard library is all it needs. The build takes about ten minutes
on two idle cores; `GOFLAGS=-p=1 nice -n 19 python ...` leaves the machine to others.
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROVIDER = "github.com/hashicorp/terraform-provider-google"
VERSION = "8.0.0"


class Missing(Exception):
    """Something that must be installed or built first; the text says how."""


def cache() -> Path:
    """The folder of this pinned provider: a changed go.mod or go.sum is another provider."""
    pins = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        pins.update((HERE / name).read_bytes())
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tpukit" / "provider" / pins.hexdigest()[:16]


def build() -> Path:
    """The provider's binary, built when it is not there yet."""
    binary = cache() / "terraform-provider-google"
    if binary.is_file():
        return binary
    if shutil.which("go") is None:
        raise Missing("go is not on PATH: install Go 1.26 or newer, the provider is built with it")
    binary.parent.mkdir(parents=True, exist_ok=True)
    # Built beside its place and renamed, so that a build that was killed is never taken for a provider.
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        built = Path(scratch) / binary.name
        flags = f"-s -w -X {PROVIDER}/version.ProviderVersion={VERSION}"
        command = ["go", "build", "-trimpath", "-ldflags", flags, "-o", str(built), PROVIDER]
        # Without cgo, as the sandbox's programs are built: what they have in common is compiled once.
        environment = {**os.environ, "CGO_ENABLED": "0"}
        done = subprocess.run(command, cwd=HERE, env=environment, check=False)
        if done.returncode:
            raise Missing(f"the provider did not build (go build ended with {done.returncode}, its messages are above)")
        built.rename(binary)
    return binary


def cli_config(cli: str = "terraform", *, may_build: bool = True) -> Path:
    """A CLI configuration with which `cli` takes the provider from the cache and contacts nothing."""
    binary = cache() / "terraform-provider-google"
    if not binary.is_file():
        if not may_build:
            raise Missing(f"the google provider is not built yet: run `python {HERE / 'build.py'}` once (minutes)")
        build()
    mirror = cache() / "mirror"
    folder = mirror / _source(cli) / VERSION / _platform(cli)
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / f"terraform-provider-google_v{VERSION}_x5"
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(binary)
    config = cache() / "terraform.rc"
    # Without a `direct` block nothing else is ever contacted.
    config.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n')
    return config


def _source(cli: str) -> str:
    """The provider's full address; Terraform and OpenTofu each have a default host, so the CLI is asked."""
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
    said = words.parse_args()
    try:
        print(cli_config(said.cli, may_build=not said.no_build))
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
