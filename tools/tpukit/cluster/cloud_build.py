"""The environment managed by Cloud Build, through the repository's two build files and their substitutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpukit.cluster import bootstrap, expectations, gcloud, remote, substitutions
from tpukit.cluster.programs import Command
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform_events import Planned
from tpukit.cluster.versions import JOBSET, KUEUE
from tpukit.cluster.ways import Ask, Say
from tpukit.core.errors import Conflict, Invalid, NotFound

FILES = {"apply": "cloudbuild.provision.yaml", "destroy": "cloudbuild.destroy.yaml"}


class CloudBuild:
    def __init__(self, spec: ClusterSpec, *, source: Path, context: str, evict: bool, say: Say) -> None:
        self._spec, self._source, self._context, self._evict, self._say = spec, source, context, evict, say
        self._replace = evict  # whether the build may delete or replace pools: only those shown to the user

    def lines(self, verb: str) -> list[str]:
        if verb == "status":
            return []
        asked = [] if self._evict else remote.lines(self._spec, self._context)
        shown = expectations.lines(self._spec) if verb == "apply" else []
        return [*asked, *shown, str(self.command(verb))]

    def command(self, verb: str) -> Command:
        if verb not in FILES:
            raise Conflict(
                "a build cannot plan only: it plans, applies, and shows the plan in its log",
                hint="run the plan with --via local",
            )
        account = f"projects/{self._spec.project_id}/serviceAccounts/{self._account()}"
        # The builds log to Cloud Logging, which only the beta command can follow.
        return gcloud.command(
            *("beta", "builds", "submit", str(self._source), f"--config={self._source / FILES[verb]}"),
            *(f"--project={self._spec.project_id}", f"--service-account={account}"),
            f"--gcs-source-staging-dir=gs://{bootstrap.source_bucket(self._spec.project_id)}/cluster",
            f"--substitutions={gcloud.pairs(self.substitutions(verb))}",
        )

    def substitutions(self, verb: str) -> dict[str, str]:
        variables = self._spec.variables()
        # An empty type leaves the shape to the other fields; if omitted, the build would use its default.
        said = substitutions.said({"tpu_type": "", **variables})
        if len(said.get(substitutions.REST, "").encode()) > substitutions.LONGEST:
            what = (
                f"Cloud Build takes {substitutions.LONGEST} bytes of variables that have no substitution of their own"
            )
            raise Invalid(what, hint="use --via local")
        replace = "true" if self._replace else "false"
        only_apply = {"_ALLOW_REPLACE": replace, "_JOBSET_API_VERSION": JOBSET, "_KUEUE_API_VERSION": KUEUE}
        return {
            "_TF_STATE_BUCKET": self._spec.state_bucket,
            "_TF_STATE_PREFIX": self._spec.state_prefix,
            **said,
            "_EVICT": "true" if self._evict else "false",
            **(only_apply if verb == "apply" else {}),
        }

    def plan(self) -> list[Planned]:
        self.command("plan")
        return []

    def apply(self, ask: Ask) -> bool:
        return self._submit("apply", f"Have Cloud Build create or change {self._spec.cluster_name}?", ask)

    def destroy(self, ask: Ask) -> bool:
        return self._submit("destroy", f"Have Cloud Build delete {self._spec.cluster_name} and everything in it?", ask)

    def resources(self) -> list[str]:
        raise Conflict(
            "Cloud Build keeps no list of resources", hint="--via local reads the list from the state bucket"
        )

    def outputs(self) -> dict[str, Any]:
        raise Conflict("Cloud Build shows no outputs", hint="--via local reads the outputs from the state bucket")

    def _submit(self, verb: str, question: str, ask: Ask) -> bool:
        self.command(verb)
        if not (self._source / FILES[verb]).is_file():
            raise NotFound(
                f"there is no {FILES[verb]} in {self._source}",
                hint="a build needs a checkout of tpukit: pass its folder with --source",
            )
        if not self._evict:
            going = remote.check(self._spec, self._context, verb)
            if going and verb == "apply":
                self._replace = True
                question += f" It deletes or replaces {', '.join(sorted(going.pools))}."
        if verb == "apply":
            expectations.show(self._spec, None, self._say)
        if not ask(question):
            return False
        gcloud.follow(self.command(verb), f"{verb} by Cloud Build", self._say)
        return True

    def _account(self) -> str:
        return gcloud.email(bootstrap.BUILD_ACCOUNT, self._spec.project_id)
