"""Refusals common to many APIs, each with its source."""

from __future__ import annotations

from collections.abc import Sequence

from tpubox.google.wire.api import Api
from tpubox.google.wire.refusal import Refused, Source
from tpubox.google.wire.sources import (
    COMPUTE_PERMISSION,
    GKE_PERMISSION,
    GUESS,
    REQUEST_QUOTA,
    SERVICE_DISABLED,
    STORAGE_PERMISSION,
    TPU_PERMISSION,
    UNAUTHENTICATED,
    UNKNOWN_FIELD,
    UNKNOWN_PARAMETER,
    VERTEX_PERMISSION,
)
from tpubox.google.wire.state import Doc

_TYPE = "type.googleapis.com/google.rpc"
PERMISSIONS: dict[str, tuple[Source, str]] = {
    "*": (GUESS, "Permission '{permission}' denied on resource '{resource}' (or it may not exist)."),
    "aiplatform": (
        VERTEX_PERMISSION,
        "Permission '{permission}' denied on resource '//aiplatform.googleapis.com/{resource}' (or it may not exist).",
    ),
    "compute": (COMPUTE_PERMISSION, "Required '{permission}' permission for '{resource}'"),
    "container": (GKE_PERMISSION, 'Required "{permission}" permission(s) for "{resource}".'),
    "storage": (
        STORAGE_PERMISSION,
        "{who} does not have {permission} access to the Google Cloud Storage {kind}. "
        "Permission '{permission}' denied on resource (or it may not exist).",
    ),
    "tpu": (TPU_PERMISSION, "Permission '{permission}' denied on '{resource}'"),
}
"""Error texts by the first word of the permission; * for all others."""


def unauthenticated() -> Refused:
    return UNAUTHENTICATED.refused(
        401,
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
    )


def service_disabled(api: Api, project_number: str) -> Refused:
    """Refuse a call of a disabled API.

    https://cloud.google.com/service-usage/docs/error-handling has the details.
    """
    page = f"https://console.developers.google.com/apis/api/{api.service}/overview?project={project_number}"
    metadata = {"service": api.service, "consumer": f"projects/{project_number}"}
    details: list[Doc] = [
        {
            "@type": f"{_TYPE}.ErrorInfo",
            "reason": "SERVICE_DISABLED",
            "domain": "googleapis.com",
            "metadata": metadata,
        },
        {
            "@type": f"{_TYPE}.Help",
            "links": [{"description": "Google developers console API activation", "url": page}],
        },
    ]
    return SERVICE_DISABLED.refused(
        403,
        f"{api.title} has not been used in project {project_number} before or it is disabled. Enable it by visiting "
        f"{page} then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our "
        "systems and retry.",
        reason="accessNotConfigured",
        details=details,
    )


def permission_denied(principal: str, permission: str, resource: str) -> Refused:
    """Refuse a caller without the permission, in the words of the API. That all APIs have this detail is a guess."""
    source, text = PERMISSIONS.get(permission.partition(".")[0], PERMISSIONS["*"])
    kind = "object" if "/objects/" in resource else "bucket"
    message = text.format(permission=permission, resource=resource, who=principal.partition(":")[2], kind=kind)
    detail = {
        "@type": f"{_TYPE}.ErrorInfo",
        "reason": "IAM_PERMISSION_DENIED",
        "domain": "iam.googleapis.com",
        "metadata": {"permission": permission, "resource": resource},
    }
    return source.refused(403, message, details=[detail])


def too_many_requests(service: str, project_number: str, limit: int) -> Refused:
    """Refuse a request over the request quota, without a Retry-After, so that callers back off by themselves.

    The names of metric and limit differ between services; these are a guess.
    """
    metadata = {
        "service": service,
        "consumer": f"projects/{project_number}",
        "quota_metric": f"{service}/default_requests",
        "quota_limit": "RequestsPerMinutePerProject",
        "quota_limit_value": str(limit),
    }
    detail = {"reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com", "metadata": metadata}
    return REQUEST_QUOTA.refused(
        429,
        f"Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service '{service}' for "
        f"consumer 'project_number:{project_number}'.",
        details=[{"@type": f"{_TYPE}.ErrorInfo", **detail}],
    )


def bad_request(problems: Sequence[tuple[str, str]], source: Source = UNKNOWN_FIELD) -> Refused:
    """Report all problems of a request at once, as pairs of field and text; "" is the request itself."""
    violations = [{**({"field": field} if field else {}), "description": text} for field, text in problems]
    return source.refused(
        400,
        "\n".join(text for _, text in problems),
        details=[{"@type": f"{_TYPE}.BadRequest", "fieldViolations": violations}],
    )


def unknown_parameters(names: Sequence[str]) -> Refused:
    head = "Invalid JSON payload received. Unknown name"
    why = "Cannot bind query parameter. Field '{}' could not be found in request message."
    return bad_request([("", f'{head} "{name}": {why.format(name)}') for name in names], UNKNOWN_PARAMETER)
