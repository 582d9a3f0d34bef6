"""Checks that accounts have the roles that they need, and no others.

The record of calls shows the permissions that an account used; the policies left by the real `tpu cluster`, Terraform
and `tpu queue deploy` show its roles. Each role must be needed for some of the permissions, or be explained in this
table.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tpubox.google.iam import roles

Doc = dict[str, Any]
_NODES = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa"
_BUILDS = "https://cloud.google.com/build/docs/securing-builds/configure-user-specified-service-accounts"


@dataclass(frozen=True, slots=True)
class Component:
    account: str
    idle: Mapping[str, str]
    """Roles that are not exercised in the sandbox, and who needs them on Google Cloud."""


BUILDS = Component(
    "tpu-cluster-build",
    {
        "roles/cloudbuild.builds.viewer": "a build asks how long it may run; in the sandbox nothing is a build",
        "roles/logging.logWriter": f"Cloud Build writes what a build prints as its account: {_BUILDS}",
        "roles/serviceusage.serviceUsageConsumer": "whoever asks on behalf of a project uses its quota; not emulated",
    },
)
IMAGES = Component("tpu-image-build", {})
WORKLOADS = Component(
    "cloud-tpu-sa",
    {
        "roles/logging.logWriter": "programs of users that write to Cloud Logging themselves; what they print is "
        "written by the node",
        "roles/monitoring.metricWriter": "programs of users that send metrics; Monitoring of the sandbox takes none",
        "roles/datastore.user": "managers of jobs in the cluster; the Firestore of tests is Google's emulator, which "
        "asks nobody who they are",
    },
)
TEAM = Component("team-vision", {})
PROVISIONER = Component("tpu-provisioner", {})
_STORE = {
    "roles/datastore.user": "the queue's documents; the Firestore of tests is Google's emulator, which asks "
    "nobody who they are"
}
QUEUE_CREATOR = Component("tpukit-queue", _STORE)
QUEUE_WORKER = Component("tpukit-queue-worker", _STORE)
QUEUE_REST = Component("tpukit-queue-rest", _STORE)
NODES = Component(
    "gke-sa",
    {
        "roles/container.defaultNodeServiceAccount": f"GKE's agents on a node send logs and metrics: {_NODES}",
        "roles/serviceusage.serviceUsageConsumer": "image streaming: "
        "https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements",
    },
)


class RoleSets:
    """The roles of one project, read through the emulator's own API."""

    def __init__(self, google: str, token: str, project: str) -> None:
        self._google, self._token, self._project = google, token, project

    def used(self, account: str) -> set[str]:
        asked = [one for one in self._record() if one["principal"] == self._member(account)]
        return {permission for one in asked if one["status"] < 300 for permission in one["permissions"]}

    def granted(self, account: str) -> set[str]:
        """Return the account's roles on any resource."""
        member, every = self._member(account), self.all("policy").values()
        return {one["role"] for policy in every for one in policy["bindings"] if member in one["members"]}

    def check(self, component: Component) -> None:
        """Assert that the account's roles cover the permissions it used, and that none is redundant.

        Roles in the table may be redundant.
        """
        used, granted = self.used(component.account), self.granted(component.account)
        own = {name: one["includedPermissions"] for name, one in self.all("role").items()}

        def lacking(held: set[str]) -> set[str]:
            return {
                one for one in used if not any(roles.allows(role, one) or one in own.get(role, ()) for role in held)
            }

        assert not lacking(granted), f"{component.account} has {granted}, and used {sorted(used)}"
        idle = {role for role in granted if not lacking(granted - {role})}
        assert idle == granted & set(component.idle), f"{component.account} has {idle} for nothing of {sorted(used)}"

    def check_each_is_needed(self, account: str, works: Callable[[], bool]) -> set[str]:
        """Return the permissions that the account used, after asserting that each one is needed.

        Every role of the account is replaced by one with those permissions. With all of them `works` succeeds; without
        any one of them it is refused for that one, and fails.
        """
        used = sorted(self.used(account))
        with self._instead_of_its_roles(account, used) as allow:
            assert works(), f"{account} with {used} alone"
            for permission in used:
                allow([one for one in used if one != permission])
                before = len(self._refused(account, permission))
                assert not works(), f"{account} without {permission}"
                assert len(self._refused(account, permission)) > before, f"{account} failed, and not for {permission}"
        return set(used)

    @contextmanager
    def _instead_of_its_roles(self, account: str, used: list[str]) -> Iterator[Callable[[list[str]], None]]:
        short = f"used_by_{account.replace('-', '_')}"
        role, member = f"projects/{self._project}/roles/{short}", self._member(account)
        asked = {"roleId": short, "role": {"title": short, "includedPermissions": used, "stage": "GA"}}
        self._ask("POST", f"iam/v1/projects/{self._project}/roles", asked)
        before = {name: one["bindings"] for name, one in self.all("policy").items() if member in str(one["bindings"])}

        def replaced(binding: Doc) -> list[Doc]:
            others = [one for one in binding["members"] if one != member]
            own = [{**binding, "role": role, "members": [member]}] if len(others) < len(binding["members"]) else []
            return [{**binding, "members": others}, *own]

        try:
            for name, bindings in before.items():
                self._patch("policy", name, {"bindings": [new for one in bindings for new in replaced(one)]})
            yield lambda held: self._patch("role", role, {"includedPermissions": held})
        finally:
            for name, bindings in before.items():
                self._patch("policy", name, {"bindings": bindings})
            self._ask("DELETE", f"iam/v1/{role}")

    def _member(self, account: str) -> str:
        return f"serviceAccount:{account}@{self._project}.iam.gserviceaccount.com"

    def _refused(self, account: str, permission: str) -> list[Doc]:
        asked = [one for one in self._record() if one["principal"] == self._member(account) and one["status"] == 403]
        return [one for one in asked if permission in one["permissions"]]

    def _record(self) -> list[Doc]:
        return list(self._ask("GET", "emulator/requests"))

    def all(self, kind: str) -> dict[str, Doc]:
        return dict(self._ask("GET", f"emulator/resources?kind={kind}"))

    def _patch(self, kind: str, name: str, patch: Doc) -> None:
        """Patch a resource with immediate effect: propagation delays are covered by other tests."""
        self._ask("POST", "emulator/resources", {"kind": kind, "name": name, "patch": patch})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._google}/{path}", content, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")
