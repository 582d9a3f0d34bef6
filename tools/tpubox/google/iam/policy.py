"""IAM policies of any resource. A change carries the etag that it started from, so that no change is lost."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable

from tpubox.google.iam import policy_checks, policy_versions
from tpubox.google.wire.api import Call, public
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import POLICY_CHANGED
from tpubox.google.wire.state import Doc


def get(cloud: Cloud, resource: str) -> Doc:
    policy = public(cloud.state.get("policy", resource) or {"version": 1})
    return {**policy, "etag": _etag(policy)}


def answer(cloud: Cloud, resource: str, call: Call) -> Doc:
    """Return a policy in the requested version."""
    return policy_versions.shown(get(cloud, resource), policy_versions.requested(call))


def effective(cloud: Cloud, resource: str) -> list[Doc]:
    """Return the bindings in force: a grant is in the policy before it takes effect."""
    policy = cloud.state.get("policy", resource) or {}
    due = cloud.clock.now() - cloud.settings.arrival_seconds
    since = policy.get("_since", {})
    return [
        {**one, "members": [member for member in one["members"] if since.get(_grant(one, member), 0.0) <= due]}
        for one in policy.get("bindings", [])
    ]


def put(cloud: Cloud, resource: str, policy: Doc) -> Doc:
    """Replace a policy. With an etag, refuse if the policy has changed since; without one, overwrite it."""
    now = get(cloud, resource)
    if policy.get("etag") and _plain(policy["etag"]) != now["etag"]:
        raise POLICY_CHANGED.aborted(
            "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff."
        )
    policy_versions.check(policy, now)
    bindings = _merged(binding for binding in policy.get("bindings", []) if binding.get("members"))
    for binding in bindings:
        policy_checks.check(cloud, resource, binding)
    if bindings:
        version = policy_versions.WITH_CONDITIONS if policy_versions.has_conditions(bindings) else 1
        before = (cloud.state.get("policy", resource) or {}).get("_since", {})
        grants = [_grant(binding, member) for binding in bindings for member in binding["members"]]
        since = {grant: before.get(grant, cloud.clock.now()) for grant in grants}
        cloud.state.put("policy", resource, {"version": version, "bindings": bindings, "_since": since})
    else:
        cloud.state.delete("policy", resource)
    return get(cloud, resource)


def forget(cloud: Cloud, resource: str) -> None:
    cloud.state.delete("policy", resource)


def rename_member(cloud: Cloud, old: str, new: str) -> None:
    """Rename a member in all policies; its grants now belong to the new name."""
    for resource, policy in cloud.state.all("policy").items():
        if not any(old in binding["members"] for binding in policy["bindings"]):
            continue
        since = policy.get("_since", {})
        renamed = []
        for binding in policy["bindings"]:
            members = [new if member == old else member for member in binding["members"]]
            renamed.append({**binding, "members": members})
            if (moment := since.pop(_grant(binding, old), None)) is not None:
                since[_grant(binding, new)] = moment
        cloud.state.put("policy", resource, {**policy, "bindings": renamed, "_since": since})


def _merged(bindings: Iterable[Doc]) -> list[Doc]:
    """Return one binding per role and condition, with each member once. An empty condition counts as none."""
    found: dict[str, Doc] = {}
    for binding in bindings:
        plain = {key: value for key, value in binding.items() if key != "condition" or value}
        key = json.dumps([plain.get("role", ""), plain.get("condition")], sort_keys=True)
        before = found.get(key, {"members": []})["members"]
        found[key] = {**plain, "members": list(dict.fromkeys([*before, *plain["members"]]))}
    return list(found.values())


def _grant(binding: Doc, member: str) -> str:
    return f"{binding['role']} {member} {(binding.get('condition') or {}).get('expression', '')}"


def _plain(etag: str) -> str:
    """Normalize an etag: gcloud writes bytes in the URL-safe alphabet, even if it read the other."""
    return etag.replace("-", "+").replace("_", "/")


def _etag(policy: Doc) -> str:
    return base64.b64encode(zlib.crc32(json.dumps(policy, sort_keys=True).encode()).to_bytes(4, "big")).decode()
