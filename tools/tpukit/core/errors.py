"""Errors, classed by what the caller does next.

Adapters translate each error of a library or a cloud into one of these once, with the cause chained. The layers above
never look at a status code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TpukitError(Exception):
    """Base of all errors that tpukit raises deliberately. `hint` gives the next step."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in the user's input."""

    where: str  # "job.yaml:3", "--set slices"
    what: str  # "tpu: there is no v4-33"
    hint: str = ""  # "write v4-32"

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}\n  {self.hint}" if self.hint else line


class Invalid(TpukitError):
    """The input cannot be used as written: change it. Carries every problem at once."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Sequence[Problem], *, hint: str = "") -> None:
        if isinstance(problems, str):
            problems = [Problem("", problems, hint)]
        elif isinstance(problems, Problem):
            problems = [problems]
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotFound(TpukitError):
    """The named object does not exist: name another."""


class Conflict(TpukitError):
    """The object has another holder, or its state forbids the call: look, then decide."""


class LeaseLost(Conflict):
    """Another driver owns the key: send nothing more for it."""


class NoCapacity(TpukitError):
    """The cloud has no capacity: wait, or try elsewhere."""


class Denied(TpukitError):
    """Permission denied: ask an administrator for it."""


class HostKeyChanged(Denied):
    """Unexpected SSH host key: a different machine answered, or the machine was recreated a moment ago."""


class Unauthenticated(Denied):
    """Not signed in, or the session expired: sign in again."""


class Transient(TpukitError):
    """A temporary failure: the same call may succeed later.

    `retry_after`: seconds to wait before the next call, as the server requested; 0 if it did not.
    """

    def __init__(self, message: str, *, hint: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class NotYet(TpukitError):
    """Not finished: call again."""


def seconds_of(retry_after: str) -> float:
    """Return the seconds in a Retry-After header. Dates are rare and depend on the local clock, so they count as 0."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
