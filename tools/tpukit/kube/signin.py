"""Credentials of a kubeconfig's user: a token, a token file, a certificate, or a program (`gke-gcloud-auth-plugin`).

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tpukit.core.errors import Invalid, TpukitError, Transient, Unauthenticated
from tpukit.kube.answers import SIGN_IN
from tpukit.kube.kubeconfig_file import Access, content

PLUGIN_SECONDS = 30.0
_EARLY = timedelta(minutes=5)
"""Time before expiry at which a token is renewed: clocks differ."""
_GKE_PLUGIN = "gke-gcloud-auth-plugin"


class Credentials:
    """Credentials that sign in at creation, and again before they expire. One thread at a time."""

    def __init__(self, access: Access) -> None:
        self._access, self._user = access, access.user
        self._token = ""
        self._until: datetime | None = None
        self.certificate = tuple(
            content(self._user, name, access.folder) for name in ("client-certificate", "client-key")
        )
        if self._asks_plugin:
            self._ask_plugin()

    def headers(self) -> dict[str, str]:
        """Return the header that signs a request; empty if a certificate does."""
        if self._asks_plugin and self._until and self._until - _EARLY <= datetime.now(UTC):
            try:
                self._ask_plugin()
            except TpukitError:
                if self._until <= datetime.now(UTC):
                    raise  # otherwise the token is still valid
        value = self._authorization()
        return {"authorization": value} if value else {}

    @property
    def _asks_plugin(self) -> bool:
        return "exec" in self._user and not self._user.get("token") and not self._user.get("tokenFile")

    def _authorization(self) -> str:
        if file := self._user.get("tokenFile"):  # renewed by its writer, as the kubelet does in pods
            return f"Bearer {(self._access.folder / str(file)).read_text().strip()}"
        if token := self._user.get("token") or self._token or _oidc_token(self._user):
            return f"Bearer {token}"
        if self._user.get("username") and self._user.get("password"):
            pair = f"{self._user['username']}:{self._user['password']}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        return ""

    def _ask_plugin(self) -> None:
        status = credential(self._user["exec"], self._access)
        self._token = str(status.get("token") or "")
        if not self._token:
            self.certificate = str(status["clientCertificateData"]), str(status["clientKeyData"])
        self._until = _moment(status["expirationTimestamp"]) if status.get("expirationTimestamp") else None


def credential(plugin: Mapping[str, Any], access: Access) -> dict[str, Any]:
    """Return the status of the ExecCredential that the plugin prints: a token, or a certificate with its key."""
    command, version = str(plugin["command"]), str(plugin["apiVersion"])
    asked: dict[str, Any] = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    if plugin.get("provideClusterInfo"):
        asked["spec"]["cluster"] = dict(access.cluster)
    environment = {str(one["name"]): str(one["value"]) for one in plugin.get("env") or []}
    program = str(access.folder / command) if "/" in command else command
    try:
        ran = subprocess.run(
            [program, *(str(one) for one in plugin.get("args") or [])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=access.folder,
            env={**os.environ, **environment, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            timeout=PLUGIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{command}, which signs in to the cluster, did not end within {PLUGIN_SECONDS:.0f} s"
        raise Transient(message, hint=SIGN_IN) from error
    except OSError as error:
        message = f"{command}, which signs in to the cluster, cannot be started: {error.strerror or error}"
        # Not NotFound: a caller that deletes an object would take that as success.
        raise Unauthenticated(message, hint=_install_hint(plugin) or _install(command)) from error
    if ran.returncode:
        said = ran.stderr.decode(errors="replace").strip()[-500:] or "it printed no reason"
        raise Unauthenticated(f"{command} could not sign in (exit code {ran.returncode}): {said}", hint=SIGN_IN)
    return _status(ran.stdout, command, version)


def _status(printed: bytes, name: str, version: str) -> dict[str, Any]:
    try:
        document = json.loads(printed)
        status = document["status"]
        usable = "token" in status or ("clientCertificateData" in status and "clientKeyData" in status)
        problem = "" if usable else "neither a token nor a certificate with its key"
        if document.get("apiVersion") != version:
            problem = f"apiVersion {document.get('apiVersion')} where the kubeconfig says {version}"
    except (ValueError, LookupError, TypeError, AttributeError):
        problem = "output that is not an ExecCredential"
    if problem:
        hint = "update it, then run `tpu cluster credentials` to write the kubeconfig again"
        raise Invalid(f"{name}, which signs in to the cluster, printed {problem}", hint=hint)
    return dict(status)


def _oidc_token(user: Mapping[str, Any]) -> str:
    """Return the token of an OpenID Connect provider; `kubectl` renews it."""
    provider = user.get("auth-provider") or {}
    return str((provider.get("config") or {}).get("id-token") or "") if provider.get("name") == "oidc" else ""


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _install_hint(plugin: Mapping[str, Any]) -> str:
    """Return the first line of the kubeconfig's own instructions to install the plugin."""
    return str(plugin.get("installHint") or "").strip().partition("\n")[0]


def _install(name: str) -> str:
    if Path(name).name == _GKE_PLUGIN:
        return f"`gcloud components install {_GKE_PLUGIN}`, and make sure that it is on PATH"
    return (
        f"install {name} and make sure that it is on PATH, or let `tpu cluster credentials` write the kubeconfig again"
    )
