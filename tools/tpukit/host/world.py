"""The position of this process among the others, read from the environment alone.

Every place gives a training process the environment of a GKE TPU pod, so nothing here queries JAX, a metadata server or
a disk. Outside tpukit all of it may be missing: then the process is the only host of the only slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class World:
    """The place of one host: `index` counts hosts over all slices, slice by slice, as JAX numbers its processes."""

    index: int = 0
    hosts: int = 1
    slice_index: int = 0
    slices: int = 1
    job: str = "job"
    attempt: int = 0
    stage: int = 0
    workdir: str = "workdir"
    heartbeat: int = 30  # seconds without a heartbeat before a host counts as lost; JAX's own 100 wastes a minute
    progress: str = ""  # file for the progress of this process, read by its starter
    trace: str = ""  # folder for a trace of every report, for comparing runs
    progress_lines: int = 0  # seconds between two progress lines in the log; 0: none


def read(environment: Mapping[str, str]) -> World:
    """Return the World that `environment` describes."""

    def number(name: str, default: int, least: int = 0) -> int:
        text = environment.get(name, "")
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"{name}={text!r} is not a whole number of at least {least}; unset it or correct it")
        return int(text)

    names = [name for name in environment.get("TPU_WORKER_HOSTNAMES", "").split(",") if name.strip()]
    hosts_per_slice = len(names) or number("TPUKIT_SLICE_HOSTS", 1, least=1)
    slices = number("MEGASCALE_NUM_SLICES", 1, least=1)
    worker = number("TPU_WORKER_ID", 0)
    slice_index = number("MEGASCALE_SLICE_ID", 0)
    if worker >= hosts_per_slice or slice_index >= slices:
        raise ValueError(
            f"host {worker} of slice {slice_index} does not exist among {slices} × {hosts_per_slice} hosts: "
            "TPU_WORKER_ID, TPU_WORKER_HOSTNAMES, MEGASCALE_SLICE_ID and MEGASCALE_NUM_SLICES disagree"
        )
    return World(
        index=slice_index * hosts_per_slice + worker,
        hosts=slices * hosts_per_slice,
        slice_index=slice_index,
        slices=slices,
        job=environment.get("TPUKIT_JOB") or "job",
        attempt=number("TPUKIT_ATTEMPT", 0),
        stage=number("TPUKIT_STAGE", 0),
        workdir=environment.get("TPUKIT_WORKDIR") or "workdir",
        heartbeat=number("TPUKIT_HEARTBEAT", 30, least=1),
        progress=environment.get("TPUKIT_PROGRESS", ""),
        trace=environment.get("TPUKIT_TRACE", ""),
        progress_lines=number("TPUKIT_PROGRESS_LINES", 0),
    )
