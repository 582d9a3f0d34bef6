"""OS Login: SSH keys that belong to a user or a service account instead of a machine.

https://cloud.google.com/compute/docs/oslogin/rest/v1/users
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator

from tpubox.google.iam import permissions, policy, roles
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

OWNER_EMAIL = "owner@example.com"
"""The owner of the emulator, where Google's tools need an account."""
_KIND = "login_profile"
_PERMISSION = "compute.instances.osLogin"

# Enabled together with Compute Engine, so it needs no other API.
api = Api("oslogin", document="oslogin", title="Cloud OS Login API", terraform={"OS_LOGIN": "v1/"})


def who_may_log_in(cloud: Cloud, project: str) -> Iterator[Doc]:
    """Yield the login profiles that the project's policy allows to log in."""
    members = {
        member
        for binding in policy.effective(cloud, f"projects/{project}")
        if roles.allows(binding["role"], _PERMISSION)
        for member in binding["members"]
    }
    for email, profile in cloud.state.all(_KIND).items():
        if email == OWNER_EMAIL or {f"user:{email}", f"serviceAccount:{email}"} & members:
            yield profile


@api.on("GET", "users/{user}/loginProfile")
def _show(cloud: Cloud, call: Call) -> Doc:
    return _profile(cloud, call)


@api.on("POST", "users/{user}:importSshPublicKey", body="SshPublicKey")
def _import(cloud: Cloud, call: Call) -> Doc:
    profile = _profile(cloud, call)
    key = str(call.body.get("key", "")).strip()
    if not re.fullmatch(r"(ssh-|ecdsa-)[a-z0-9-]+ [A-Za-z0-9+/=]+( .*)?", key):
        raise GUESS.invalid("Invalid SSH public key.")
    fingerprint = hashlib.sha256(key.encode()).hexdigest()
    one: Doc = {"key": key, "fingerprint": fingerprint, "name": f"users/{call['user']}/sshPublicKeys/{fingerprint}"}
    if expires := call.body.get("expirationTimeUsec"):
        one["expirationTimeUsec"] = str(expires)
    if not profile["posixAccounts"]:
        profile["posixAccounts"] = [_account(call)]
    profile["sshPublicKeys"] = {**profile.get("sshPublicKeys", {}), fingerprint: one}
    cloud.state.put(_KIND, call["user"], profile)
    return {"loginProfile": profile}


@api.on("DELETE", "users/{user}/sshPublicKeys/{key}")
def _delete(cloud: Cloud, call: Call) -> Doc:
    profile = _profile(cloud, call)
    if profile.get("sshPublicKeys", {}).pop(call["key"], None) is None:
        raise GUESS.not_found(f"SSH public key {call['key']} was not found.")
    cloud.state.put(_KIND, call["user"], profile)
    return {}


def _profile(cloud: Cloud, call: Call) -> Doc:
    who = call.request.principal
    if who != permissions.OWNER and who.partition(":")[2] != call["user"]:
        raise GUESS.refused(403, f"The caller does not have permission on the login profile of {call['user']}.")
    return cloud.state.get(_KIND, call["user"]) or {"name": _number(call["user"]), "posixAccounts": []}


def _account(call: Call) -> Doc:
    email = call["user"]
    service = email.endswith(".gserviceaccount.com")
    user = f"sa_{_number(email)}" if service else re.sub(r"[^a-z0-9]", "_", email.lower())[:32]
    number = str(1_000_000_000 + zlib.crc32(email.encode()) % 1_000_000_000)
    return {
        "primary": True,
        "username": user,
        "uid": number,
        "gid": number,
        "homeDirectory": f"/home/{user}",
        "shell": "/bin/bash",
        "operatingSystemType": "LINUX",
        "accountId": call.query.get("projectId", ""),
    }


def _number(email: str) -> str:
    return str(10**20 + zlib.crc32(email.encode()))
