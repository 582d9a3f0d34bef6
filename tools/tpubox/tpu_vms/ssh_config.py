"""Access of `ssh`, `scp` and gcloud on this machine to hosts: a configuration, known hosts, and wrappers for PATH.

gcloud has no option for a port and finds `ssh` by PATH, so a port other than 22 has to come from a configuration that
the wrappers name. https://man.openbsd.org/ssh_config
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tpubox.google.wire.state import Doc
from tpubox.tpu_vms.network import Network

_PROGRAMS = ("ssh", "scp", "sftp")
_WRAPPER = '#!/bin/sh\nexec {program} -F {config} "$@"\n'
_USERS_OWN = "\nMatch all\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n"


class SshConfig:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "config"
        self.programs = folder / "bin"
        self._known_hosts = folder / "known_hosts"
        self._last = ""
        self.programs.mkdir(parents=True, exist_ok=True)
        self._put(self.file, _USERS_OWN)
        for name in _PROGRAMS:
            path = [folder for folder in _search() if folder != str(self.programs)]
            if program := shutil.which(name, path=":".join(path)):
                wrapper = self.programs / name
                self._put(wrapper, _WRAPPER.format(program=shlex.quote(program), config=shlex.quote(str(self.file))))
                wrapper.chmod(0o700)

    def write(self, network: Network | None, nodes: Iterable[Doc], guest: Callable[[str], Doc | None]) -> None:
        """Write the names of all hosts (NODE-w-NUMBER), their port, and their keys."""
        if network is None:
            return
        blocks, known = [], []
        for vm in nodes:
            for worker, endpoint in enumerate(vm["networkEndpoints"]):
                name = f"{vm['name'].rpartition('/')[2]}-w-{worker}"
                address = endpoint.get("accessConfig", {}).get("externalIp") or endpoint["ipAddress"]
                blocks.append(f"Host {name}\n  HostName {address}\n  HostKeyAlias {name}\n")
                key = (guest(f"{vm['id']}/{worker}") or {}).get("hostkeys/ssh-ed25519")
                if key:
                    known.append(f"{name},{_pattern(endpoint['ipAddress'], network.ssh_port)} ssh-ed25519 {key}\n")
                    if address != endpoint["ipAddress"]:
                        known.append(f"{_pattern(address, network.ssh_port)} ssh-ed25519 {key}\n")
        addresses = f"Match host {network.prefix}.*\n  Port {network.ssh_port}\n"
        addresses += f"  UserKnownHostsFile {self._known_hosts}\n"
        text = "\n".join([*blocks, addresses, _USERS_OWN]) + "\0" + "".join(known)
        if text != self._last:
            self._last = text
            self._put(self._known_hosts, "".join(known))
            self._put(self.file, text.partition("\0")[0])

    def _put(self, file: Path, text: str) -> None:
        new = file.with_name(f".{file.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(file)


def _pattern(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"


def _search() -> list[str]:
    return os.environ.get("PATH", os.defpath).split(os.pathsep)
