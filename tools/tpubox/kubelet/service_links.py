"""Variables that describe Services to containers: those of the pod's namespace, and the API server's.

As in https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/envvars/envvars.go. Only the API server's address
is reachable here. A pod with `enableServiceLinks: false` gets that Service alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

Object = Mapping[str, Any]
_SERVER = "kubernetes"


def of_pod(pod: Object, services: Callable[[str], Iterable[Object]]) -> dict[str, str]:
    """Return a pod's variables; `services` lists a namespace, and is not called if the pod disables service links."""
    if pod["spec"].get("enableServiceLinks") is False:
        return {}
    found: dict[str, str] = {}
    for service in services(pod["metadata"]["namespace"]):
        if service["metadata"]["name"] == _SERVER:
            continue  # it has another address here
        address, ports = service["spec"].get("clusterIP"), service["spec"].get("ports") or []
        if address and address != "None" and ports:
            found |= variables(service["metadata"]["name"], address, ports)
    return found


def of_server(url: str) -> dict[str, str]:
    """Return the variables of the Service `kubernetes`, which every pod gets."""
    address = urlsplit(url)
    ports = [{"name": "https", "port": address.port or 443}]
    return variables(_SERVER, address.hostname or "127.0.0.1", ports)


def variables(name: str, address: str, ports: Iterable[Object]) -> dict[str, str]:
    service = _name(name)
    host = f"[{address}]" if ":" in address else address
    found = {f"{service}_SERVICE_HOST": address}
    for port in ports:
        number, protocol = str(port["port"]), str(port.get("protocol") or "TCP")
        found.setdefault(f"{service}_SERVICE_PORT", number)
        if port.get("name"):
            found[f"{service}_SERVICE_PORT_{_name(port['name'])}"] = number
        url = f"{protocol.lower()}://{host}:{number}"
        found.setdefault(f"{service}_PORT", url)
        prefix = f"{service}_PORT_{number}_{protocol}"
        found |= {
            prefix: url,
            f"{prefix}_PROTO": protocol.lower(),
            f"{prefix}_PORT": number,
            f"{prefix}_ADDR": address,
        }
    return found


def _name(text: str) -> str:
    return text.upper().replace("-", "_")
