"""The variables that lead a program into a sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tpukit.errors import NotFound
from tpukit.sandbox import binaries
from tpukit.sandbox.emulator import ENVIRONMENT
from tpukit.sandbox.folder import HOST, Folder


def variables(place: Folder) -> dict[str, str]:
    """For any program: kubectl, terraform, gcloud, Google's clients, tpu itself."""
    try:
        google = json.loads((place.path / "google" / ENVIRONMENT).read_bytes())
    except FileNotFoundError as error:
        raise NotFound(f"sandbox {place.name} was never ready", hint="`tpu sandbox up` makes it so") from error
    programs = Path(binaries.ensure().program("kubectl")).parent
    return {
        **google,
        "TPUKIT_SANDBOX": place.name,
        "KUBECONFIG": str(place.kubeconfig),
        # A cluster is reached by its DNS name without a word about its authority: Google's is one that all know.
        "SSL_CERT_FILE": str(place.trusted),
        # Releases are downloaded from what the sandbox has of them; nothing else is reached.
        "HTTPS_PROXY": f"http://{HOST}:{place.ports['addons']}",
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
