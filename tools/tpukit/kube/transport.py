"""Connections to one API server: TLS, proxies and keep-alive."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tpukit.core import resources
from tpukit.core.errors import NotFound
from tpukit.kube.kubeconfig_file import Access

if TYPE_CHECKING:
    from urllib3 import PoolManager

_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
_CONNECTIONS = 16


def pool(access: Access, certificate: tuple[str, ...]) -> PoolManager:
    """Return a connection pool.

    `certificate` is the user's certificate and its key, in PEM; both empty if something else signs in.
    """
    try:
        import urllib3
    except ImportError as error:
        raise NotFound("the package urllib3 is not installed", hint=resources.install_hint("gke")) from error

    options: dict[str, Any] = {"maxsize": _CONNECTIONS, "socket_options": keep_alive()}
    if access.server.startswith("https:"):
        options |= {"ssl_context": tls(access, certificate), "cert_reqs": "CERT_REQUIRED"}
        if not access.verify:  # the kubeconfig asks for it, and a warning for each call helps no user
            options |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if access.server_name:
            options |= {"server_hostname": access.server_name, "assert_hostname": access.server_name}
    if proxy := proxy_of(access):
        return urllib3.ProxyManager(proxy, **options)
    return urllib3.PoolManager(**options)


def tls(access: Access, certificate: tuple[str, ...]) -> ssl.SSLContext:
    """Return the TLS context. Python reads client certificates only from files, which are removed after reading."""
    made = ssl.create_default_context(cadata=access.authority) if access.authority else ssl.create_default_context()
    if not access.verify:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if all(certificate):
        descriptor, name = tempfile.mkstemp(prefix="tpukit-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write("\n".join(certificate))
            made.load_cert_chain(name)
        finally:
            Path(name).unlink()
    return made


def connected(access: Access, certificate: tuple[str, ...], seconds: float) -> tuple[socket.socket, str]:
    """Return a separate connection to the server, and the Host value for requests over it."""
    url = urlsplit(access.server)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    made = socket.create_connection((host, port), seconds)
    made.settimeout(None)
    for option in keep_alive():
        made.setsockopt(*option)
    if url.scheme == "https":
        try:
            made = tls(access, certificate).wrap_socket(made, server_hostname=access.server_name or host)
        except BaseException:
            made.close()
            raise
    return made, url.netloc


def proxy_of(access: Access) -> str:
    """Return the proxy to the server, from the kubeconfig or the environment; empty for this machine."""
    host = urlsplit(access.server).hostname or ""
    if host in _THIS_MACHINE:
        return ""
    if access.proxy:
        return access.proxy
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    from urllib.request import getproxies, proxy_bypass

    return "" if proxy_bypass(host) else getproxies().get(urlsplit(access.server).scheme, "")


def keep_alive() -> list[tuple[int, int, int]]:
    """Return socket options that detect a lost connection after about a minute.

    A healthy stream may be silent for hours.
    """
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
