"""The least code that starts a multislice program on this machine: processes, their environment, and a wait.

    python bare.py SLICES HOSTS CHIPS FOLDER COMMAND...

Each process reports its progress in FOLDER/SLICE-HOST. This is the baseline for the local place.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def main(slices: int, hosts: int, chips: int, folder: str, argv: list[str]) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for slice_index in range(slices):
        for host_index in range(hosts):
            env = {
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                "TPU_WORKER_ID": str(host_index),
                "TPU_WORKER_HOSTNAMES": ",".join(["127.0.0.1"] * hosts),
                "TPU_SKIP_MDS_QUERY": "true",
                "MEGASCALE_NUM_SLICES": str(slices),
                "MEGASCALE_SLICE_ID": str(slice_index),
                "MEGASCALE_COORDINATOR_ADDRESS": "127.0.0.1",
                "JAX_PLATFORMS": "cpu",
                "JAX_FORCE_TPU_INIT": "1",
                "JAX_NUM_CPU_DEVICES": str(chips),
                "JAX_COORDINATOR_PORT": str(port),
                "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",
                "TPUKIT_WORKDIR": f"{folder}/work",
                "TPUKIT_PROGRESS": f"{folder}/{slice_index}-{host_index}",
            }
            # One session per host, as on real hosts: on a busy machine the kernel divides cores by session.
            processes.append(
                subprocess.Popen(
                    argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                )
            )
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:]))
