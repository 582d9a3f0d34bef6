"""Service Usage: dependencies between APIs.

Enabling an API enables its dependencies; an API that others depend on stays enabled. The table holds only what users
reported: Google's own list is longer and unpublished.
"""

from __future__ import annotations

from collections.abc import Callable

from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import SERVICE_NEEDED, SERVICE_UNKNOWN

NEEDS = {
    "cloudapis": ("cloudtrace", "datastore"),
    "container": ("compute",),
    "tpu": ("compute",),
}
"""Dependencies, without .googleapis.com.

The two of `cloudapis`, which new projects have, are those that users reported after they disabled them.
"""
_TYPE = "type.googleapis.com/google.rpc"


def needed(service: str) -> list[str]:
    """Return all dependencies of an API, direct and indirect."""
    near = [_full(name) for name in NEEDS.get(service.partition(".")[0], ())]
    return list(dict.fromkeys(each for one in near for each in (one, *needed(one))))


def dependents(service: str, enabled: Callable[[str], bool]) -> list[str]:
    """Return all enabled APIs that depend on this one."""
    return [full for full in map(_full, NEEDS) if service in needed(full) and enabled(full)]


def still_needed(service: str, by: list[str]) -> Refused:
    names = ",".join(by)
    return SERVICE_NEEDED.refused(
        400,
        f"The service {service} is depended on by the following active service(s): {names}; Please specify "
        "disable_dependent_services=true if you want to proceed with disabling all services.",
        status="FAILED_PRECONDITION",
        reason="failedPrecondition",
        details=_details(
            "100001", "COMMON_SU_SERVICE_HAS_DEPENDENT_SERVICES", {"service_name": service, "services": names}
        ),
    )


def unknown(services: list[str]) -> Refused:
    names = ",".join(services)
    return SERVICE_UNKNOWN.refused(
        403,
        f"Not found or permission denied for service(s): {names}.",
        details=_details("220002", "SERVICE_CONFIG_NOT_FOUND_OR_PERMISSION_DENIED", {"services": names}),
    )


def _details(number: str, reason: str, about: dict[str, str]) -> list[dict[str, object]]:
    subject = "&".join(["?error_code=" + number, *(f"{name}={value}" for name, value in about.items())])
    return [
        {"@type": f"{_TYPE}.PreconditionFailure", "violations": [{"type": "googleapis.com", "subject": subject}]},
        {"@type": f"{_TYPE}.ErrorInfo", "reason": reason, "domain": "serviceusage.googleapis.com", "metadata": about},
    ]


def _full(name: str) -> str:
    return f"{name}.googleapis.com"
