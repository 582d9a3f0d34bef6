"""The parent of all hosts: it has everything loaded, and forks one host for each message with a control socket.

A host forked from it shares its memory and is up in milliseconds. It is started when the first host is needed and ends
when its own socket is closed. Run as `python -m tpubox.tpu_vms.zygote` with that socket as standard input.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

import tpukit
from tpubox.tpu_vms import processes
from tpukit.core.errors import Transient


class Zygote:
    """The client side, which requests hosts."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        imports = str(Path(tpukit.__file__).resolve().parents[1])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=theirs.fileno(),
                env={**os.environ, "PYTHONPATH": imports},
                start_new_session=True,
            )
        self._socket = ours

    def fork(self, folder: Path, *, own_view: bool) -> tuple[int, socket.socket]:
        """Fork a host with this folder, and its own file view if possible; return its process id and control socket."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            words = json.dumps([str(folder), own_view]).encode()
            socket.send_fds(self._socket, [words], [theirs.fileno()])
        answer = self._socket.recv(32)
        if not answer:
            raise Transient("hosts of TPU VMs cannot be started", hint="the emulator's log says why")
        return int(answer), ours

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def main() -> None:
    from tpubox.tpu_vms import vm_host

    processes.adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # exit codes of hosts are not needed
    orders = socket.socket(fileno=0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, 4096, 1)
        if not descriptors:
            return
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            orders.close()
            code = 1
            try:
                folder, own_view = json.loads(message)
                vm_host.main(Path(folder), socket.socket(fileno=descriptors[0]), own_view=own_view)
                code = 0
            except BaseException:  # the forked process must end here  # noqa: BLE001
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(descriptors[0])
        orders.send(str(child).encode())


if __name__ == "__main__":
    main()
