"""The doctor: checks of a TPU in order of dependency, each with a fix that is verified.

A check is a module in `checks` with one object CHECK. To add a check, add a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tpukit.catalogue import Slice
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError
from tpukit.google.tpu_vm import TpuVms
from tpukit.sharing.inventory import Vm


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a command on a host."""

    code: int
    out: str
    err: str = ""

    @property
    def last(self) -> str:
        return ((self.err or self.out).strip().splitlines() or [f"exit code {self.code}"])[-1]


class Hosts(Protocol):
    """The hosts of one TPU, called all at once."""

    def run(self, argv: Sequence[str], seconds: float = 60.0) -> list[Done | TpukitError]: ...


@dataclass(frozen=True, slots=True)
class Patient:
    vm: Vm
    shape: Slice
    cloud: TpuVms
    hosts: Hosts
    clock: Clock
    make_anew: Callable[[], None]
    allowed: Callable[[str], bool]  # asks the user to agree to a step that cannot be undone
    busy: str = ""  # id of the active job on this TPU, which must not be disturbed
    wandb: bool = False  # the user has a wandb key, and so programs that import wandb


class Check(Protocol):
    name: str
    needs: tuple[str, ...]  # checks that must pass before this one

    def examine(self, patient: Patient) -> str:
        """Return the problem in a sentence, or "" if there is none."""

    def fix(self, patient: Patient) -> str:
        """Fix the problem and return what was done, or "" if the user has to follow the advice of `examine`."""


class Outcome(StrEnum):
    GOOD = "good"
    MENDED = "mended"
    BAD = "bad"
    UNKNOWN = "not examined"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    outcome: Outcome
    says: str = ""
    fix: str = ""


def known_checks() -> list[Check]:
    """Return all checks, each after those that it needs."""
    import importlib
    import pkgutil

    from tpukit.sharing.doctor import checks as folder

    modules = [
        importlib.import_module(f"{folder.__name__}.{one.name}") for one in pkgutil.iter_modules(folder.__path__)
    ]
    return ordered([module.CHECK for module in modules])


def ordered(known: Sequence[Check]) -> list[Check]:
    """Sort checks by dependency, then by name."""
    placed: list[Check] = []
    left = sorted(known, key=lambda check: check.name)
    while left:
        names = {check.name for check in placed}
        following = next((check for check in left if set(check.needs) <= names), None)
        if following is None:
            raise ValueError(f"checks depend on each other: {', '.join(check.name for check in left)}")
        placed.append(following)
        left.remove(following)
    return placed


def examine(patient: Patient, known: Sequence[Check], *, fix: bool) -> Iterator[Finding]:
    """Run each check, and again after its fix. Skip checks that need a failed one."""
    sound: set[str] = set()
    for check in known:
        missing = [name for name in check.needs if name not in sound]
        if missing:
            yield Finding(check.name, Outcome.UNKNOWN, f"needs {', '.join(missing)}")
            continue
        finding = _one(patient, check, fix)
        if finding.outcome in (Outcome.GOOD, Outcome.MENDED):
            sound.add(check.name)
        yield finding


def _one(patient: Patient, check: Check, fix: bool) -> Finding:
    try:
        wrong = check.examine(patient)
        if not wrong:
            return Finding(check.name, Outcome.GOOD)
        done = check.fix(patient) if fix else ""
        if not done:
            return Finding(check.name, Outcome.BAD, wrong)
        left = check.examine(patient)
        return Finding(check.name, Outcome.BAD if left else Outcome.MENDED, left or wrong, done)
    except TpukitError as error:
        return Finding(check.name, Outcome.BAD, str(error))


def on_hosts(answers: Sequence[Done | TpukitError], good: Callable[[Done], str]) -> str:
    """Return the first problem on a host, with the host's number. `good` returns the problem in a result."""
    for number, answer in enumerate(answers):
        wrong = str(answer) if isinstance(answer, TpukitError) else good(answer)
        if wrong:
            return f"host {number}: {wrong}"
    return ""
