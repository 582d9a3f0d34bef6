"""Programs that the tests of this folder require. A missing one is a failure with a message, never a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A fifth less CPU for hundreds of starts of Terraform, each of which reads the whole schema of the provider. Programs
# of a sandbox have their own values.
os.environ.setdefault("GOGC", "400")
LONGEST = (
    "gke",  # trains a model first; `drill` trains it twenty times, so keep them apart
    "terraform_versions",
    "provision",
    "drill",
    "scale",
    "provisioner",
    "readme",
    "teams",
    "agent_jobs",
    "fleet",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, so that no worker is left alone with a long one at the end."""
    order = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session")
def terraform_environment() -> dict[str, str]:
    """Return variables with which terraform takes the provider from the cache, and reaches only this machine."""
    if shutil.which("terraform") is None:
        pytest.fail("terraform is not on PATH: install Terraform 1.11 or newer")
    script = ROOT / "tools" / "provider" / "build.py"
    built = subprocess.run([sys.executable, script, "--no-build"], capture_output=True, text=True)
    if built.returncode:
        pytest.fail(built.stderr.strip())
    # The provider looks up its identity at Google when configured; a refused connection is the quickest answer.
    nowhere = "http://127.0.0.1:1"
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TF_", "GOOGLE_", "CLOUDSDK_"))},
        "TF_CLI_CONFIG_FILE": built.stdout.strip(),
        "TF_IN_AUTOMATION": "1",
        "TF_INPUT": "0",
        "CHECKPOINT_DISABLE": "1",
        "GOOGLE_OAUTH_ACCESS_TOKEN": "nobody",
        "HTTPS_PROXY": nowhere,
        "HTTP_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
    }
