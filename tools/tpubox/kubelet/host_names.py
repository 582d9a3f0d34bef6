"""Names of hosts and the loopback address of each.

Every name gets an address in 127.0.0.0/8 before the pod with that name exists, and keeps it, so that hosts can listen
on the same port. The record is an append-only file for each namespace. See `resolved_names` for which of the names can
be resolved.
"""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from tpukit.core.errors import Transient

_OURS = "# hosts of this namespace\n"


class Names:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._network, self._claim = _claim_network(folder / "network")
        self._known = {path.name: _read(path) for path in folder.glob("ns-*")}
        taken = [address for names in self._known.values() for address in names.values()]
        self._last = max((_number(address) for address in taken), default=256)

    def addresses(self, namespace: str, names: Iterable[str]) -> dict[str, str]:
        """Return the address of each name (`host.subdomain` or `host`), assigning new ones."""
        with self._lock:
            known = self._known.setdefault(f"ns-{namespace}", {})
            new = [name for name in dict.fromkeys(names) if name not in known]
            for name in new:
                self._last += 1
                known[name] = f"127.{self._network}.{self._last >> 8}.{self._last & 255}"
            self._write(namespace, {name: known[name] for name in new})
            return {name: known[name] for name in names}

    def all_addresses(self, namespace: str) -> Mapping[str, str]:
        with self._lock:
            return dict(self._known.get(f"ns-{namespace}", {}))

    def close(self) -> None:
        """Release the network."""
        self._claim.close()

    def _write(self, namespace: str, new: Mapping[str, str]) -> None:
        path = self._folder / f"ns-{namespace}"
        lines = "".join(f"{address}\t{_spellings(name, namespace)}\n" for name, address in new.items())
        if lines and not path.exists():
            lines = _OURS + lines
        if lines:
            with path.open("a", encoding="utf-8") as file:
                file.write(lines)


def pod_name(hostname: str, subdomain: str) -> str:
    return f"{hostname}.{subdomain}" if subdomain else hostname


def reported(address: str) -> str:
    """Return the address to report to Kubernetes, whose endpoints refuse loopback addresses."""
    return "10" + address.removeprefix("127")


def own_address(reported_address: str) -> str:
    """Return the address behind a reported one, or "" if it is not a pod's address."""
    return "127" + reported_address.removeprefix("10") if reported_address.startswith("10.") else ""


def rewrite(text: str, replacements: Mapping[str, str]) -> str:
    """Replace whole names and paths in a text, longest first, for systems without mounts."""
    if not replacements:
        return text
    longest_first = sorted(replacements, key=len, reverse=True)
    pattern = "|".join(re.escape(name) for name in longest_first)
    return re.sub(rf"(?<![\w.-])(?:{pattern})(?![\w-])", lambda match: replacements[match[0]], text)


def _spellings(name: str, namespace: str) -> str:
    host, _, subdomain = name.partition(".")
    if not subdomain:
        return host
    return f"{name}.{namespace}.svc.cluster.local {name}.{namespace}.svc {name} {host}"


def _read(path: Path) -> dict[str, str]:
    found = {}
    for line in path.read_text(encoding="utf-8").partition(_OURS)[2].splitlines():
        address, *names = line.split()
        found[names[2] if len(names) > 2 else names[0]] = address
    return found


def _number(address: str) -> int:
    _, _, high, low = address.split(".")
    return int(high) << 8 | int(low)


def _claim_network(note: Path) -> tuple[int, socket.socket]:
    """Claim 127.N for this agent, preferably its previous one, with a socket name that the kernel releases at exit."""
    before = [int(note.read_text(encoding="ascii"))] if note.exists() else []
    others = list(range(1, 255))
    random.shuffle(others)
    for network in [*before, *others]:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0tpukit-127.{network}")
        except OSError:
            claim.close()
            continue
        if [network] != before:
            note.write_text(str(network), encoding="ascii")
        return network, claim
    raise Transient("254 sandboxes run on this machine already", hint="stop one with `tpu sandbox down`")
