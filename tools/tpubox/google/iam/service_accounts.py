"""IAM: service accounts and their policies."""

from __future__ import annotations

import re
import zlib

from tpubox.google.iam import held_permissions, policy
from tpubox.google.wire.api import Api, Call, camel, merged, public
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import ACCOUNT_EXISTS, GUESS, RECORDED
from tpubox.google.wire.state import Doc

ACCOUNTS = "projects/{project}/serviceAccounts"
ACCOUNT = ACCOUNTS + "/{account}"
_CHANGEABLE = ("displayName", "description")

api = Api(
    "iam",
    service="iam.googleapis.com",
    document="iam",
    title="Identity and Access Management (IAM) API",
    permissions="iam",
    reasons_too=True,
    terraform={"IAM": "v1/", "IAM_BETA": "v1/"},  # service accounts moved from the first to the second in 7.30
)


@api.on("POST", ACCOUNTS, body="CreateServiceAccountRequest")
def _create(cloud: Cloud, call: Call) -> Doc:
    name = call.body.get("accountId", "")
    if not re.fullmatch(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])", name):
        raise GUESS.invalid(f"The account ID {name!r} does not have a length between 6 and 30 or has wrong characters.")
    email = f"{name}@{call['project']}.iam.gserviceaccount.com"
    full = f"projects/{call['project']}/serviceAccounts/{email}"
    if cloud.state.get("account", full):
        within = f"projects/{call['project']}"
        raise ACCOUNT_EXISTS.exists(f"Service account {name} already exists within project {within}.", full)
    account = {
        **call.body.get("serviceAccount", {}),
        "name": full,
        "projectId": call["project"],
        "uniqueId": str(10**20 + zlib.crc32(f"{email} {cloud.state.next()}".encode())),
        "email": email,
        "oauth2ClientId": str(10**20 + cloud.state.next()),
        # Deprecated according to the documentation; Google's examples show this value for every account. That it is
        # constant and that sent values are ignored is a guess.
        "etag": "MDEwMjE5MjA=",
        "_made": cloud.clock.now(),
    }
    cloud.state.put("account", full, account)
    return public(account)


@api.on("GET", ACCOUNTS)
def _listed(cloud: Cloud, call: Call) -> Doc:
    return {"accounts": [public(one) for one in cloud.state.all("account", f"projects/{call['project']}/").values()]}


@api.on("GET", ACCOUNT)
def _show(cloud: Cloud, call: Call) -> Doc:
    return public(find(cloud, call))


@api.on("PATCH", ACCOUNT, body="PatchServiceAccountRequest")
def _patch(cloud: Cloud, call: Call) -> Doc:
    old = find(cloud, call)
    fields = [camel(field.strip()) for field in call.body.get("updateMask", "").split(",") if field.strip()]
    for field in fields:
        if field not in _CHANGEABLE:
            # The discovery document lists the changeable fields; the error text is a guess.
            raise GUESS.invalid(
                f"The field {field} of a service account cannot be changed; only display_name and description can."
            )
    asked = call.body.get("serviceAccount", {})
    new = merged(old, {field: asked.get(field) for field in fields})
    cloud.state.put("account", new["name"], new)
    return public(new)


@api.on("POST", ACCOUNT + ":enable")
def _enable(cloud: Cloud, call: Call) -> Doc:
    return _switch(cloud, call, disabled=False)


@api.on("POST", ACCOUNT + ":disable")
def _disable(cloud: Cloud, call: Call) -> Doc:
    return _switch(cloud, call, disabled=True)


@api.on("DELETE", ACCOUNT)
def _delete(cloud: Cloud, call: Call) -> Doc:
    account = find(cloud, call)
    cloud.state.delete("account", account["name"])
    policy.forget(cloud, account["name"])
    # A new account of the same name has none of the grants: https://github.com/openshift/installer/issues/2790
    member = f"serviceAccount:{account['email']}"
    policy.rename_member(cloud, member, f"deleted:{member}?uid={account['uniqueId']}")
    return {}


@api.on("POST", ACCOUNT + ":getIamPolicy")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    return policy.answer(cloud, find(cloud, call)["name"], call)


@api.on("POST", ACCOUNT + ":setIamPolicy", body="SetIamPolicyRequest")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    return policy.put(cloud, find(cloud, call)["name"], call.body.get("policy", {}))


held_permissions.register(api, ACCOUNT, "account", body="TestIamPermissionsRequest")


def find(cloud: Cloud, call: Call) -> Doc:
    full = f"projects/{call['project']}/serviceAccounts/{call['account']}"
    found = cloud.state.get("account", full)
    if found is None:
        raise RECORDED.not_found("Unknown service account")
    return found


def _switch(cloud: Cloud, call: Call, *, disabled: bool) -> Doc:
    account = find(cloud, call)
    cloud.state.put("account", account["name"], {**account, "disabled": disabled})
    return {}
