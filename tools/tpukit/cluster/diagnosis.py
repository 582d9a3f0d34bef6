"""Translate errors of Terraform, gcloud and kubectl into ours: which resource, what happened, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpukit.cluster.terraform_events import Diagnostic
from tpukit.core.errors import Conflict, Denied, Invalid, NoCapacity, NotFound, Problem, TpukitError, Transient


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of error, the texts that identify it, and what to do about it."""

    kind: type[TpukitError]
    signs: re.Pattern[str]
    hint: str
    elsewhere: str = ""  # hint for programs other than Terraform, if different


def _cause(kind: type[TpukitError], signs: str, hint: str, elsewhere: str = "") -> Cause:
    return Cause(kind, re.compile(signs, re.I | re.S), hint, elsewhere)


CAUSES = (
    # The first match wins, so specific causes come before general ones.
    _cause(
        Conflict,
        r"acquiring the state lock|state lock|ConditionNotMet.*lock",
        "another run changes this environment. Wait for it; if it died, `terraform force-unlock ID` with the ID above",
    ),
    _cause(
        Denied,
        r"SERVICE_DISABLED|has not been used in project|API .{0,80}is (?:not enabled|disabled)|accessNotConfigured",
        "run `tpu cluster bootstrap` to enable the APIs",
    ),
    _cause(
        Denied,
        r"could not find default credentials|application default credentials|invalid_grant|reauth"
        r"|do not currently have an active account|gcloud auth login",
        "`gcloud auth login && gcloud auth application-default login`",
    ),
    _cause(NotFound, r"bucket doesn't exist", "run `tpu cluster bootstrap` to create the state bucket"),
    _cause(
        NoCapacity,
        r"stockout|ZONE_RESOURCE_POOL_EXHAUSTED|does not have enough resources|resource pool exhausted"
        r"|no (?:more )?capacity|created in the error state",
        "wait and apply again, or use another zone, or capacity: spot, flex-start or a reservation. "
        "A pool that has come up meanwhile is kept by `terraform untaint ADDRESS`",
    ),
    _cause(
        NoCapacity,
        r"quota|QUOTA_EXCEEDED|RESOURCE_EXHAUSTED",
        "request more at https://console.cloud.google.com/iam-admin/quotas, or request fewer slices",
    ),
    _cause(
        Denied,
        r"\b403\b|PERMISSION_DENIED|permission .{0,120}denied|does not have (?:permission|\S+ access)|forbidden"
        r"|\b401\b|UNAUTHENTICATED|must be logged in",
        "ask an owner of the project for the role, or run this as the account that `tpu cluster bootstrap` created",
    ),
    _cause(
        Conflict,
        r"deletion_protection",
        "`tpu cluster apply --set deletion_protection=false`, then destroy; a cluster of which an earlier apply made "
        "only half is protected too: delete it with `gcloud container clusters delete`, and apply again",
    ),
    _cause(
        Conflict,
        r"\b409\b|already ?exists|being used by|resourceInUse|not ?empty",
        "a resource with this name exists that Terraform did not create: use another name, or `terraform import` it",
        "a resource with this name exists already: use another name, or delete that resource",
    ),
    _cause(
        Invalid,
        r"precondition failed|Invalid value for|Invalid variable|No value for required variable|Missing required"
        r"|Unsupported argument|\b400\b|INVALID_ARGUMENT|badRequest|postcondition",
        "correct the named value in the cluster file",
        "correct the named value in the command or the settings (`tpu settings`)",
    ),
    _cause(
        Transient,
        r"\b429\b|rateLimit|\b50[0234]\b|timeout|timed out|connection re(?:set|fused)|no such host|unreachable"
        r"|temporar|TLS handshake|EOF",
        "run the apply again: finished resources are kept",
        "run the command again: finished steps are kept",
    ),
    _cause(NotFound, r"\b404\b|not ?found|does not exist|was not found", "check the names and the project"),
)

_THERE = re.compile(r"already ?exists", re.I)
_GRAVEST = (Denied, Invalid, Conflict, NoCapacity, NotFound, Transient)


def cause(text: str) -> Cause | None:
    return next((known for known in CAUSES if known.signs.search(text)), None)


def error(found: Sequence[Diagnostic], doing: str, hint: Callable[[Diagnostic], str] = lambda found: "") -> TpukitError:
    """Return one error for all of Terraform's diagnostics; its class is that of the gravest one.

    `hint` returns what to do if more is known than the text tells.
    """
    causes = [cause(f"{one.summary}\n{one.detail}") for one in found]
    problems = [_problem(one, known, hint(one)) for one, known in zip(found, causes, strict=True)]
    kinds = {known.kind for known in causes if known}
    kind = next((kind for kind in _GRAVEST if kind in kinds), TpukitError)
    if kind is Invalid:
        return Invalid(problems)
    return kind(f"{doing} failed\n" + "\n".join(str(problem) for problem in problems))


def failure(program: str, text: str, doing: str) -> TpukitError:
    """Return the error for what gcloud, kubectl or `terraform init` wrote to stderr before it failed."""
    known = cause(text)
    said = "\n  ".join(_gist(text)) or f"{program} printed no error"
    message = f"{doing} failed: {said}"
    hint = f"this is the error of {program}"
    if known:
        hint = known.hint if program.rpartition("/")[2] in ("terraform", "tofu") else known.elsewhere or known.hint
    return (
        Invalid(message, hint=hint)
        if known and known.kind is Invalid
        else (known.kind if known else TpukitError)(message, hint=hint)
    )


def already_there(found: Diagnostic) -> bool:
    """Return whether the resource that Terraform was to create already exists."""
    return bool(_THERE.search(f"{found.summary}\n{found.detail}"))


def _problem(found: Diagnostic, known: Cause | None, hint: str) -> Problem:
    words = " ".join(_gist(found.detail))
    what = f"{found.summary}: {words}" if words and words != found.summary else found.summary
    return Problem(found.address or found.where, what, hint or (known.hint if known else ""))


def _gist(text: str) -> list[str]:
    """Return the meaningful lines of an error, without frames and ornaments."""
    bare = (re.sub(r"^[╷│╵\s]+", "", line).strip() for line in text.splitlines())
    lines = [
        line for line in bare if line and not line.startswith(("There are some problems with the CLI", "WARNING:"))
    ]
    # `terraform init` prints its progress before the error.
    first = next((number for number, line in enumerate(lines) if line.startswith("Error: ")), 0)
    lines = lines[first:]
    return lines[:12]
