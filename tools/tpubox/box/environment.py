"""The environment variables that point a program to a sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tpubox.box import binaries
from tpubox.box.emulator import ENVIRONMENT
from tpubox.box.folder import HOST, Folder
from tpukit.core.errors import NotFound

PROVIDERS = ("registry.terraform.io", "releases.hashicorp.com")
"""Hosts from which `terraform init` downloads providers: https://developer.hashicorp.com/terraform/internals/provider-registry-protocol."""


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def variables(place: Folder) -> dict[str, str]:
    """Return the variables for any program: kubectl, terraform, gcloud, Google's clients, tpu itself."""
    try:
        google = json.loads((place.path / "google" / ENVIRONMENT).read_bytes())
    except FileNotFoundError as error:
        raise NotFound(f"sandbox {place.name} has never been ready", hint="run `tpu sandbox up` to start it") from error
    home = place.path / "home"
    programs = Path(binaries.ensure().program("kubectl")).parent
    return {
        **google,
        "TPUKIT_SANDBOX": place.name,
        # gcloud writes to the first file; the sandbox itself uses the second.
        "KUBECONFIG": f"{home / 'kubeconfig'}{os.pathsep}{place.kubeconfig}",
        # `tpu cluster up` writes settings: keep those of the sandbox apart from the user's own.
        "TPUKIT_SETTINGS": str(home / "settings.yaml"),
        # Clients use a cluster's DNS name without naming an authority, because Google's is well known.
        "SSL_CERT_FILE": str(place.trusted),
        # Releases are downloaded from the sandbox's copies. Nothing else is reachable but Terraform's own downloads.
        "HTTPS_PROXY": f"http://{HOST}:{place.ports['addons']}",
        "NO_PROXY": ",".join((google["NO_PROXY"], *PROVIDERS)),
        # These ssh and scp know how to reach TPU VMs; gcloud finds them by PATH too.
        "PATH": os.pathsep.join((str(place.path / "google" / "ssh" / "bin"), str(programs), _path())),
    }
