"""Versions of IAM policies. Only version 3 contains conditions, so that no unaware program loses one.

A reader of an older version sees a condition only by the role's name, and cannot write it back.
https://cloud.google.com/iam/docs/allow-policies#versions
https://cloud.google.com/iam/docs/troubleshooting-withcond
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from tpubox.google.wire.api import Call
from tpubox.google.wire.sources import CONDITION_VERSION, GUESS, POLICY_VERSION
from tpubox.google.wire.state import Doc

WITH_CONDITIONS = 3
_VALID = (0, 1, WITH_CONDITIONS)


def requested(call: Call) -> int:
    """Return the version that a reader requests; each API sends it in a different place."""
    names = ("options.requestedPolicyVersion", "optionsRequestedPolicyVersion")
    sent = next((call.query[name] for name in names if name in call.query), None)
    if sent is None:
        sent = (call.body.get("options") or {}).get("requestedPolicyVersion", 0)
    if str(sent) not in map(str, _VALID):
        raise GUESS.invalid(f"Invalid requested policy version {sent}: valid values are 0, 1 and 3.")
    return int(sent)


def shown(policy: Doc, version: int) -> Doc:
    """Return a policy as readers of that version see it."""
    if version == WITH_CONDITIONS or not has_conditions(policy.get("bindings", ())):
        return policy
    return {**policy, "version": 1, "bindings": [_without_condition(binding) for binding in policy["bindings"]]}


def has_conditions(bindings: Sequence[Doc]) -> bool:
    return any(binding.get("condition") for binding in bindings)


def check(policy: Doc, stored: Doc) -> None:
    """Refuse a change of version below 3 if the old or new policy has conditions.

    Without an etag, the existing conditions are lost, as documented.
    """
    version = policy.get("version") or 0
    if version not in _VALID:
        raise GUESS.invalid(f"Invalid policy version {version}: valid values are 0, 1 and 3.")
    if version == WITH_CONDITIONS:
        return
    if policy.get("etag") and has_conditions(stored.get("bindings", ())):
        raise POLICY_VERSION.invalid(
            f"Specified policy version ({version}) cannot be less than the existing policy version (3). For more "
            "information, please refer to https://cloud.google.com/iam/docs/policies#versions."
        )
    if has_conditions(policy.get("bindings", ())):
        # Only "at least 3" is known of this text.
        raise CONDITION_VERSION.invalid("The policy has conditions: its version must be at least 3.")


def _without_condition(binding: Doc) -> Doc:
    if not binding.get("condition"):
        return binding
    mark = hashlib.sha256(json.dumps(binding["condition"], sort_keys=True).encode()).hexdigest()[:20]
    return {"role": f"{binding['role']}_withcond_{mark}", "members": binding["members"]}
