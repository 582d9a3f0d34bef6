"""The environment managed by Infrastructure Manager, Google's own runner of Terraform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from tpukit.cluster import (
    bootstrap,
    busy_pools,
    diagnosis,
    differences,
    expectations,
    gcloud,
    outputs,
    plan_document,
    protection,
    screen,
    terraform,
)
from tpukit.cluster.programs import Command
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform_events import Diagnostic, Planned
from tpukit.cluster.terraform_progress import Progress
from tpukit.cluster.ways import Ask, Say
from tpukit.cluster.workspace import Workspace
from tpukit.core.errors import Invalid, Problem, TpukitError

_VERSION = ".".join(map(str, terraform.MINIMUM))
_REGION_WITHOUT = {"us-central2": "us-central1"}  # it has TPUs, but few services


class InfraManager:
    """A runner that previews, shows the preview's plan, asks and applies."""

    def __init__(
        self, spec: ClusterSpec, *, modules: Path, context: str, evict: bool, say: Say, console: Console
    ) -> None:
        self._spec, self._context, self._evict = spec, context, evict
        self._say, self._console = say, console
        # Infrastructure Manager keeps the state itself, and takes no backend.
        self._workspace = Workspace.of(spec, modules, "infra-manager")

    def lines(self, verb: str) -> list[str]:
        if verb == "status":
            return [str(self._describe())]
        lines: list[str] = []
        if verb != "destroy":
            lines += ["# tpu copies the Terraform files by itself; by hand that is", *self._workspace.lines()]
            lines += [str(self._describe()), "# where that is not there, without --deployment:"]
        lines += map(str, self._preview_commands(destroy=verb == "destroy", there=True))
        if verb == "plan":
            return lines
        if not self._evict:
            lines += ["# if a pool would go", *map(str, busy_pools.questions(self._context))]
        if verb == "destroy":
            return [*lines, *protection.lines(self._spec), str(self._delete())]
        return [*lines, *expectations.lines(self._spec), str(self._apply())]

    def plan(self) -> list[Planned]:
        planned = self._previewed(destroy=False)[0].planned
        self._say(expectations.addresses(self._spec))
        return planned

    def apply(self, ask: Ask) -> bool:
        return self._change("apply", self._apply(), ask)

    def destroy(self, ask: Ask) -> bool:
        return self._change("destroy", self._delete(), ask)

    def _change(self, verb: str, order: Command, ask: Ask) -> bool:
        progress, plan = self._previewed(destroy=verb == "destroy")
        if not progress.planned and not plan_document.outputs_change(plan) and verb == "apply":
            self._console.print("Nothing to change.")
            return False
        if verb == "destroy":
            protection.check(self._spec, plan)
        going = busy_pools.Doomed() if self._evict else busy_pools.doomed(plan)
        busy_pools.check(going, self._context)
        if verb == "apply":
            expectations.show(self._spec, progress.planned, self._say)
        if not ask(screen.question(verb, self._spec.cluster_name, progress)):
            return False
        busy_pools.check(going, self._context)  # a job may have been submitted while the user read the plan
        self._follow(order, f"{verb} by Infrastructure Manager", self._describe())
        return True

    def _previewed(self, *, destroy: bool) -> tuple[Progress, dict[str, Any]]:
        """Create a preview, show its plan as `Local` does, and delete the preview."""
        there = True
        if not destroy:
            self._workspace.prepare()
            there = gcloud.exists(self._describe(), "reading the deployment")
        earlier, create, export, delete = self._preview_commands(destroy=destroy, there=there)
        gcloud.exists(earlier, "deleting an earlier preview")
        self._preview_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._follow(create, "the preview", self._describe_preview())
        try:
            gcloud.read(export, "reading the preview")
            file = self._preview_file.with_suffix(".json")
            plan: dict[str, Any] = json.loads(file.read_text())
        finally:
            for suffix in (".json", ".tfplan"):
                self._preview_file.with_suffix(suffix).unlink(missing_ok=True)
            try:
                gcloud.exists(delete, "deleting the preview")
            except TpukitError as error:
                self._say(f"the preview could not be deleted: {error.message}")
        progress = plan_document.progress(plan)
        screen.show_plan(progress, self._console, differences.by_address(plan))
        return progress, plan

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
        deployment = gcloud.read_json(self._describe(), "reading the deployment")
        return str(deployment.get("latestRevision", "")).rpartition("/")[2]

    def _follow(self, command: Command, doing: str, describe: Command) -> None:
        try:
            gcloud.follow(command, doing, self._say)
        except TpukitError as error:
            found = _diagnostics(_current(describe))
            if not found:
                raise
            raise diagnosis.error(found, doing) from error

    @property
    def _location(self) -> str:
        return self._spec.services_region or _REGION_WITHOUT.get(self._spec.region, self._spec.region)

    @property
    def _deployment(self) -> str:
        return f"projects/{self._spec.project_id}/locations/{self._location}/deployments/{self._spec.cluster_name}"

    def _apply(self) -> Command:
        version = f"--tf-version-constraint=={_VERSION}"
        return gcloud.command("infra-manager", "deployments", "apply", self._deployment, version, *self._inputs())

    @property
    def _preview_name(self) -> str:
        # One for each cluster, so that the next run deletes what an interrupted run left.
        return self._deployment.replace("/deployments/", "/previews/") + "-preview"

    @property
    def _preview_file(self) -> Path:
        return self._workspace.folder.parent / "preview"

    def _preview_commands(self, *, destroy: bool, there: bool) -> tuple[Command, Command, Command, Command]:
        """Return the commands that delete an old preview, create one, export its plan, and delete it."""
        name = self._preview_name
        of = (f"--deployment={self._deployment}",) if there else ()
        what = (self._account_flag, "--preview-mode=DELETE") if destroy else self._inputs()
        delete = gcloud.command("infra-manager", "previews", "delete", name)
        return (
            delete,
            gcloud.command("infra-manager", "previews", "create", name, *of, *what),
            gcloud.command("infra-manager", "previews", "export", name, f"--file={self._preview_file}"),
            delete,
        )

    def _describe_preview(self) -> Command:
        return gcloud.command("infra-manager", "previews", "describe", self._preview_name, "--format=json")

    def _delete(self) -> Command:
        return gcloud.command("infra-manager", "deployments", "delete", self._deployment, "--delete-policy=delete")

    def _describe(self) -> Command:
        return gcloud.command("infra-manager", "deployments", "describe", self._deployment, "--format=json")

    @property
    def _account_flag(self) -> str:
        account = gcloud.email(bootstrap.MANAGER_ACCOUNT, self._spec.project_id)
        return f"--service-account=projects/{self._spec.project_id}/serviceAccounts/{account}"

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
        return (
            self._account_flag,
            f"--local-source={self._workspace.folder}",
            f"--input-values={gcloud.pairs(values)}",
        )


def _current(describe: Command) -> Any:
    """Return the current description, or None if it cannot be read, since it only explains another error."""
    try:
        return gcloud.read_json(describe, "reading Terraform's output")
    except TpukitError:
        return None


def _diagnostics(deployment: Any) -> list[Diagnostic]:
    """Return Terraform's errors.

    https://cloud.google.com/infrastructure-manager/docs/reference/rest
    """
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
