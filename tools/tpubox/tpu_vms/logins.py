"""Keys that may log in to a host: metadata keys of the node and the project, or those of OS Login. Pure.

https://cloud.google.com/compute/docs/connect/add-ssh-keys and https://cloud.google.com/compute/docs/oslogin
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

Attributes = Mapping[str, str]
ROOT = "root"
"""User that cannot log in: images of Compute Engine have PermitRootLogin no, which is a guess for TPU images.

https://cloud.google.com/compute/docs/connect/root-ssh
"""


def logins(
    node: Attributes, project: Attributes, profiles: Iterable[Mapping[str, Any]], now: float
) -> dict[str, list[str]]:
    """Return the public keys by user name. `profiles` are login profiles of the permitted users."""
    if _true(node.get("enable-oslogin", project.get("enable-oslogin", ""))):
        # OS Login makes the host ignore keys in metadata, although gcloud keeps writing them.
        return {
            account["username"]: [key["key"] for key in profile.get("sshPublicKeys", {}).values() if _lasts(key, now)]
            for profile in profiles
            for account in profile["posixAccounts"]
        }
    lines = node.get("ssh-keys", "").splitlines()
    if not _true(node.get("block-project-ssh-keys", "")):
        lines += project.get("ssh-keys", "").splitlines()
    by_user: dict[str, list[str]] = {}
    for line in lines:
        user, colon, key = line.strip().partition(":")
        if colon and user not in ("", ROOT) and len(key.split()) >= 2 and not _expired(key, now):
            by_user.setdefault(user, []).append(" ".join(key.split()[:2]))
    return by_user


def _true(text: str) -> bool:
    return text.strip().upper() in ("TRUE", "Y", "YES", "1")


def _lasts(key: Mapping[str, Any], now: float) -> bool:
    return int(key.get("expirationTimeUsec") or now * 1e6 + 1) > now * 1e6


def _expired(key: str, now: float) -> bool:
    """Parse the expiry of a key such as `ssh-rsa AAAA google-ssh {JSON}` and return whether it has passed.

    JSON is {"userName":"a@example.com","expireOn":"2026-01-31T12:00:00+0000"}.
    """
    _, marked, text = key.partition(" google-ssh ")
    if not marked:
        return False
    try:
        return datetime.strptime(json.loads(text)["expireOn"], "%Y-%m-%dT%H:%M:%S%z").timestamp() <= now
    except (ValueError, KeyError, TypeError):
        return True  # the guest agent drops keys that it cannot parse
