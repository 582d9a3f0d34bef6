"""Remove what `tpu queue deploy` applied to a cluster, and its Google accounts. Safe to repeat.

The store's documents, the results in the bucket and the images stay.
"""

from __future__ import annotations

from collections.abc import Callable

from tpukit.cluster import gcloud, grants
from tpukit.cluster import queue_deployment as deployment
from tpukit.cluster.programs import Command
from tpukit.cluster.queue_deployment import Deployment
from tpukit.core import paths
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError

_IMAGE = f"none@sha256:{'0' * 64}"
"""Placeholder image for documents that are only deleted."""


def lines(asked: Deployment) -> list[str]:
    """Return the command lines of `run`."""
    made = [f"# tpu writes what is deleted to {asked.folder}", str(_delete(asked))]
    made += [str(one) for one in _unbind(asked)]
    made += [f"# tpu withdraws that {one}" for one in deployment.roles(asked)]
    return [*made, *(str(one) for one in _accounts(asked))]


def run(asked: Deployment, clock: Clock, say: Callable[[str], None]) -> None:
    deployment.write(asked, serve=_IMAGE, worker=_IMAGE)
    say(f"deleting the objects in {asked.folder}")
    deployment.do(_delete(asked))
    for order in _unbind(asked):
        gcloud.change_policy(order, "withdrawing access to results", clock)
    file = paths.data() / "queue" / "policy.json"
    gcloud.settled(lambda: grants.apply(asked.store_project, [], file, deployment.roles(asked)), clock)
    for order in _accounts(asked):
        _delete_account(order, say)


def _delete_account(order: Command, say: Callable[[str], None]) -> None:
    email = order.argv[4]
    say(f"account {email}: {'deleted' if gcloud.exists(order, f'deleting {email}') else 'not there'}")


def active(asked: Deployment) -> list[str]:
    """Return the pods that run queued jobs of the team; empty if there are none."""
    get = ("get", "pods", f"--namespace={asked.team}", "--selector=tpukit.dev/queue=worker", "--ignore-not-found")
    running = ("--field-selector=status.phase!=Succeeded,status.phase!=Failed", "--output=name")
    try:
        return deployment.do(deployment.kubectl(asked, *get, *running)).split()
    except TpukitError as error:
        raise type(error)(f"reading which queued jobs run: {error.message}", hint=error.hint) from error


def _delete(asked: Deployment) -> Command:
    return deployment.kubectl(asked, "delete", "--ignore-not-found", f"--kustomize={asked.folder}")


def _unbind(asked: Deployment) -> list[Command]:
    return [
        gcloud.command(
            *("storage", "buckets", "remove-iam-policy-binding", asked.bucket),
            *(f"--member=serviceAccount:{asked.email(one.name)}", f"--role={one.bucket_role}", "--format=none"),
        )
        for one in deployment.google_accounts(asked)
        if one.bucket_role
    ]


def _accounts(asked: Deployment) -> list[Command]:
    of_project = f"--project={asked.project}"
    return [
        gcloud.command("iam", "service-accounts", "delete", asked.email(one.name), of_project)
        for one in deployment.google_accounts(asked)
    ]
