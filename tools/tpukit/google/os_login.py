"""OS Login: SSH keys that belong to a user instead of a machine. https://cloud.google.com/compute/docs/oslogin.

In a project with OS Login, hosts ignore keys in metadata, and Google assigns the user names.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from tpukit.core import fence
from tpukit.core.errors import Denied, NotFound
from tpukit.google import clients
from tpukit.google.clients import SECONDS, address, ask_json

COMPUTE = "GOOGLE_COMPUTE_CUSTOM_ENDPOINT", "https://compute.googleapis.com/compute/v1/"
OS_LOGIN = "GOOGLE_OS_LOGIN_CUSTOM_ENDPOINT", "https://oslogin.googleapis.com/v1/"
ACCOUNT = "CLOUDSDK_CORE_ACCOUNT"
_TOKEN_INFO = "https://oauth2.googleapis.com/tokeninfo"  # noqa: S105 (an address)
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email")


def login(project: str, public_key: str) -> str:
    """Register the key, and return the user name on hosts of the project; empty if the project has OS Login off.

    The metadata of a single TPU VM, which may differ from its project's, is not checked.
    """
    session = clients.session(_SCOPES)
    if not _is_on(session, project):
        return ""
    account = _account(session)
    url = f"{address(*OS_LOGIN)}users/{quote(account)}:importSshPublicKey"
    asked = f"register an SSH key of {account} with OS Login"
    seconds = fence.deadline(SECONDS)
    profile = ask_json(
        asked, lambda: session.post(url, params={"projectId": project}, json={"key": public_key}, timeout=seconds)
    )
    accounts = profile.get("loginProfile", {}).get("posixAccounts", [])
    primary = [one for one in accounts if one.get("primary")] or accounts
    if not primary or not primary[0].get("username"):
        raise Denied(
            f"OS Login has no POSIX account for {account}", hint="ask an administrator of the organisation for one"
        )
    return str(primary[0]["username"])


def _is_on(session: Any, project: str) -> bool:
    """Return whether the project has OS Login on.

    False if its metadata may not be read: a host that needs OS Login reports it.
    """
    url = f"{address(*COMPUTE)}projects/{project}"
    try:
        found = ask_json(f"read the metadata of {project}", lambda: session.get(url, timeout=SECONDS))
    except (Denied, NotFound):
        return False
    items = found.get("commonInstanceMetadata", {}).get("items", [])
    said = {one.get("key"): str(one.get("value", "")) for one in items}
    return said.get("enable-oslogin", "").strip().upper() in ("TRUE", "Y", "YES", "1")


def _account(session: Any) -> str:
    """Return the account of the credentials."""
    known = os.environ.get(ACCOUNT) or getattr(session.credentials, "service_account_email", "")
    if known and known != "default":
        return str(known)
    body = {"access_token": session.credentials.token}
    email = ask_json(
        "look up the account of the token", lambda: session.post(_TOKEN_INFO, data=body, timeout=SECONDS)
    ).get("email")
    if not email:
        raise Denied("the account of these credentials is unknown", hint=f"set {ACCOUNT} to your address")
    return str(email)
