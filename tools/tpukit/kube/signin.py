"""Signing in with the program that a kubeconfig names (`gke-gcloud-auth-plugin`).

The package `kubernetes` runs it too; but it waits for ever, and what goes wrong it prints and then asks as nobody.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from typing import Any

from tpukit.errors import Invalid, TpukitError, Transient, Unauthenticated
from tpukit.kube.answers import SIGN_IN

PLUGIN_SECONDS = 30.0
_GKE_PLUGIN = "gke-gcloud-auth-plugin"


def loader(config: Any, context: str) -> Any:
    """The package's reader of a kubeconfig, with our way of asking the plugin; it does so again before a token ends."""
    from kubernetes.config import kube_config

    class Loader(kube_config.KubeConfigLoader):  # type: ignore[misc]
        expiry: datetime

        def _load_from_exec_plugin(self) -> bool | None:
            if "exec" not in self._user:
                return None
            folder = self._get_base_path(self._cluster.path)
            try:
                status = credential(kube_config.ExecProvider(self._user["exec"], folder, self._cluster), _hint(self))
            except TpukitError:
                if "token" in self.__dict__ and "expiry" in self.__dict__ and self.expiry > datetime.now(UTC):
                    return True  # asked for the next one early, and this one still holds
                raise
            if "token" in status:
                self.token = f"Bearer {status['token']}"
            else:
                for name, key in (("cert_file", "clientCertificateData"), ("key_file", "clientKeyData")):
                    data = kube_config.FileOrData(status, None, data_key_name=key, base64_file_content=False)
                    setattr(self, name, data.as_file())
            if "expirationTimestamp" in status:
                self.expiry = kube_config.parse_rfc3339(status["expirationTimestamp"])
            return True

    return Loader(config, active_context=context, config_base_path=None)


def credential(plugin: Any, install_hint: str = "") -> dict[str, Any]:
    """The status of the ExecCredential that the plugin prints: a token, or a certificate with its key."""
    name = str(plugin.args[0])
    asked: dict[str, Any] = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    if plugin.cluster:
        asked["spec"]["cluster"] = plugin.cluster.value
    try:
        ran = subprocess.run(
            plugin.args,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=plugin.cwd,
            env={**plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            timeout=PLUGIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{name}, which signs in to the cluster, did not end within {PLUGIN_SECONDS:.0f} s"
        raise Transient(message, hint=SIGN_IN) from error
    except OSError as error:
        message = f"{name}, which signs in to the cluster, cannot be started: {error.strerror or error}"
        # Not NotFound: to whoever deletes an object, that says that the object is gone.
        raise Unauthenticated(message, hint=install_hint or _install(name)) from error
    if ran.returncode:
        said = ran.stderr.decode(errors="replace").strip()[-500:] or "it did not say why"
        raise Unauthenticated(f"{name} could not sign in (exit code {ran.returncode}): {said}", hint=SIGN_IN)
    return _status(ran.stdout, name, plugin.api_version)


def _status(printed: bytes, name: str, version: str) -> dict[str, Any]:
    try:
        document = json.loads(printed)
        status = document["status"]
        usable = "token" in status or ("clientCertificateData" in status and "clientKeyData" in status)
        problem = "" if usable else "neither a token nor a certificate with its key"
        if document.get("apiVersion") != version:
            problem = f"apiVersion {document.get('apiVersion')} where the kubeconfig says {version}"
    except (ValueError, LookupError, TypeError, AttributeError):
        problem = "something that is no ExecCredential"
    if problem:
        hint = "update it, then run `tpu cluster credentials` to write the kubeconfig again"
        raise Invalid(f"{name}, which signs in to the cluster, printed {problem}", hint=hint)
    return dict(status)


def _hint(reader: Any) -> str:
    """What the kubeconfig itself says about getting the plugin; several lines, of which the first says it."""
    return str(reader._user["exec"].safe_get("installHint") or "").strip().partition("\n")[0]


def _install(name: str) -> str:
    if os.path.basename(name) == _GKE_PLUGIN:  # noqa: PTH119 (text of a kubeconfig, maybe no path at all)
        return f"`gcloud components install {_GKE_PLUGIN}`, and have it on PATH"
    return f"install {name} and have it on PATH, or let `tpu cluster credentials` write the kubeconfig anew"
