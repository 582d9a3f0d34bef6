"""The node agent of a sandbox: registers nodes as GKE does and runs their pods as processes of this machine.

    client = AgentClient(url, token, authority)
    client.add_pool(of_slice("tpu-0", catalogue.find("v4-16"), "us-central2-b", capacity="spot"))
    client.preempt("tpu-0", step=30)

The agent itself is a program, `python -m tpubox.kubelet`, and works with any API server. It imitates the parts of GKE
that a pod can notice: labels, taints and capacity of nodes, the environment from the device plugin and the Job webhook,
and the ways in which hosts disappear.
"""

from tpubox.kubelet.agent_client import AgentClient
from tpubox.kubelet.host_faults import Fault
from tpubox.kubelet.registered_pools import Pool, of_slice

__all__ = ["AgentClient", "Fault", "Pool", "of_slice"]
