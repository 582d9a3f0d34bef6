"""Environment variables that direct clients to the emulated APIs instead of Google's."""

from __future__ import annotations

from collections.abc import Iterable

from tpubox.google.wire.api import Api


def terraform(api: Api, address: str) -> dict[str, str]:
    """Return the variables of the google provider, which appends a path of its own to each."""
    below = api.terraform or {api.name.upper(): f"{api.versions[0]}/"}
    return {f"GOOGLE_{name}_CUSTOM_ENDPOINT": f"{address}/{api.name}/{path}" for name, path in below.items()}


def gcloud(api: Api, address: str) -> dict[str, str]:
    """Return the variables of gcloud.

    gcloud uses the name of an API's document, and prepends a version to all paths except those of Compute Engine and
    Cloud Storage.
    """
    version = f"{api.versions[0]}/" if api.own_front else ""
    return {f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api.document.upper()}": f"{address}/{api.name}/{version}"}


def variables(apis: Iterable[Api], address: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for api in apis:
        if api.document:
            found |= {**terraform(api, address), **gcloud(api, address)}
    return found
