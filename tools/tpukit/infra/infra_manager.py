"""The environment made by Infrastructure Manager, Google's own runner of Terraform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpukit.errors import Invalid, Problem, TpukitError
from tpukit.infra import bootstrap, diagnosis, gcloud, outputs, remote, terraform
from tpukit.infra.programs import Command
from tpukit.infra.spec import ClusterSpec
from tpukit.infra.terraform_events import Diagnostic, Planned
from tpukit.infra.ways import Ask, Say
from tpukit.infra.workspace import Workspace

_VERSION = ".".join(map(str, terraform.MINIMUM))
_REGION_WITHOUT = {"us-central2": "us-central1"}  # it has TPUs and few services


class InfraManager:
    def __init__(self, spec: ClusterSpec, *, modules: Path, context: str, evict: bool, say: Say) -> None:
        self._spec, self._context, self._evict, self._say = spec, context, evict, say
        # It keeps the state itself, and takes no backend.
        self._workspace = Workspace.of(spec, modules, "infra-manager")

    def lines(self, verb: str) -> list[str]:
        if verb == "status":
            return [str(self._describe())]
        copy = ["# tpu copies the Terraform files by itself; by hand that is", *self._workspace.lines()]
        asked = [] if self._evict or verb == "plan" else remote.lines(self._spec, self._context)
        if verb == "plan":
            looked = [str(self._describe()), "# if that is there", str(self._preview(True)), "# if it is not"]
            return [*copy, *looked, str(self._preview(False))]
        if verb == "destroy":
            return [*asked, str(self._delete())]
        return [*copy, *asked, str(self._apply())]

    def plan(self) -> list[Planned]:
        self._workspace.prepare()
        there = gcloud.exists(self._describe(), "looking for the deployment")
        gcloud.follow(self._preview(there), "the preview", self._say)
        return []

    def apply(self, ask: Ask) -> bool:
        command = self._apply()
        question = f"Have Infrastructure Manager make or change {self._spec.cluster_name}?"
        if not self._evict:
            remote.check(self._spec, self._context, "apply")
        if not ask(question):
            return False
        self._workspace.prepare()
        self._follow(command, "apply by Infrastructure Manager")
        return True

    def destroy(self, ask: Ask) -> bool:
        if not self._evict:
            remote.check(self._spec, self._context, "destroy")
        if not ask(f"Have Infrastructure Manager delete {self._spec.cluster_name} and all it has?"):
            return False
        self._follow(self._delete(), "destroy by Infrastructure Manager")
        return True

    def resources(self) -> list[str]:
        listed = gcloud.read_json(
            gcloud.command(
                *("infra-manager", "resources", "list", f"--deployment={self._spec.cluster_name}"),
                *(f"--project={self._spec.project_id}", f"--location={self._location}"),
                *(f"--revision={self._revision()}", "--format=json"),
            ),
            "listing resources",
        )
        return [str(one.get("terraformInfo", {}).get("address", one.get("name"))) for one in listed]

    def outputs(self) -> dict[str, Any]:
        revision = gcloud.read_json(
            gcloud.command(
                *(
                    "infra-manager",
                    "revisions",
                    "describe",
                    self._revision(),
                    f"--deployment={self._spec.cluster_name}",
                ),
                *(f"--project={self._spec.project_id}", f"--location={self._location}", "--format=json(applyResults)"),
            ),
            "reading the outputs",
        )
        return outputs.values((revision.get("applyResults") or {}).get("outputs") or {})

    def _revision(self) -> str:
        deployment = gcloud.read_json(self._describe(), "looking at the deployment")
        return str(deployment.get("latestRevision", "")).rpartition("/")[2]

    def _follow(self, command: Command, doing: str) -> None:
        try:
            gcloud.follow(command, doing, self._say)
        except TpukitError as error:
            found = _diagnostics(self._current())
            if not found:
                raise
            raise diagnosis.error(found, doing) from error

    def _current(self) -> Any:
        """The deployment as it is now; nothing where it cannot be seen, for it only explains another error."""
        try:
            return gcloud.read_json(self._describe(), "looking at the deployment")
        except TpukitError:
            return None

    @property
    def _location(self) -> str:
        return self._spec.services_region or _REGION_WITHOUT.get(self._spec.region, self._spec.region)

    @property
    def _deployment(self) -> str:
        return f"projects/{self._spec.project_id}/locations/{self._location}/deployments/{self._spec.cluster_name}"

    def _apply(self) -> Command:
        version = f"--tf-version-constraint=={_VERSION}"
        return gcloud.command("infra-manager", "deployments", "apply", self._deployment, version, *self._inputs())

    def _preview(self, there: bool) -> Command:
        place = (f"--project={self._spec.project_id}", f"--location={self._location}")
        of = (f"--deployment={self._deployment}",) if there else ()
        return gcloud.command("infra-manager", "previews", "create", *place, *of, *self._inputs())

    def _delete(self) -> Command:
        return gcloud.command("infra-manager", "deployments", "delete", self._deployment, "--delete-policy=delete")

    def _describe(self) -> Command:
        return gcloud.command("infra-manager", "deployments", "describe", self._deployment, "--format=json")

    def _inputs(self) -> tuple[str, ...]:
        said = self._spec.variables()
        problems = [
            Problem(name, "Infrastructure Manager takes single values only", "use --via local")
            for name, value in said.items()
            if isinstance(value, (list, dict))
        ]
        if problems:
            raise Invalid(problems)
        values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in said.items()}
        account = gcloud.email(bootstrap.MANAGER_ACCOUNT, self._spec.project_id)
        return (
            f"--service-account=projects/{self._spec.project_id}/serviceAccounts/{account}",
            f"--local-source={self._workspace.folder}",
            f"--input-values={gcloud.pairs(values)}",
        )


def _diagnostics(deployment: Any) -> list[Diagnostic]:
    """What Terraform said there. https://cloud.google.com/infrastructure-manager/docs/reference/rest"""
    errors = deployment.get("tfErrors", []) if isinstance(deployment, dict) else []
    return [
        Diagnostic(
            "error",
            str(one.get("errorDescription", "failed")),
            f"HTTP {one['httpResponseCode']}" if one.get("httpResponseCode") else "",
            str(one.get("resourceAddress", "")),
        )
        for one in errors
    ]
