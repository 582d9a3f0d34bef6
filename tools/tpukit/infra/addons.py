"""JobSet, Kueue and the queues: put into a cluster at their pinned versions, and waited for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tpukit import paths
from tpukit.clock import Clock
from tpukit.errors import NotFound, Transient
from tpukit.infra import diagnosis, gcloud, programs, queues
from tpukit.infra.programs import Command
from tpukit.infra.spec import ClusterSpec
from tpukit.infra.versions import JOBSET, KUEUE
from tpukit.render.pools import CPU_POOL

WAIT = "--timeout=10m"
PATIENCE_SECONDS = 300.0
"""A controller is available a little before its webhooks have their certificates."""
_RETRY_SECONDS = 5.0
_NOT_YET = re.compile(r"webhook|no endpoints|connection refused|no matches for kind|x509|context deadline", re.I)


def install(context: str) -> list[Command]:
    """Both controllers, then the wait for both."""
    made = [_apply(context, f"--filename={url}") for url in manifests()]
    waits = [
        _kubectl(
            context, "wait", f"--namespace={name}-system", "--for=condition=Available", WAIT, "deployment", "--all"
        )
        for name in ("jobset", "kueue")
    ]
    return [*made, *waits]


def manifests() -> tuple[str, str]:
    release = "https://github.com/kubernetes-sigs/{}/releases/download/{}/manifests.yaml"
    return release.format("jobset", JOBSET), release.format("kueue", KUEUE)


def cpu_nodes(context: str) -> Command:
    return _kubectl(context, "get", "nodes", f"--selector={'='.join(CPU_POOL)}", "--output=json")


def apply_queues(context: str, folder: Path) -> Command:
    return _apply(context, f"--kustomize={folder}")


def folder(spec: ClusterSpec) -> Path:
    return paths.data() / "clusters" / spec.project_id.replace(":", "_") / spec.cluster_name / "queues"


def lines(spec: ClusterSpec, context: str) -> list[str]:
    commands = [*install(context), cpu_nodes(context)]
    queue = apply_queues(context, folder(spec))
    return [*map(str, commands), f"# tpu writes the queues to {queue.argv[-1].partition('=')[2]}", str(queue)]


def run(spec: ClusterSpec, context: str, clock: Clock, say: Callable[[str], None]) -> None:
    """Twice is as good as once."""
    programs.need("kubectl", "install it with `gcloud components install kubectl gke-gcloud-auth-plugin`")
    for command in install(context):
        say(f"{command.argv[2]} {command.argv[-1]}")
        _do(command)
    nodes = json.loads(_do(cpu_nodes(context)))
    if not nodes["items"]:
        raise NotFound(f"no node has the label {'='.join(CPU_POOL)}", hint="`tpu cluster apply` makes the CPU pool")
    target = folder(spec)
    target.mkdir(parents=True, exist_ok=True)
    made = queues.files(
        spec.shapes.values(),
        namespace=spec.tpu_namespace,
        account=spec.tpu_sa_name,
        email=gcloud.email(spec.tpu_sa_name, spec.project_id),
        cpu_nodes=nodes,
    )
    for name, text in made.items():
        (target / name).write_text(text)
    say(f"queues for {spec.tpu_namespace}")
    _patiently(apply_queues(context, target), clock)


def _patiently(command: Command, clock: Clock) -> None:
    until = clock.now() + PATIENCE_SECONDS
    while (done := programs.run(command)).code:
        if not _NOT_YET.search(done.errors):
            raise diagnosis.failure("kubectl", done.errors, "applying the queues")
        if clock.now() > until:
            said = done.errors.strip()
            raise Transient(f"Kueue's webhooks do not answer: {said}", hint="`tpu cluster addons` again goes on")
        clock.sleep(_RETRY_SECONDS)


def _do(command: Command) -> str:
    done = programs.run(command)
    if done.code:
        raise diagnosis.failure("kubectl", done.errors, f"kubectl {command.argv[2]}")
    return done.output


def _apply(context: str, what: str) -> Command:
    # Server-side: Kueue's definitions are larger than what a client may note down beside them.
    return _kubectl(context, "apply", "--server-side", "--force-conflicts", what)


def _kubectl(context: str, *argv: str) -> Command:
    return Command(("kubectl", f"--context={context}", *argv))
