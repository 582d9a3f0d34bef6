"""What the tests of this folder need to be installed. What is missing is a failure with a sentence, never a skip."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpukit.sandbox.google import routing
from unit import discovery

ROOT = Path(__file__).resolve().parents[2]


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


_WRONG: list[str] = []


@pytest.fixture(scope="session", autouse=True)
def checked_answers() -> Iterator[None]:
    """What the emulators of this process answer is held against Google's own documents."""
    answer = routing.answer

    def checked(cloud: routing.Cloud, request: routing.Request) -> routing.Answer:
        given = answer(cloud, request)
        content = request.query.get("alt") == "media"  # of an object: it may be JSON of anybody's
        if given.status < 300 and not content and "json" in given.headers.get("content-type", ""):
            _WRONG.extend(discovery.problems(request.method, request.path, json.loads(given.content)))
        return given

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "answer", checked)
        yield


@pytest.fixture(autouse=True)
def no_answer_that_google_could_not_give(checked_answers: None) -> Iterator[None]:
    yield
    wrong = sorted(set(_WRONG))
    _WRONG.clear()
    assert not wrong, "\n".join(wrong)
