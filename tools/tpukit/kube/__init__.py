"""Thin access to a Kubernetes cluster, with plain dicts both ways.

Kubeconfig, sign-in, paths and documents are our own over urllib3, because the package `kubernetes` takes most of a
second to import. Errors are those of tpukit.core.errors.

`tpukit.kube.mirror` keeps a copy of all objects of a kind; `tpukit.kube.documents` names the fields that it needs.
"""

from tpukit.kube.cluster import Cluster
from tpukit.kube.kinds import KINDS, Change, Doc, Docs, Kind, encode
from tpukit.kube.kubeconfig_file import Context, contexts, current_context

__all__ = [
    "KINDS",
    "Change",
    "Cluster",
    "Context",
    "Doc",
    "Docs",
    "Kind",
    "contexts",
    "current_context",
    "encode",
]
