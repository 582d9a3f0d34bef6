"""The pool of connections to one API server: TLS, proxies and keep-alive."""

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
    """`certificate`: that of the user and its key, in PEM; both empty where something else signs in."""
    try:
        import urllib3
    except ImportError as error:
        raise NotFound("the package urllib3 is not installed", hint=resources.install_hint("gke")) from error

    options: dict[str, Any] = {"maxsize": _CONNECTIONS, "socket_options": keep_alive()}
    if access.server.startswith("https:"):
        options |= {"ssl_context": tls(access, certificate), "cert_reqs": "CERT_REQUIRED"}
        if not access.verify:  # whoever wrote so into the kubeconfig knows; a warning with each call tells nobody
            options |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if access.server_name:
            options |= {"server_hostname": access.server_name, "assert_hostname": access.server_name}
    if proxy := proxy_of(access):
        return urllib3.ProxyManager(proxy, **options)
    return urllib3.PoolManager(**options)


def tls(access: Access, certificate: tuple[str, ...]) -> ssl.SSLContext:
    """Python reads certificates of a client from files alone: those are removed as soon as they were read."""
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
    """A connection of its own to the server, and the name that a request over it has for its host."""
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
    """The proxy that leads to the server, from the kubeconfig or the environment; none leads back to this machine."""
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
    """A stream without a word for hours is told from a connection that is lost: that ends after about a minute."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
