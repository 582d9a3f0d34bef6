"""Requests to one API server: signed in, with a timeout, and only with errors of tpukit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tpukit.core import fence
from tpukit.core.errors import Denied, Invalid, TpukitError, Transient, Unauthenticated
from tpukit.kube import answers, kubeconfig_file, transport
from tpukit.kube.kinds import Doc, encode
from tpukit.kube.requests import REQUESTS
from tpukit.kube.signin import Credentials
from tpukit.kube.web_socket import Refused, WebSocket

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
_STRANGER = ("CERTIFICATE_VERIFY_FAILED", "NO_CERTIFICATE_OR_CRL_FOUND", "PEM lib", "KEY_VALUES_MISMATCH")
"""Words in TLS errors that do not pass by themselves."""


class Connection:
    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._access = kubeconfig_file.load(kubeconfig, context)
        self._signing_in = threading.Lock()
        with kubeconfig_file.explained(self._access.files):
            self._signin = Credentials(self._access)
            self._certificate = self._signin.certificate
            self._pool = transport.pool(self._access, self._certificate)

    @property
    def server(self) -> str:
        return self._access.server

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
        seconds: float = ANSWER_SECONDS,
    ) -> Doc:
        """Send a request, and return the response document."""
        document: Doc = self.decoded(self.read(method, path, query, body=body, content=content, seconds=seconds))
        return document

    def read(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
        accept: str = "application/json",
        seconds: float = ANSWER_SECONDS,
    ) -> bytes:
        with self.answer(method, path, query, body=body, content=content, accept=accept, seconds=seconds) as answer:
            return answer.data

    def decoded(self, content: bytes) -> Doc:
        try:
            document: Doc = json.loads(content)
        except ValueError as error:
            raise Transient(
                f"{self.server} sent an answer that is not JSON: {content[:80].decode(errors='replace')!r}",
                hint="a proxy may have answered: see HTTPS_PROXY and NO_PROXY",
            ) from error
        return document

    @contextmanager
    def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
        accept: str = "application/json",
        seconds: float | None = ANSWER_SECONDS,
    ) -> Iterator[BaseHTTPResponse]:
        """Yield a streaming response. `seconds` is the longest silence; None lasts as long as the connection.

        A request that writes is sent only while the fence holds, and given up before the lease of the driver ends.
        """
        import urllib3

        headers = {"Accept": accept, "User-Agent": "tpukit", **self._credentials()}
        if body is not None:
            headers["Content-Type"] = content
        encoded = None if body is None else encode(body)
        REQUESTS.add(method, path, query or {})
        try:
            total = None
            if method != "GET":  # last, so that nothing slow comes between this and the send
                total = seconds = fence.deadline(ANSWER_SECONDS if seconds is None else seconds)
            connect = CONNECT_SECONDS if seconds is None else min(CONNECT_SECONDS, seconds)
            with closing(
                self._pool.request(
                    method,
                    f"{self.server}{path}" + (f"?{urlencode(query)}" if query else ""),
                    body=encoded,
                    headers=headers,
                    preload_content=False,
                    retries=False,
                    timeout=urllib3.Timeout(total=total, connect=connect, read=seconds),
                )
            ) as answer:
                if answer.status >= 300:
                    retry_after = answer.headers.get("Retry-After", "")
                    raise answers.error(answer.status, answer.data, f"{method} {path}", retry_after)
                yield answer
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error

    @contextmanager
    def web_socket(self, path: str, query: Sequence[tuple[str, str]], protocol: str) -> Iterator[WebSocket]:
        """Yield a WebSocket to this path."""
        if proxy := transport.proxy_of(self._access):
            hint = f"add its host to NO_PROXY, or use kubectl; the proxy is {proxy}"
            raise Invalid(f"commands on hosts of {self.server} do not go through a proxy", hint=hint)
        headers = {"User-Agent": "tpukit", "Sec-WebSocket-Protocol": protocol, **self._credentials()}
        REQUESTS.add("POST", path, {})
        fence.check()
        asked = f"{path}?{urlencode(query)}"
        try:
            connection, host = transport.connected(self._access, self._certificate, CONNECT_SECONDS)
            socket = WebSocket(connection, host, asked, headers)
        except Refused as refused:
            raise answers.error(refused.status, refused.content, f"exec {path}") from refused
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            yield socket
        finally:
            socket.close()

    def _credentials(self) -> dict[str, str]:
        """Return the sign-in headers, one thread at a time: a token that is about to expire is renewed only once."""
        try:
            with self._signing_in:
                headers = self._signin.headers()
                if self._signin.certificate != self._certificate:  # renewed: do not reuse old connections
                    self._certificate = self._signin.certificate
                    self._pool = transport.pool(self._access, self._certificate)
                return headers
        except TpukitError:
            raise
        except Exception as error:  # a missing token file, a certificate that does not fit its key
            raise Unauthenticated(f"signing in to {self.server} failed: {error}", hint=answers.SIGN_IN) from error

    def _unreachable(self, error: Exception) -> TpukitError:
        said = str(error)
        if any(words in said for words in _STRANGER):
            hint = "the kubeconfig may be of another cluster at this address: `tpu cluster credentials` writes it again"
            return Denied(f"{self.server} and the certificates of the kubeconfig do not match: {said}", hint=hint)
        return Transient(f"{self.server} does not respond: {said}")
