"""Fleets: TPU VMs across zones that process one dataset, each on its own streams."""
