"""Say hello from every host, and prove with one sum that every chip of every slice can reach every other."""

from __future__ import annotations

import sys

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tpukit import host as tpu


def main() -> None:
    host = tpu.start()  # before anything touches a device
    world, chips = host.world, jax.device_count()
    print(
        f"hello from host {world.index} of {world.hosts}, slice {world.slice_index} of {world.slices}: "
        f"{jax.local_device_count()} of {chips} chips ({jax.devices()[0].device_kind})",
        flush=True,
    )

    # The chips hold 1, 2, 3 and so on. Adding them up takes one collective, inside the slices and between them.
    mesh = host.mesh()
    numbers = jax.make_array_from_callback(
        (chips,), NamedSharding(mesh, P(("data", "fsdp"))), lambda index: np.arange(1, chips + 1, dtype=np.int32)[index]
    )
    total = int(jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))(numbers))
    expected = chips * (chips + 1) // 2
    if total != expected:
        sys.exit(f"host {world.index}: the chips add up to {total} and not to {expected}")
    host.report(
        step=1, log=f"host {world.index}: {chips} chips on {world.slices} slices add up to {total}: all is well"
    )
    host.close()


if __name__ == "__main__":
    main()
