"""Install JobSet, Kueue and the queues at their pinned versions, and wait until they are ready."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tpukit.cluster import diagnosis, gcloud, programs, queues, versions
from tpukit.cluster.programs import Command
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.versions import JOBSET, KUEUE
from tpukit.core import paths
from tpukit.core.clock import Clock
from tpukit.core.errors import NotFound, Transient
from tpukit.jobs.render import kueue_deployment
from tpukit.jobs.render.node_labels import CPU_POOL
from tpukit.teams import lock, settling

RELEASES = {"jobset": JOBSET, "kueue": KUEUE}
MARK = "tpukit.dev/installed"
"""Annotation on a controller: the release that was fully installed, and the hash of our configuration if it has one."""
CONFIGURED = "kueue"
_TITLES = {title.lower(): title for title in versions.TESTED}
WAIT = "--timeout=10m"
PATIENCE_SECONDS = 300.0
"""Time limit for retries: webhooks get their certificates after their controller is available."""
_RETRY_SECONDS = 5.0
_TRIES = 5
_BUSY = r"webhook|no endpoints|no matches for kind|context deadline|\(timeout\)"
"""Errors of an API server that received no response, or gave up after half a minute."""
_NOT_INSTALLED_YET = re.compile(_BUSY, re.I)
"""Excludes kubectl's errors about a release that it cannot fetch: waiting does not fix those."""
_NOT_YET = re.compile(rf"{_BUSY}|connection refused|x509", re.I)


def find(context: str, name: str) -> Command:
    """Return the command that reads a controller's mark and image; no output if it is missing."""
    path = "{.metadata.annotations." + MARK.replace(".", r"\.") + "} {.spec.template.spec.containers[0].image}"
    return _kubectl(context, "get", *_controller(name), "--ignore-not-found", f"--output=jsonpath={path}")


def install(context: str, name: str, nodes: int) -> tuple[Command, ...]:
    """Return the commands that install a release and our configuration, with the mark of completion last."""
    url = f"https://github.com/kubernetes-sigs/{name}/releases/download/{RELEASES[name]}/manifests.yaml"
    configured = (_apply(context, f"--filename={kueue_deployment.configuration()}"), adapt(context, nodes))
    return (
        _apply(context, f"--filename={url}"),
        *(configured if name == CONFIGURED else ()),
        _kubectl(context, "annotate", "--overwrite", *_controller(name), f"{MARK}={mark(name)}"),
    )


def adapt(context: str, nodes: int) -> Command:
    """Return the command that gives Kueue its memory, and restarts it if its memory or its configuration changed."""
    return _kubectl(context, "patch", *_controller(CONFIGURED), f"--patch={json.dumps(kueue_deployment.change(nodes))}")


def mark(name: str) -> str:
    return f"{RELEASES[name]}+{kueue_deployment.digest()}" if name == CONFIGURED else RELEASES[name]


def ready(context: str, name: str) -> Command:
    return _kubectl(context, "wait", *_controller(name), "--for=condition=Available", WAIT)


def _controller(name: str) -> tuple[str, str]:
    return f"--namespace={name}-system", f"deployment/{name}-controller-manager"


def all_nodes(context: str) -> Command:
    return _kubectl(context, "get", "nodes", "--output=name")


def cpu_nodes(context: str) -> Command:
    return _kubectl(context, "get", "nodes", f"--selector={'='.join(CPU_POOL)}", "--output=json")


def quota_changes(context: str) -> Command:
    """Return the command that reads a version of the quotas; no output before their first change."""
    version = "--output=jsonpath={.metadata.resourceVersion}"
    return _kubectl(
        context, "get", f"--namespace={lock.NAMESPACE}", f"lease/{lock.NAME}", "--ignore-not-found", version
    )


def cluster_queues(context: str) -> Command:
    return _kubectl(context, "get", "clusterqueues.kueue.x-k8s.io", "--output=json")


def apply_queues(context: str, folder: Path) -> tuple[Command, Command]:
    """Return the commands that apply everything except the quotas, and then those, write by write."""
    return _apply(context, f"--kustomize={folder}"), _apply(context, f"--filename={folder / queues.QUOTAS}")


def folder(spec: ClusterSpec) -> Path:
    return paths.data() / "clusters" / spec.project_id.replace(":", "_") / spec.cluster_name / "queues"


def lines(spec: ClusterSpec, context: str) -> list[str]:
    lines = [str(all_nodes(context)), "# Kueue's memory grows with their number"]
    for name, version in RELEASES.items():
        lines += [str(find(context, name)), f"# unless that finds {version}", *map(str, install(context, name, 0))]
    lines += [*(str(ready(context, name)) for name in RELEASES), str(cpu_nodes(context))]
    lines += [str(quota_changes(context)), str(cluster_queues(context)), f"# tpu writes the queues to {folder(spec)}"]
    lines += map(str, apply_queues(context, folder(spec)))
    return [*lines, str(quota_changes(context))]


def run(spec: ClusterSpec, context: str, clock: Clock, say: Callable[[str], None]) -> None:
    """Install add-ons and queues. Safe to repeat."""
    programs.need("kubectl", "install it with `gcloud components install kubectl gke-gcloud-auth-plugin`")
    count = len(_do(all_nodes(context)).split())
    for name, version in RELEASES.items():
        for command in _wanted(name, _do(find(context, name)), context, count, say):
            _patiently(command, clock, f"installing {name} {version}", _NOT_INSTALLED_YET)
    for name in RELEASES:
        say(f"waiting for {name}")
        _do(ready(context, name))
    nodes = json.loads(_do(cpu_nodes(context)))
    if not nodes["items"]:
        raise NotFound(f"no node has the label {'='.join(CPU_POOL)}", hint="`tpu cluster apply` creates the CPU pool")
    for _ in range(_TRIES):
        before = _do(quota_changes(context))
        _apply_queues(spec, context, clock, say, nodes)
        if _do(quota_changes(context)) == before:
            return
        say("quotas were changed meanwhile: once more")
    raise Transient("quotas keep changing", hint="`tpu cluster addons` again goes on")


def _wanted(name: str, found: str, context: str, nodes: int, say: Callable[[str], None]) -> tuple[Command, ...]:
    """Return the commands that a controller needs. `found`: the output of `find`."""
    installed, _, image = found.partition(" ")
    there, version = image.partition("@")[0].rpartition(":")[2], RELEASES[name]
    for warning in versions.warnings(_TITLES[name], there):
        say(warning)
    adapted = (adapt(context, nodes),) if name == CONFIGURED else ()
    if installed == mark(name) and there == version:
        say(f"{name} {version} is there")
        return adapted
    if versions.newer(there, version):
        say(f"{name} {there} is newer than {version}, which this tpukit was tested with. It stays as it is")
        return ()
    say(f"installing {name} {version}")
    return install(context, name, nodes)


def _apply_queues(
    spec: ClusterSpec, context: str, clock: Clock, say: Callable[[str], None], nodes: dict[str, Any]
) -> None:
    target = folder(spec)
    target.mkdir(parents=True, exist_ok=True)
    made = queues.files(
        spec.kinds,
        namespace=spec.tpu_namespace,
        account=spec.tpu_sa_name,
        email=gcloud.email(spec.tpu_sa_name, spec.project_id),
        cpu_nodes=nodes,
        cluster_queues=json.loads(_do(cluster_queues(context))),
        queued=spec.flex_start_queued,
    )
    for name, text in made.items():
        (target / name).write_text(text)
    say(f"queues for {spec.tpu_namespace}")
    for command in apply_queues(context, target):
        _patiently(command, clock, "applying the queues", _NOT_YET)
    for short in settling.shortfalls(list(yaml.safe_load_all(made[queues.QUOTAS]))):
        say(short)


def _patiently(command: Command, clock: Clock, doing: str, passing: re.Pattern[str]) -> None:
    """Retry a command while it fails with an error that matches `passing`."""
    until = clock.now() + PATIENCE_SECONDS
    while (done := programs.run(command)).code:
        if not passing.search(done.errors):
            raise diagnosis.failure("kubectl", done.errors, doing)
        if clock.now() > until:
            said = done.errors.strip()
            raise Transient(f"{doing}: the cluster does not take it: {said}", hint="`tpu cluster addons` again goes on")
        clock.sleep(_RETRY_SECONDS)


def _do(command: Command) -> str:
    done = programs.run(command)
    if done.code:
        raise diagnosis.failure("kubectl", done.errors, f"kubectl {command.argv[2]}")
    return done.output


def _apply(context: str, what: str) -> Command:
    # Server-side, because Kueue's definitions exceed the size of the annotation that a client-side apply writes.
    return _kubectl(context, "apply", "--server-side", "--force-conflicts", what)


def _kubectl(context: str, *argv: str) -> Command:
    return Command(("kubectl", f"--context={context}", *argv))
