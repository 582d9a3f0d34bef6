"""IAM policies of anything: who has which role. Changes carry the etag they were made from, so that none is lost."""

from __future__ import annotations

import base64
import json
import re
import zlib

from tpukit.sandbox.google import conditions, roles
from tpukit.sandbox.google.api import public
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.sources import ACCOUNT_NOT_FOUND, GUESS, IDENTITY_POOL, POLICY_CHANGED
from tpukit.sandbox.google.state import Doc

_MEMBER = re.compile(
    r"allUsers|allAuthenticatedUsers|(user|group|serviceAccount|domain|deleted|projectOwner|projectEditor|projectViewer"
    r"|principal|principalSet):.+"
)


def get(cloud: Cloud, resource: str) -> Doc:
    policy = public(cloud.state.get("policy", resource) or {"version": 1})
    return {**policy, "etag": _etag(policy)}


def effective(cloud: Cloud, resource: str) -> list[Doc]:
    """The bindings that have arrived: a grant takes its time, and is in the policy long before it is in force."""
    policy = cloud.state.get("policy", resource) or {}
    due = cloud.clock.now() - cloud.settings.arrival_seconds
    since = policy.get("_since", {})
    return [
        {**one, "members": [member for member in one["members"] if since.get(_grant(one, member), 0.0) <= due]}
        for one in policy.get("bindings", [])
    ]


def put(cloud: Cloud, resource: str, policy: Doc) -> Doc:
    """Replaces a policy. Without an etag it does so whatever happened since; with one, only if nothing did."""
    now = get(cloud, resource)
    if policy.get("etag") and _plain(policy["etag"]) != now["etag"]:
        raise POLICY_CHANGED.aborted(
            "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff."
        )
    bindings = [binding for binding in policy.get("bindings", []) if binding.get("members")]
    for binding in bindings:
        _check(cloud, binding)
    if bindings:
        version = 3 if any("condition" in binding for binding in bindings) else 1
        before = (cloud.state.get("policy", resource) or {}).get("_since", {})
        grants = [_grant(binding, member) for binding in bindings for member in binding["members"]]
        since = {grant: before.get(grant, cloud.clock.now()) for grant in grants}
        cloud.state.put("policy", resource, {"version": version, "bindings": bindings, "_since": since})
    else:
        cloud.state.delete("policy", resource)
    return get(cloud, resource)


def forget(cloud: Cloud, resource: str) -> None:
    cloud.state.delete("policy", resource)


def _check(cloud: Cloud, binding: Doc) -> None:
    role = binding.get("role", "")
    if not re.fullmatch(r"(roles|projects/[^/]+/roles|organizations/[^/]+/roles)/[A-Za-z0-9_.]+", role):
        raise GUESS.invalid(f"Role {role} is not supported for this resource.")
    if roles.is_custom(role) and not roles.exists(cloud, role):
        raise GUESS.invalid(f"Role {role} does not exist in the resource's hierarchy.")
    for member in binding["members"]:
        if not _MEMBER.fullmatch(member):
            raise GUESS.invalid(
                f"The member {member} is of an unknown type. Please set a valid type prefix for the member."
            )
        kind, _, email = member.partition(":")
        pool = re.fullmatch(r"([a-z0-9-]+)\.svc\.id\.goog\[.+/.+\]", email)
        if pool and pool[1] in cloud.settings.projects and not _has_identities(cloud, pool[1]):
            raise IDENTITY_POOL.invalid(
                f"Identity Pool does not exist ({pool[1]}.svc.id.goog). Please check that you specified a valid "
                "resource name as returned in the `name` attribute in the configuration API."
            )
        owner = re.fullmatch(r"[^@]+@([a-z0-9-]+)\.iam\.gserviceaccount\.com", email)
        if kind != "serviceAccount" or not owner or owner[1] not in cloud.settings.projects:
            continue
        account = cloud.state.get("account", f"projects/{owner[1]}/serviceAccounts/{email}")
        # A new account is there for who asks for it, and unknown to policies for a while.
        if not account or account.get("_made", 0.0) + cloud.settings.arrival_seconds > cloud.clock.now():
            raise ACCOUNT_NOT_FOUND.invalid(f"Service account {email} does not exist.")
    expression = (binding.get("condition") or {}).get("expression", "")
    if expression and not conditions.parses(expression):
        raise GUESS.invalid(f"Condition expression {expression!r} cannot be compiled.")


def _has_identities(cloud: Cloud, project: str) -> bool:
    """They come into being with the first cluster that has Workload Identity, and stay. A project that had all its APIs
    on from the beginning had one long ago."""
    return "*" in cloud.settings.enabled or cloud.state.get("identity_pool", project) is not None


def _grant(binding: Doc, member: str) -> str:
    return f"{binding['role']} {member} {(binding.get('condition') or {}).get('expression', '')}"


def _plain(etag: str) -> str:
    """gcloud writes bytes in the alphabet of URLs, whichever it read them in."""
    return etag.replace("-", "+").replace("_", "/")


def _etag(policy: Doc) -> str:
    return base64.b64encode(zlib.crc32(json.dumps(policy, sort_keys=True).encode()).to_bytes(4, "big")).decode()
