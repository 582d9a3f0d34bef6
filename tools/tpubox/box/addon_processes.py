"""Run JobSet and Kueue of one sandbox as processes while their Deployments exist.

python -m tpubox.box.addon_processes FOLDER

A release is applied with kubectl or in any other way. Its Deployment then runs as a process of this machine if its
image is the version that was built, and is Available once that process is ready and its webhooks can be called; any
other image cannot be pulled. Deleting a Deployment stops its process. A running Deployment is scaled to zero, because
the process replaces its pods and needs no node.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from tpubox.box import binaries, components, control_plane, downloads, folder, memory_limits, releases, tunnel
from tpubox.box.binaries import Binaries
from tpubox.box.control_plane import Component
from tpubox.box.folder import Folder
from tpubox.box.webhook_trust import WebhookTrust
from tpukit.core.errors import NotFound, TpukitError
from tpukit.kube import Cluster, Doc

_log = logging.getLogger(__name__)
_PAUSE_SECONDS, _REST_SECONDS = 0.5, 5.0
"""Seconds between two looks; the longer pause applies while both run, because a look is then some twenty requests."""
_COMPONENTS = {"jobset": control_plane.jobset, "kueue": control_plane.kueue}


class Addon:
    """JobSet or Kueue."""

    def __init__(self, name: str, place: Folder, programs: Binaries, cluster: Cluster) -> None:
        self.name, self._place, self._programs, self._cluster = name, place, programs, cluster
        released = releases.documents(name, programs.manifests(name))
        self.manifest = releases.manifest(released)
        self._aggregated = releases.aggregated(released)
        bundle = releases.encoded(place.certificates("webhooks") / "ca.crt")
        self._callers = WebhookTrust(cluster, released, bundle)
        self.addresses: frozenset[str] = frozenset()  # HOST:PORT of its Service
        self._ready: tuple[str, ...] = ()  # command line of the run that became ready

    @property
    def webhooks(self) -> int:
        return int(self._place.ports[f"{self.name}-webhook"])

    def settle(self) -> bool:
        """Reconcile the process; return whether it runs and nothing is left to do."""
        space = releases.namespace(self.name)
        try:
            found = self._cluster.get("Deployment", releases.deployment(self.name), space)
        except NotFound:
            found = None
        if found is None or _image(found) != releases.image(self.name):
            self.addresses, self._ready = frozenset(), ()
            components.stop(self._place, [self.name], grace=5.0)
            return False
        if not self._served():
            return False
        self.addresses = self._service(space)
        trusted = self._trust(space)
        component = self._component(found, space)
        components.start(self._place, [component])
        ready = trusted and components.ready(self._place, component)
        if ready:
            self._ready = component.argv
        # A new template is unavailable until it is ready; one that was ready is not doubted for a late response.
        wanted = 0 if ready else 1
        if (ready or self._ready != component.argv) and found["spec"].get("replicas") != wanted:
            # Only the observed version: another template may have been written since.
            as_seen = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}}
            change = {**as_seen, "spec": {"replicas": wanted}}
            self._cluster.patch("Deployment", found["metadata"]["name"], change, space)
            return False
        return ready

    def _served(self) -> bool:
        for path, plurals in releases.SERVED[self.name].items():
            try:
                listed = self._cluster.call("GET", path)["resources"]
            except NotFound:
                return False
            if not plurals <= {resource["name"] for resource in listed}:
                return False
        return True

    def _service(self, space: str) -> frozenset[str]:
        try:
            spec = self._cluster.get("Service", f"{self.name}-webhook-service", space)["spec"]
        except NotFound:
            return frozenset()
        return frozenset(f"{spec['clusterIP']}:{port['port']}" for port in spec["ports"])

    def _trust(self, space: str) -> bool:
        """Return whether everything that calls webhooks exists and trusts them."""
        for path in self._aggregated:
            try:
                self._cluster.call("DELETE", path)
            except NotFound:
                continue
        if self.name == "kueue":
            self._fill_secret(space)
        return self._callers.settle()

    def _fill_secret(self, space: str) -> None:
        wanted = releases.certificate(self._place.certificates("webhooks"))
        held = self._cluster.get("Secret", "kueue-webhook-server-cert", space)
        if held.get("data") != wanted["data"]:
            self._cluster.patch("Secret", "kueue-webhook-server-cert", wanted, space)

    def _component(self, found: Doc, space: str) -> Component:
        """Return the component of this template, which configures it: a pod reads its configuration only at start."""
        import yaml

        template = json.dumps(found["spec"]["template"], sort_keys=True)
        run = hashlib.sha256(template.encode()).hexdigest()[:12]
        file = self._place.path / "addons" / f"{self.name}-{run}.yaml"
        if not file.exists():
            file.parent.mkdir(exist_ok=True, mode=0o700)
            config = self._cluster.get("ConfigMap", f"{self.name}-manager-config", space)
            folder.write(file, config["data"][releases.CONFIG])
        released: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        return _COMPONENTS[self.name](self._place, self._programs, released, run)


def _image(deployment: Doc) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def _settled(addon: Addon) -> bool:
    try:
        return addon.settle()
    except TpukitError as error:
        _log.warning("%s: %s", addon.name, error)
        return False


def _keep_settling(addons: list[Addon]) -> None:
    while True:
        done = [_settled(addon) for addon in addons]
        time.sleep(_REST_SECONDS if all(done) else _PAUSE_SECONDS)


def _route(addons: list[Addon], target: str) -> int | None:
    """Return the port for a target of the API server: that of a Service, or of a listener on this machine."""
    host, _, port = target.rpartition(":")
    if host == folder.HOST:
        return int(port)
    return next((addon.webhooks for addon in addons if target in addon.addresses), None)


async def _serve(place: Folder, addons: list[Addon]) -> None:
    files = {releases.path(addon.name): addon.manifest for addon in addons}
    _, port = await downloads.start(place.certificates("downloads"), files, place.ports["addons-downloads"])
    names = {f"{downloads.NAME}:443": port}
    keys = tunnel.known_callers(place.certificates("cluster"))
    await asyncio.gather(
        tunnel.serve(place.ports["addons"], names.get),
        tunnel.serve(place.ports["addons-webhook"], partial(_route, addons), keys),
    )


def main(argv: list[str] | None = None) -> int:
    memory_limits.keep()
    words = argparse.ArgumentParser(prog="python -m tpubox.box.addon_processes", description=__doc__)
    words.add_argument("folder", type=Path)
    place = folder.read(words.parse_args(argv).folder)
    programs, cluster = binaries.ensure(), Cluster(place.kubeconfig)
    addons = [Addon(name, place, programs, cluster) for name in releases.NAMES]
    threading.Thread(target=_keep_settling, args=(addons,), daemon=True).start()
    asyncio.run(_serve(place, addons))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
