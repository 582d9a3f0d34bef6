"""Node pools of the sandbox's clusters: nodes, autoscaling, queued provisioning, preemption."""
