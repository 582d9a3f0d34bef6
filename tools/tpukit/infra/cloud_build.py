"""The environment made by Cloud Build, through the two build files of the repository and their substitutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpukit import catalogue
from tpukit.errors import Conflict, Invalid, NotFound, Problem
from tpukit.infra import bootstrap, expectations, gcloud, remote
from tpukit.infra.programs import Command
from tpukit.infra.spec import ClusterSpec
from tpukit.infra.terraform_events import Planned
from tpukit.infra.versions import JOBSET, KUEUE
from tpukit.infra.ways import Ask, Say

FILES = {"apply": "cloudbuild.provision.yaml", "destroy": "cloudbuild.destroy.yaml"}

SUBSTITUTIONS = {
    "region": "_REGION",
    "zone": "_ZONE",
    "artifact_repository_bucket_name": "_ARTIFACT_REPOSITORY_BUCKET_NAME",
    "network_name": "_NETWORK_NAME",
    "subnet_name": "_SUBNET_NAME",
    "cluster_name": "_CLUSTER_NAME",
    "tpu_namespace": "_NAMESPACE",
    "num_tpu_pools": "_NUM_TPU_POOLS",
    "force_destroy": "_FORCE_DESTROY",
}
APPLY_ONLY = {"num_of_chips": "_NUM_OF_CHIPS", "capacity": "_CAPACITY", "reservation_name": "_RESERVATION_NAME"}
_SET_ELSEWHERE = ("project_id", "tpu_type", "tpu_machine_type", "tpu_topology", "tpu_num_nodes")


class CloudBuild:
    def __init__(self, spec: ClusterSpec, *, source: Path, context: str, evict: bool, say: Say) -> None:
        self._spec, self._source, self._context, self._evict, self._say = spec, source, context, evict, say

    def lines(self, verb: str) -> list[str]:
        if verb == "status":
            return []
        asked = [] if self._evict else remote.lines(self._spec, self._context)
        shown = expectations.lines(self._spec) if verb == "apply" else []
        return [*asked, *shown, str(self.command(verb))]

    def command(self, verb: str) -> Command:
        if verb not in FILES:
            raise Conflict(
                "a build plans and applies in one go, and shows the plan in its log", hint="plan with --via local"
            )
        if verb == "apply":
            self._check_sayable()
        account = f"projects/{self._spec.project_id}/serviceAccounts/{self._account()}"
        # The builds log to Cloud Logging, which the beta command can follow and the other cannot.
        return gcloud.command(
            *("beta", "builds", "submit", str(self._source), f"--config={self._source / FILES[verb]}"),
            *(f"--project={self._spec.project_id}", f"--service-account={account}"),
            f"--substitutions={gcloud.pairs(self.substitutions(verb))}",
        )

    def substitutions(self, verb: str) -> dict[str, str]:
        known = SUBSTITUTIONS | (APPLY_ONLY if verb == "apply" else {})
        said = self._spec.variables()
        values = {known[name]: _text(said[name]) for name in known if name in said}
        versions = {"_JOBSET_API_VERSION": JOBSET, "_KUEUE_API_VERSION": KUEUE} if verb == "apply" else {}
        return {
            "_TF_STATE_BUCKET": self._spec.state_bucket,
            "_TF_STATE_PREFIX": self._spec.state_prefix,
            **values,
            "_TPU_TYPE": self._type().name,
            **versions,
        }

    def plan(self) -> list[Planned]:
        self.command("plan")
        return []

    def apply(self, ask: Ask) -> bool:
        return self._submit("apply", f"Have Cloud Build make or change {self._spec.cluster_name}?", ask)

    def destroy(self, ask: Ask) -> bool:
        return self._submit("destroy", f"Have Cloud Build delete {self._spec.cluster_name} and all it has?", ask)

    def resources(self) -> list[str]:
        raise Conflict("Cloud Build keeps no list of resources", hint="--via local reads it out of the state bucket")

    def outputs(self) -> dict[str, Any]:
        raise Conflict("Cloud Build shows no outputs", hint="--via local reads them out of the state bucket")

    def _submit(self, verb: str, question: str, ask: Ask) -> bool:
        command = self.command(verb)
        if not (self._source / FILES[verb]).is_file():
            raise NotFound(
                f"there is no {FILES[verb]} in {self._source}",
                hint="a build takes a checkout of tpukit: name its folder with --source",
            )
        if not self._evict:
            remote.check(self._spec, self._context, verb)
        if verb == "apply":
            expectations.show(self._spec, None, self._say)
        if not ask(question):
            return False
        gcloud.follow(command, f"{verb} by Cloud Build", self._say)
        return True

    def _account(self) -> str:
        return gcloud.email(bootstrap.BUILD_ACCOUNT, self._spec.project_id)

    def _type(self) -> catalogue.Slice:
        return next(iter(self._spec.shapes.values()), None) or self._spec.common_shape

    def _check_sayable(self) -> None:
        known = {*SUBSTITUTIONS, *APPLY_ONLY, *_SET_ELSEWHERE}
        unsaid = [name for name in self._spec.variables() if name not in known]
        problems = [Problem(name, "the build file has no substitution for it", "use --via local") for name in unsaid]
        shape = self._type()
        if catalogue.find(shape.name) != shape:
            what = f"{shape.name} means another machine type than {shape.machine_type}"
            problems.append(Problem("tpu_machine_type", what, "use --via local"))
        if problems:
            raise Invalid(problems)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
