"""Write `deploy/PROJECT/CLUSTER`, which adapts the base to one cluster's provisioner."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpukit.core import resources
from tpukit.core.errors import Conflict, Denied, Invalid, Problem
from tpukit.provisioner import settings
from tpukit.provisioner.driven_cluster import NAME, NAMESPACE, identity

ROLE = "tpuProvisioner"
PERMISSIONS = ("container.clusters.get", "container.clusters.update", "container.operations.list")
"""Permissions of the custom role.

Creating or deleting a node pool is a change of its cluster. No predefined role has only that, and
roles/container.clusterAdmin may delete clusters:
https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools/create
"""

_KUSTOMIZATION = """\
# kubectl apply --server-side -k {folder}
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../../base
configMapGenerator:
- name: {name}
  namespace: {namespace}
  envs:
  - config.env
generatorOptions:
  disableNameSuffixHash: true
images:
- name: controller
  newName: {image}
  newTag: "{tag}"
patches:
- target:
    kind: ServiceAccount
    name: {name}
  patch: |-
    - op: replace
      path: /metadata/annotations/iam.gke.io~1gcp-service-account
      value: {account}
"""
_CONFIG = """\
# Read again when it changes; an annotation provisioner.tpukit.dev/NAME on a JobSet goes before it.
project={project}
location={location}
cluster={cluster}
# Where to make pools, and how to pay for them; several are tried in this order.
zones={zones}
capacity=on-demand
{node_account}{upgrade}auto-repair=true
# Operations under way at once: GKE refuses more than a few in one cluster.
max-operations=5
"""


@dataclass(frozen=True, slots=True)
class Deployment:
    path: Path
    next: Sequence[str]


def write(
    folder: Path,
    project: str,
    cluster: str,
    *,
    location: str,
    zones: str = "",
    image: str = "",
    service_account: str = "",
    node_service_account: str = "",
    auto_upgrade: bool = False,
) -> Deployment:
    """Write the folder. Raise Conflict if one of its files exists."""
    _check(project, cluster, location, zones)
    continent = location.partition("-")[0]
    image = image or f"{continent}-docker.pkg.dev/{project}/images/tpu-provisioner:1"
    base, _, tag = image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "latest")
    account = service_account or f"{NAME}@{project}.iam.gserviceaccount.com"
    target = folder / project / cluster
    values = {
        "project": project,
        "location": location,
        "cluster": cluster,
        "zones": zones or location,
        "node_account": f"node-service-account={node_service_account}\n" if node_service_account else "",
        "upgrade": "# The cluster has a release channel, which refuses pools without it.\nauto-upgrade=true\n"
        if auto_upgrade
        else "",
    }
    files = {
        "kustomization.yaml": _KUSTOMIZATION.format(
            folder=target, name=NAME, namespace=NAMESPACE, image=base, tag=tag, account=account
        ),
        "config.env": _CONFIG.format(**values),
    }
    if taken := [name for name in files if (target / name).exists()]:
        raise Conflict(f"{target / taken[0]} exists already", hint="edit it, or remove it first")
    try:
        if not (folder / "base").is_dir():
            shutil.copytree(resources.folder("deploy") / "base", folder / "base")
        target.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (target / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Denied(f"{target} cannot be written: {error.strerror}") from error
    return Deployment(target, _next(target, project, image, account, node_service_account))


def _check(project: str, cluster: str, location: str, zones: str) -> None:
    problems = [
        Problem("", f"{value!r} is not a valid name of a {what}", "write small letters, digits and -")
        for what, value in (("project", project), ("cluster", cluster), ("location", location))
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,61}", value)
    ]
    if problems:
        raise Invalid(problems)
    if not zones and not identity({"project": project, "location": location, "cluster": cluster}, {}).zones:
        raise Invalid(f"{location} is a region, and pools are created in zones", hint=f"--zones {location}-b, for one")
    settings.of_config_map({"zones": zones or location})


def _next(target: Path, project: str, image: str, account: str, node_account: str) -> Sequence[str]:
    actor = account.partition("@")[0]
    member = f"serviceAccount:{project}.svc.id.goog[{NAMESPACE}/{NAME}]"
    # Nodes without a named account run as Compute Engine's default account, whose name has the project's number.
    number = f"$(gcloud projects describe {project} --format 'value(projectNumber)')"
    nodes = node_account or f'"{number}-compute@developer.gserviceaccount.com"'
    return [
        "Remaining steps, from the root of tpukit's checkout. A new account takes effect after seconds, a new grant "
        "after a minute or two:",
        f"  {_image(image)}",
        f"  gcloud iam service-accounts create {actor} --project {project}",
        f"  gcloud iam roles create {ROLE} --project {project} --stage GA --permissions {','.join(PERMISSIONS)}",
        f"  gcloud projects add-iam-policy-binding {project} --member serviceAccount:{account} "
        f"--role projects/{project}/roles/{ROLE} --condition None",
        f"  gcloud iam service-accounts add-iam-policy-binding {nodes} --project {project} "
        f"--member serviceAccount:{account} --role roles/iam.serviceAccountUser",
        f"  gcloud iam service-accounts add-iam-policy-binding {account} --project {project} "
        f"--role roles/iam.workloadIdentityUser --member '{member}'",
        f"  kubectl apply --server-side -k {target}",
    ]


def _image(image: str) -> str:
    base, _, tag = image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "latest")
    repository, _, name = base.rpartition("/")
    if "-docker.pkg.dev/" in image:
        return (
            f"tpu image push --file deploy/base/Dockerfile --name {name} --tag {tag} --repository {repository} "
            "--keep-default"
        )
    return f"docker build --file deploy/base/Dockerfile --tag {image} . && docker push {image}"
