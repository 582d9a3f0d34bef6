"""GKE's metadata server: one for each pod, at the pod's own address, with the pod's identity.

Identity and token come from Google's APIs, whenever a program requests them and the last token is old.
https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#metadata_server
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpubox.kubelet.api_server import Api
from tpubox.kubelet.emulator_door import EmulatorDoor
from tpubox.kubelet.env import Object
from tpubox.tpu_vms.metadata_server import MetadataServer, Reply, access_token, identity_token
from tpukit.core.errors import NotFound, TpukitError

ANNOTATION = "iam.gke.io/gcp-service-account"
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_RENEW_SECONDS = 300.0
_SECONDS = 30.0


class Identities:
    """The metadata servers of all pods of an agent, on one thread."""

    def __init__(self, api: Api, google: EmulatorDoor) -> None:
        self._api, self._google = api, google
        self._servers: dict[str, MetadataServer] = {}  # by uid
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self, pod: Object, folder: Path, address: str) -> str:
        """Return HOST:PORT of a pod's server, with the same port as under an earlier agent."""
        note = folder / "metadata-port"
        uid = pod["metadata"]["uid"]
        with self._lock:
            if uid not in self._servers:
                last = int(note.read_text(encoding="ascii")) if note.exists() else 0
                listener = socket.create_server((address, last))
                note.write_text(str(listener.getsockname()[1]), encoding="ascii")
                identity = _Identity(self._google, self._api, pod)
                server = MetadataServer(identity.tree, None, identity.mint, {})
                try:
                    asyncio.run_coroutine_threadsafe(server.listen(listener), self._running()).result(_SECONDS)
                except OSError:  # too late: the next attempt needs the port
                    listener.close()
                    raise
                self._servers[uid] = server
        return f"{address}:{note.read_text(encoding='ascii')}"

    def forget(self, uid: str) -> None:
        with self._lock:
            server = self._servers.pop(uid, None)
        if server and self._loop:
            self._loop.call_soon_threadsafe(server.stop_listening)
            self._loop.call_soon_threadsafe(server.cut)

    def close(self) -> None:
        for uid in list(self._servers):
            self.forget(uid)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="pod-metadata", daemon=True).start()
        return self._loop


@dataclass(slots=True)
class _Identity:
    """The identity of one pod."""

    google: EmulatorDoor
    api: Api
    pod: Object
    last: Mapping[str, Any] | None = None

    async def tree(self) -> dict[str, Any]:
        try:
            now = await asyncio.to_thread(self._now)
        except (OSError, TpukitError):
            return {}
        own = {"aliases": ["default"], "email": now["email"], "scopes": _SCOPES}
        where = {
            "cluster-location": now["location"],
            "cluster-name": now["cluster"],
            "cluster-uid": now["cluster_uid"],
        }
        return {
            "instance": {
                "attributes": where,
                "hostname": self.pod["spec"]["nodeName"],
                "id": now["node_id"],
                "service-accounts": {"default": own, now["email"]: own},
                "zone": f"projects/{now['number']}/zones/{now['zone']}",
            },
            "project": {"numeric-project-id": now["number"], "project-id": now["project"]},
            "universe": {"universe-domain": "googleapis.com"},
        }

    async def mint(self, kind: str, query: Mapping[str, str]) -> Any:
        try:
            now = await asyncio.to_thread(self._now)
        except (OSError, TpukitError) as error:
            return Reply(503, f"Google's APIs do not answer: {error}\n".encode())
        if refused := now.get("refused"):
            return Reply(403, f"{refused}\n".encode())
        if kind == "token":
            return access_token(now["token"], now["expires"])
        return identity_token(query["audience"], now["email"]) if query.get("audience") else None

    def _now(self) -> Mapping[str, Any]:
        """Return the current identity. A refusal is not cached, because permission may be granted later."""
        last = self.last
        if last and last.get("expires", 0.0) > time.time() + _RENEW_SECONDS:
            return last
        self.last = self.google.ask("pods", who(self.api, self.pod))
        return self.last


def who(api: Api, pod: Object) -> dict[str, str]:
    """Return the facts that identify a pod to Google's APIs: its node, namespace and Kubernetes account."""
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    account = spec.get("serviceAccountName") or "default"
    annotations: Mapping[str, str] = {}
    with suppress(NotFound):
        annotations = api.get("ServiceAccount", account, namespace)["metadata"].get("annotations", {})
    told = {"node": spec["nodeName"], "namespace": namespace, "account": account}
    return {**told, "annotated": annotations.get(ANNOTATION, "")}
