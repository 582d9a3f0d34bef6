"""The variables that lead a program into a sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tpubox.box import binaries
from tpubox.box.emulator import ENVIRONMENT
from tpubox.box.folder import HOST, Folder
from tpukit.core.errors import NotFound


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def variables(place: Folder) -> dict[str, str]:
    """For any program: kubectl, terraform, gcloud, Google's clients, tpu itself."""
    try:
        google = json.loads((place.path / "google" / ENVIRONMENT).read_bytes())
    except FileNotFoundError as error:
        raise NotFound(f"sandbox {place.name} was never ready", hint="`tpu sandbox up` makes it so") from error
    home = place.path / "home"
    programs = Path(binaries.ensure().program("kubectl")).parent
    return {
        **google,
        "TPUKIT_SANDBOX": place.name,
        # What gcloud writes goes to the first; the sandbox itself lives by the second.
        "KUBECONFIG": f"{home / 'kubeconfig'}{os.pathsep}{place.kubeconfig}",
        # `tpu cluster up` writes settings: those of this cloud are not those of the person's real one.
        "TPUKIT_SETTINGS": str(home / "settings.yaml"),
        # A cluster is reached by its DNS name without a word about its authority: Google's is one that all know.
        "SSL_CERT_FILE": str(place.trusted),
        # Releases are downloaded from what the sandbox has of them; nothing else is reached.
        "HTTPS_PROXY": f"http://{HOST}:{place.ports['addons']}",
        # ssh and scp among them know the way to TPU VMs; gcloud finds them by PATH too.
        "PATH": os.pathsep.join((str(place.path / "google" / "ssh" / "bin"), str(programs), _path())),
    }
