"""IAM credentials: tokens of service accounts. A token authenticates as its account until it expires."""

from __future__ import annotations

import secrets

from tpubox.google.iam import permissions
from tpubox.google.iam import service_accounts as iam
from tpubox.google.iam.conditions import Facts
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud, stamp
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

LONGEST_SECONDS = 3600.0
api = Api(
    "iam_credentials",
    service="iamcredentials.googleapis.com",
    document="iamcredentials",
    title="IAM Service Account Credentials API",
)


@api.on("POST", iam.ACCOUNT + ":generateAccessToken", body="GenerateAccessTokenRequest")
def _generate(cloud: Cloud, call: Call) -> Doc:
    if not call.body.get("scope"):
        raise GUESS.invalid("Scopes are required.")
    account = iam.find(cloud, call)
    scopes = [account["name"], f"projects/{call['project']}"]
    permissions.need(cloud, call, "iam.serviceAccounts.getAccessToken", scopes, Facts(account["name"]))
    if account.get("disabled"):
        raise GUESS.refused(400, f"Service account {account['email']} is disabled.", status="FAILED_PRECONDITION")
    seconds = min(float(call.body.get("lifetime", "3600s").removesuffix("s")), LONGEST_SECONDS)
    expires = cloud.clock.now() + seconds
    return {"accessToken": mint(cloud, account["email"], expires), "expireTime": stamp(expires)}


def mint(cloud: Cloud, email: str, expires: float) -> str:
    token = f"ya29.{secrets.token_urlsafe(32)}"
    cloud.state.put("token", token, {"principal": f"serviceAccount:{email}", "expires": expires})
    return token


def principal_of(cloud: Cloud, token: str) -> str | None:
    """Return the account of a token; None if the token is unknown or expired."""
    known = cloud.state.get("token", token)
    return str(known["principal"]) if known and known["expires"] > cloud.clock.now() else None
