"""Trust in the certificates of an add-on's webhooks, written to every object that calls them."""

from __future__ import annotations

from collections.abc import Iterable

from tpubox.box import releases
from tpukit.core.errors import Conflict, NotFound
from tpukit.kube import Cluster, Doc


class WebhookTrust:
    """The objects that call webhooks of an add-on.

    They are checked continuously, and Kueue's definitions are large: trusted ones are read again only after a change.
    """

    def __init__(self, cluster: Cluster, released: Iterable[Doc], bundle: str) -> None:
        self._cluster, self._bundle = cluster, bundle
        self._calling = releases.with_webhooks(released)
        self._trusted: dict[tuple[str, str], str] = {}  # by kind and name, the trusted version

    def settle(self) -> bool:
        """Update what is due; return whether all callers exist and trust the certificate."""
        return all(self._settle(kind, names) for kind, names in self._calling.items())

    def _settle(self, kind: str, names: Iterable[str]) -> bool:
        there = [one["metadata"] for one in self._cluster.list_metadata(kind)]
        versions = {one["name"]: one["resourceVersion"] for one in there}
        for name in names:
            if name in versions and versions[name] == self._trusted.get((kind, name)):
                continue
            try:
                document = {**self._cluster.get(kind, name), "kind": kind}
                if change := releases.trusted(document, self._bundle):
                    document = self._cluster.patch(kind, name, change)
            except (NotFound, Conflict):
                return False
            self._trusted[kind, name] = document["metadata"]["resourceVersion"]
        return True
