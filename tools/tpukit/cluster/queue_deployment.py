"""Deploy the job queue: Google accounts without keys, images by digest, and the documents of deploy/queue.

Every step can be repeated and leaves what exists unchanged. Images are tagged by a hash of their source, so an
interrupted run, here or elsewhere, never builds one twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tpukit.cluster import bootstrap, diagnosis, gcloud, grants, images, programs
from tpukit.cluster.bootstrap import Step
from tpukit.cluster.grants import Grant
from tpukit.cluster.images import Repository
from tpukit.cluster.programs import Command
from tpukit.core import paths
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Invalid, NotFound, NotYet, Problem

NAMESPACE = "tpukit-queue"
SERVE, WORKER = "tpukit-serve", "tpukit-queue-worker"
DOCKERFILES = {SERVE: "deploy/serve/Dockerfile", WORKER: "deploy/queue/Dockerfile"}
DEPLOYMENTS = ("creator", "rest")
TOKEN = "rest"  # noqa: S105
"""Name of the Secret."""
_SOURCE = ("pyproject.toml", "constraints.txt", "jobset", "kueue", "terraform", "tools", "deploy/base")
_PLACEHOLDER = "tpukit-queue-creator"  # the image in deploy/queue
_WRITES = "400"
_ROLLOUT = "--timeout=600s"
_EMULATOR = "FIRESTORE_EMULATOR_HOST"


@dataclass(frozen=True, slots=True)
class Deployment:
    checkout: Path
    project: str  # of the cluster and its accounts
    context: str  # of the kubeconfig; empty: the current one
    repository: Repository
    team: str
    store: str  # firestore://PROJECT[/DATABASE]
    results: str  # gs://BUCKET/PREFIX
    tpu: str

    @property
    def folder(self) -> Path:
        """The folder that is applied. It is kept, to read and compare."""
        return paths.data() / "queue" / "deploy" / self.project.replace(":", "_") / self.team

    @property
    def store_project(self) -> str:
        return self.store.removeprefix("firestore://").partition("/")[0]

    @property
    def bucket(self) -> str:
        return "/".join(self.results.split("/")[:3])

    def email(self, name: str) -> str:
        return gcloud.email(name, self.project)


@dataclass(frozen=True, slots=True)
class _Account:
    name: str  # at Google
    namespace: str
    service_account: str  # in the cluster
    bucket_role: str = ""


def check(asked: Deployment) -> None:
    wrong = []
    if not asked.store.startswith("firestore://"):
        wrong.append(Problem("--store", f"pods cannot reach {asked.store}", "write firestore://PROJECT"))
    if not asked.results.startswith("gs://"):
        wrong.append(Problem("--results", "disks of pods are not retained", "write gs://BUCKET/PREFIX"))
    if wrong:
        raise Invalid(wrong)
    for dockerfile in DOCKERFILES.values():
        images.check(asked.checkout, dockerfile)


def lines(asked: Deployment) -> list[str]:
    """Return the command lines of `run`."""
    made = [str(_team_queue(asked))]
    made += [line for step in _accounts(asked) for line in step.lines()]
    made += [
        str(grants.read(asked.store_project)),
        *(f"# unless it says so, tpu adds that {one}" for one in roles(asked)),
    ]
    made += [line for step in _bindings(asked) for line in step.lines()]
    for name, dockerfile in DOCKERFILES.items():
        built = images.submit(asked.repository, asked.checkout, images.config_file())
        made.append(_unless(_digest(asked, name, tag(asked.checkout, dockerfile)), built))
    made += [f"# tpu writes what is applied to {asked.folder}", str(_apply(asked))]
    made += [_unless(_token_exists(asked), _create(asked))]
    return [*made, *(str(_rollout(asked, name)) for name in DEPLOYMENTS)]


def run(asked: Deployment, clock: Clock, say: Callable[[str], None]) -> None:
    """Deploy the queue. Safe to repeat and to interrupt."""
    programs.need("kubectl", "install it with `gcloud components install kubectl gke-gcloud-auth-plugin`")
    if not do(_team_queue(asked)).strip():
        raise NotFound(
            f"team {asked.team} has no queue in this cluster", hint=f"run `tpu team add {asked.team}` to create it"
        )
    for step in _accounts(asked):
        bootstrap.have(step, clock, say)
    file = paths.data() / "queue" / "policy.json"
    changed = gcloud.settled(lambda: grants.apply(asked.store_project, roles(asked), file), clock)
    say(f"roles for Firestore: {'done' if changed else 'already there'}")
    for step in _bindings(asked):
        bootstrap.have(step, clock, say)
    built = {name: _image(asked, name, dockerfile, say) for name, dockerfile in DOCKERFILES.items()}
    write(asked, serve=built[SERVE], worker=built[WORKER])
    if emulator := os.environ.get(_EMULATOR):
        say(f"${_EMULATOR} is set: pods use the emulator at {emulator}, not Google's Firestore")
    say(f"applying {asked.folder}")
    do(_apply(asked))
    _have_token(asked, say)
    for name in DEPLOYMENTS:
        say(f"waiting for {name}")
        _wait(asked, name)


def write(asked: Deployment, *, serve: str, worker: str) -> None:
    """Write the folder of deploy/queue with this deployment's values. Images are NAME@DIGEST."""
    shutil.rmtree(asked.folder, ignore_errors=True)
    shutil.copytree(asked.checkout / "deploy" / "queue", asked.folder)
    values = {
        "TPUKIT_STORE": asked.store,
        "TPUKIT_FIRESTORE_WRITES": _WRITES,
        "QUEUE_TEAM": asked.team,
        "QUEUE_IMAGE": worker,
        "QUEUE_TPU": asked.tpu,
        "QUEUE_RESULTS": asked.results,
        "CREATOR_SERVICE_ACCOUNT": asked.email("tpukit-queue"),
        "WORKER_SERVICE_ACCOUNT": asked.email(WORKER),
        "REST_SERVICE_ACCOUNT": asked.email("tpukit-queue-rest"),
    }
    if emulator := os.environ.get(_EMULATOR):
        values[_EMULATOR] = emulator  # pods reach the store at the address that the deploying machine uses
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    (asked.folder / "config.env").write_text(text, encoding="utf-8")
    file = asked.folder / "kustomization.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    name, _, digest = serve.partition("@")
    document["images"] = [{"name": _PLACEHOLDER, "newName": name, "digest": digest}]
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def tag(checkout: Path, dockerfile: str) -> str:
    """Return an image's tag, a hash of its source."""
    digest = hashlib.sha256()
    for path in _files(checkout, (*_SOURCE, dockerfile)):
        name = path.relative_to(checkout).as_posix()
        digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return f"source-{digest.hexdigest()[:16]}"


def _files(checkout: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        path = checkout / name
        if path.is_file():
            yield path
            continue
        for file in sorted(path.rglob("*")):
            parts = file.relative_to(checkout).parts
            if file.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in parts):
                yield file


def google_accounts(asked: Deployment) -> tuple[_Account, ...]:
    return (
        _Account("tpukit-queue", NAMESPACE, "creator"),
        _Account(WORKER, asked.team, "queue-worker", "roles/storage.objectCreator"),  # runs arbitrary code
        _Account("tpukit-queue-rest", NAMESPACE, "rest", "roles/storage.objectViewer"),
    )


def _accounts(asked: Deployment) -> list[Step]:
    of_project = f"--project={asked.project}"
    return [
        Step(
            f"account {one.name}",
            (gcloud.command("iam", "service-accounts", "create", one.name, of_project),),
            gcloud.command(
                *("iam", "service-accounts", "describe", asked.email(one.name), of_project, "--format=value(email)")
            ),
        )
        for one in google_accounts(asked)
    ]


def roles(asked: Deployment) -> list[Grant]:
    members = [f"serviceAccount:{asked.email(one.name)}" for one in google_accounts(asked)]
    return [Grant(member, "roles/datastore.user") for member in members]


def _bindings(asked: Deployment) -> Iterator[Step]:
    """Yield the steps that let pods act as the accounts (without keys) and access the results. Safe to repeat."""
    for one in google_accounts(asked):
        email = asked.email(one.name)
        user = f"serviceAccount:{asked.project}.svc.id.goog[{one.namespace}/{one.service_account}]"
        order = gcloud.command(
            *("iam", "service-accounts", "add-iam-policy-binding", email, f"--project={asked.project}"),
            *(f"--member={user}", "--role=roles/iam.workloadIdentityUser", "--condition=None", "--format=none"),
        )
        yield Step(f"{one.name} for pods of {one.namespace}/{one.service_account}", (order,))
        if one.bucket_role:
            order = gcloud.command(
                *("storage", "buckets", "add-iam-policy-binding", asked.bucket),
                *(f"--member=serviceAccount:{email}", f"--role={one.bucket_role}", "--format=none"),
            )
            yield Step(f"{asked.bucket} for {one.name}", (order,))


def _image(asked: Deployment, name: str, dockerfile: str, say: Callable[[str], None]) -> str:
    label = tag(asked.checkout, dockerfile)
    digest = gcloud.read_if_there(_digest(asked, name, label), "looking for the image").strip()
    if digest:
        say(f"{name}:{label} exists already")
        return f"{asked.repository.url}/{name}@{digest}"
    return images.push(asked.repository, asked.checkout, dockerfile, name, label, say)


def _digest(asked: Deployment, name: str, label: str) -> Command:
    """Return the query of the image's tags. `images describe` would need the API for vulnerabilities too."""
    return gcloud.command(
        *("artifacts", "docker", "tags", "list", f"{asked.repository.url}/{name}"),
        *(f"--filter=tag~/tags/{label}$", "--format=value(version.basename())"),
    )


def _unless(question: Command, order: Command) -> str:
    return f'test -n "$({question})" || {order}'


def _have_token(asked: Deployment, say: Callable[[str], None]) -> None:
    """Create the token once, on no command line."""
    if do(_token_exists(asked)).strip():
        return
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TOKEN, "namespace": NAMESPACE},
        "stringData": {"token": secrets.token_urlsafe(32)},
    }
    try:
        do(_create(asked), json.dumps(secret))
    except Conflict:
        return  # another deployment created it a moment ago
    say(f"the token of the REST front end is in the Secret {NAMESPACE}/{TOKEN}")


def _team_queue(asked: Deployment) -> Command:
    return kubectl(
        asked, "get", "localqueues.kueue.x-k8s.io", asked.team, f"--namespace={asked.team}", "--ignore-not-found",
        "--output=name",
    )  # fmt: skip


def _token_exists(asked: Deployment) -> Command:
    return kubectl(asked, "get", f"secret/{TOKEN}", f"--namespace={NAMESPACE}", "--ignore-not-found", "--output=name")


def _create(asked: Deployment) -> Command:
    return kubectl(asked, "create", "--filename=-")


def _apply(asked: Deployment) -> Command:
    return kubectl(asked, "apply", "--server-side", "--force-conflicts", f"--kustomize={asked.folder}")


def _rollout(asked: Deployment, name: str) -> Command:
    return kubectl(asked, "rollout", "status", f"deployment/{name}", f"--namespace={NAMESPACE}", _ROLLOUT)


def _wait(asked: Deployment, name: str) -> None:
    """Wait until all pods of a deployment are ready. Raise NotYet with the reasons if they are not."""
    if not programs.run(_rollout(asked, name)).code:
        return
    selector = f"--selector=app.kubernetes.io/component={name}"
    pods = json.loads(do(kubectl(asked, "get", "pods", f"--namespace={NAMESPACE}", selector, "--output=json")) or "{}")
    found = [f"{pod['metadata']['name']}: {why}" for pod in pods.get("items", []) if (why := waits_for(pod))]
    why = "\n  ".join(found) or "its pods report no reason"
    raise NotYet(
        f"deployment {name} is not ready after {_ROLLOUT.partition('=')[2]}\n  {why}",
        hint=f"`kubectl --namespace={NAMESPACE} describe pods` shows more; deploy again when the cause is fixed",
    )


def waits_for(pod: Mapping[str, Any]) -> str:
    """Return why a pod is not ready, as reported by Kubernetes; "" if it is ready."""
    status = pod.get("status", {})
    for one in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        state = one.get("state", {})
        ended = one.get("lastState", {}).get("terminated", {})
        if (waiting := state.get("waiting")) and waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
            last = f"exit code {ended['exitCode']}" if "exitCode" in ended else ""
            return ": ".join(filter(None, (waiting.get("reason", ""), waiting.get("message", ""), last)))
    for one in status.get("conditions", []):
        if one.get("type") in ("PodScheduled", "Ready") and one.get("status") != "True":
            return ": ".join(filter(None, (one.get("reason", ""), one.get("message", ""))))
    return ""


def kubectl(asked: Deployment, *argv: str) -> Command:
    return Command(("kubectl", *((f"--context={asked.context}",) if asked.context else ()), *argv))


def do(command: Command, given: str = "") -> str:
    done = programs.run(command, given=given)
    if done.code:
        verb = next(word for word in command.argv[1:] if not word.startswith("--"))
        raise diagnosis.failure("kubectl", done.errors, f"kubectl {verb}")
    return done.output
