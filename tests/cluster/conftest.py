"""What the tests of this folder need to be installed. What is missing is a failure with a sentence, never a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Terraform and its provider are started hundreds of times, and each start reads the schema of everything that Google
# has: a fifth less work where less garbage is collected. What a sandbox runs has values of its own.
os.environ.setdefault("GOGC", "400")
LONGEST = (
    "gke",  # trains a model first, so `drill`, which trains it twenty times, is not beside it
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
    """The longest files first: workers take a file at a time, and one would be alone with a long one at the end."""
    order = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session")
def terraform_environment() -> dict[str, str]:
    """Variables with which terraform takes the provider from the cache, and can reach nothing outside this machine."""
    if shutil.which("terraform") is None:
        pytest.fail("terraform is not on PATH: install Terraform 1.11 or newer")
    script = ROOT / "tools" / "provider" / "build.py"
    built = subprocess.run([sys.executable, script, "--no-build"], capture_output=True, text=True)
    if built.returncode:
        pytest.fail(built.stderr.strip())
    # Configuring the provider asks Google who one is; a refused connection is the quickest answer, and all it wants.
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
