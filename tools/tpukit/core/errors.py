"""Errors, classed by what the caller does next.

Adapters translate what a library or a cloud raised into one of these once, with the cause chained, and nobody above
them looks at a status code again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TpukitError(Exception):
    """Base of everything tpukit raises on purpose. `hint` says what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with something a person wrote."""

    where: str  # "job.yaml:3", "--set slices"
    what: str  # "tpu: there is no v4-33"
    hint: str = ""  # "write v4-32"

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}\n  {self.hint}" if self.hint else line


class Invalid(TpukitError):
    """What the person wrote cannot be done as written: change it. Carries every problem at once."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Sequence[Problem], *, hint: str = "") -> None:
        if isinstance(problems, str):
            problems = [Problem("", problems, hint)]
        elif isinstance(problems, Problem):
            problems = [problems]
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotFound(TpukitError):
    """The thing named is not there: name another."""


class Conflict(TpukitError):
    """Somebody else has it, or it is in a state that forbids this: look, then decide."""


class LeaseLost(Conflict):
    """Another driver owns the key: send nothing more for it."""


class NoCapacity(TpukitError):
    """The cloud has none to give: wait, or go elsewhere."""


class Denied(TpukitError):
    """Not allowed: ask whoever grants it."""


class HostKeyChanged(Denied):
    """Another machine answers than the one that was meant, or that one was made anew a moment ago."""


class Unauthenticated(Denied):
    """It is not known who asks: sign in again."""


class Transient(TpukitError):
    """Passing trouble: the same call may go through later.

    `retry_after`: seconds before which whoever refused does not want to be asked again; 0 where it did not say.
    """

    def __init__(self, message: str, *, hint: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class NotYet(TpukitError):
    """Not finished: call again."""


def seconds_of(retry_after: str) -> float:
    """Of a header Retry-After. One with a date is rare, and a clock that is off would make it a long time."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
