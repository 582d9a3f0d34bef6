"""Names of service accounts in paths: by email address or by number, in their project or in `-`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS


def resolved(cloud: Cloud, names: Mapping[str, str]) -> dict[str, str]:
    """Return the names of a path with the account's address, and with its project in place of `-`."""
    account, project = names.get("account", ""), names.get("project", "")
    if re.fullmatch(r"\d+", account):
        prefix = "" if project == "-" else f"projects/{cloud.project(project)}/"
        found = [one for one in cloud.state.all("account", prefix).values() if one["uniqueId"] == account]
        if not found:
            raise GUESS.not_found(f"Unknown service account: projects/{project}/serviceAccounts/{account}.")
        return {**names, "account": found[0]["email"], "project": found[0]["projectId"]}
    owner = re.fullmatch(r"[^@]+@([a-z0-9-]+)\.iam\.gserviceaccount\.com", account)
    return {**names, "project": owner[1]} if owner and project == "-" else dict(names)
