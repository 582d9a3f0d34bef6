"""Objects that pods refer to: config maps, secrets, tokens, Services, and the Job of a pod."""

from __future__ import annotations

import base64

from tpubox.kubelet.api_server import Api
from tpubox.kubelet.env import BadConfig, Object
from tpukit.core.errors import Invalid, NotFound
from tpukit.kube import Doc

_CACHED_JOBS = 1000


class Lookups:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._jobs: dict[str, Object] = {}

    def config_map(self, namespace: str, name: str) -> Object | None:
        try:
            found = self._api.get("ConfigMap", name, namespace)
        except NotFound:
            return None
        binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        return {**(found.get("data") or {}), **binary}

    def secret(self, namespace: str, name: str) -> Object | None:
        try:
            data = self._api.get("Secret", name, namespace).get("data") or {}
        except NotFound:
            return None
        return {key: base64.b64decode(value) for key, value in data.items()}

    def services(self, namespace: str) -> list[Doc]:
        return self._api.list("Service", namespace)

    def job(self, pod: Object) -> Object | None:
        """Return the Job that owns the pod. Its size does not change, so the answer is cached."""
        owners = pod["metadata"].get("ownerReferences", [])
        owner = next((one for one in owners if one["kind"] == "Job" and one.get("controller")), None)
        if owner is None:
            return None
        if owner["uid"] not in self._jobs:
            if len(self._jobs) > _CACHED_JOBS:
                self._jobs.clear()
            try:
                self._jobs[owner["uid"]] = self._api.get("Job", owner["name"], pod["metadata"]["namespace"])
            except NotFound:
                return None
        return self._jobs[owner["uid"]]

    def token(self, pod: Object, wanted: Object) -> str:
        """Return a token of the pod's service account that is bound to the pod."""
        metadata = pod["metadata"]
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [wanted["audience"]] if wanted.get("audience") else [],
                "expirationSeconds": wanted.get("expirationSeconds", 3600),
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        account = pod["spec"].get("serviceAccountName") or "default"
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        try:
            answer = self._api.call("POST", path, body=asked)
        except (NotFound, Invalid) as problem:
            raise BadConfig(f"no token for service account {account}: {problem}") from problem
        return str(answer["status"]["token"])
