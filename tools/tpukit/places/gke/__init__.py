"""The gke place: one JobSet per job, in the namespace of its team. Kueue queues it, JobSet restarts it."""

from tpukit.places.gke.place import GkePlace

__all__ = ["GkePlace"]
