"""The library for training programs, in every place: start-up, checkpoints, progress, TensorBoard.

It imports nothing else of tpukit and loads heavy packages only on use, so a training image needs little more than JAX.

    from tpukit import host

    me = host.start()
    mesh = me.mesh()
    checkpoints = host.Checkpoints(me, every=100)
"""

from tpukit.host.checkpoints import Checkpoints
from tpukit.host.runtime import EXIT_TERMINATED, Host, start
from tpukit.host.trace import digest, digests
from tpukit.host.world import World

__all__ = ["EXIT_TERMINATED", "Checkpoints", "Host", "World", "digest", "digests", "start"]
