"""Fleets: TPU VMs over zones that work through one dataset, each on streams of its own."""
