"""A program that saves to a bucket like a training run, as the Google account of its pod."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpubox.google.wire.server import Emulator
from tpubox.kubelet.emulator_door import EmulatorDoor
from tpubox.kubelet.pod_metadata import ANNOTATION, Identities

TOOLS = Path(__file__).resolve().parents[2] / "tools"
PROGRAM = """
import os, signal, sys, traceback
import jax, jax.numpy as jnp
import gcsfs, google.cloud.storage, orbax.checkpoint, tensorboardX
from tpukit import host as tpu
from tpukit.host.checkpoints import Checkpoints

class Data:
    def get_state(self): return {"at": 1}
    def set_state(self, state): assert state == {"at": 1}

def save_and_restore():
    host = tpu.start()
    state = {"weights": jnp.arange(8.0)}
    saved = Checkpoints(host, every=1, keep=1)
    for step in (1, 2):  # the second takes the place of the first
        saved.save(step, state, Data())
    saved.close()
    again = Checkpoints(host, every=1, keep=1)
    restored, step = again.restore_latest(jax.eval_shape(lambda: state), Data())
    assert step == 2 and (restored["weights"] == state["weights"]).all()

for line in sys.stdin:
    child = os.fork()  # what is loaded serves all runs, and what one run remembers serves no other
    if not child:
        signal.alarm(600)
        os.environ["TPUKIT_WORKDIR"] = line.strip()
        try:
            save_and_restore()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Training:
    """A program that can run any number of times, each time in an empty folder."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self._log, self._runs, pipe = log, 0, subprocess.PIPE
        argv = [sys.executable, "-W", "ignore", "-c", PROGRAM]
        with log.open("w") as said:
            self._process = subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=said, text=True)

    def run(self, folder: str) -> bool:
        """Run the program and return whether it succeeded."""
        self._runs += 1
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError
        self._process.stdin.write(f"{folder}/run-{self._runs}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self.said()[-3000:]
        return answer == "0\n"

    def said(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        self._process.communicate()


class _ServiceAccounts:
    """Kubernetes service accounts, all annotated with one Google account."""

    def __init__(self, email: str) -> None:
        self._email = email

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {ANNOTATION: self._email}}}


@contextmanager
def pod(
    google: Emulator, folder: Path, *, node: str, namespace: str, account: str, annotated: str
) -> Iterator[dict[str, str]]:
    """Yield the environment of a pod on a GKE node, with a metadata server for its identity."""
    door = EmulatorDoor(google.address, google.token)
    identities = Identities(_ServiceAccounts(annotated), door)
    meta = {"uid": f"{namespace}-{account}", "namespace": namespace}
    described = {"metadata": meta, "spec": {"nodeName": node, "serviceAccountName": account}}
    folder.mkdir(exist_ok=True)
    address = identities.serve(described, folder, "127.0.0.1")
    where = ("API_ENDPOINT_OVERRIDE", "FSSPEC_GCS_ENDPOINT_URL", "FSSPEC_GS_ENDPOINT_URL", "TENSORSTORE_GCS_HTTP_URL")
    try:
        yield {
            **{name: value for name in ("PATH", "HOME", "LANG") if (value := os.environ.get(name))},
            "PYTHONPATH": str(TOOLS),
            "JAX_PLATFORMS": "cpu",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # avoids a gRPC request
            "GOOGLE_VERTEX_AI_CUSTOM_ENDPOINT": f"{google.address}/vertex_ai/v1/",
            **dict.fromkeys(where, google.address),
            **dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"), address),
        }
    finally:
        identities.close()
