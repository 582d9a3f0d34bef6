"""Google's Firestore emulator for tests: on loopback, emptied between them, and always stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from support.ports import free_port
from support.waiting import PATIENCE, until

PROJECT = "demo-tpukit"
MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"  # as in the SDK's own script


class Emulator:
    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the emulator, empty, at the same address after a `stop`."""
        java = ["java", "-Duser.language=en", "-Xmx1g", "-cp", str(_jar()), MAIN]
        argv = [*java, "--host=127.0.0.1", f"--port={self.port}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._answers_or_ended, "the Firestore emulator to start", every=0.05)
        assert self._process.poll() is None, f"the Firestore emulator ended: {self._log.read_text()[-2000:]}"
        self._warm()

    def reset(self) -> None:
        path = f"emulator/v1/projects/{PROJECT}/databases/(default)/documents"
        self._ask("DELETE", path)

    def stop(self) -> None:
        if self._process is None:
            return
        try:
            self._ask("POST", "shutdown")
            self._process.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Accept connections but answer none until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers_or_ended(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            # Request a document that does not exist. A cold JVM accepts connections long before it answers, and clients
            # would time out.
            self._ask("GET", f"v1/projects/{PROJECT}/databases/(default)/documents/cold/start")
        except urllib.error.HTTPError as error:
            with error:
                return error.code == 404
        except OSError:
            return False
        return True

    def _warm(self) -> None:
        """Load most of the emulator's classes with a first write and query, during which clients could time out."""
        from google.cloud import firestore
        from google.cloud.firestore_v1.base_query import FieldFilter

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FIRESTORE_EMULATOR_HOST", self.address)
            client = firestore.Client(project=PROJECT)
        try:
            document = client.document("cold/start")
            document.set({"cold": True}, timeout=PATIENCE)
            assert client.collection("cold").where(filter=FieldFilter("cold", "==", True)).get(timeout=PATIENCE)
            document.delete(timeout=PATIENCE)
        finally:
            client.close()

    def _ask(self, method: str, path: str) -> None:
        request = urllib.request.Request(f"http://{self.address}/{path}", method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=60).read()


@contextmanager
def emulator(log: Path) -> Iterator[Emulator]:
    made = Emulator(log)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@cache
def _jar() -> Path:
    """Return the emulator's jar, to run directly: gcloud's shell wrapper leaves Java behind when it is stopped."""
    assert shutil.which("java"), "there is no java on PATH: Google's Firestore emulator needs Java 17 or newer"
    gcloud = shutil.which("gcloud")
    assert gcloud, "there is no gcloud on PATH: install the Google Cloud SDK with its cloud-firestore-emulator"
    asked = subprocess.run(
        [gcloud, "info", "--format=value(installation.sdk_root)"],
        capture_output=True,
        text=True,
        env={**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"},
    )
    jar = Path(asked.stdout.strip()) / "platform" / "cloud-firestore-emulator" / "cloud-firestore-emulator.jar"
    assert jar.exists(), "the Firestore emulator is not installed: `gcloud components install cloud-firestore-emulator`"
    return jar
