"""Ownership of a fleet: its owner and the store that has its records.

Another user's fleet, and the same user's fleet that another store drives, is refused until the user takes it over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpukit.core.errors import Conflict
from tpukit.fleet.listing import Located
from tpukit.fleet.records import UNLABELLED, Worker
from tpukit.fleet.wanted import Plan

LONGEST = 32
"""Maximum characters in the name of a fleet."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user with a store, in the form of labels."""

    owner: str
    store: str

    @property
    def mark(self) -> str:
        return f"{self.owner}/{self.store}"


def name_of(user: str) -> str:
    """Return the user's name in the characters of labels and of fleet names: the default name of a fleet.

    Different users have different names.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")
    name = plain if plain[:1].isalpha() else f"u-{plain}".rstrip("-")
    if name == user and len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 7].rstrip('-')}-{hashlib.sha256(user.encode()).hexdigest()[:6]}"


def foreign(
    fleet: str, me: Identity, known: Sequence[Worker], there: Located, plan: Plan | None = None
) -> Mapping[str, str]:
    """Return the marks of a fleet that are not this user's, each with a sentence that names the owner."""
    mine = {me.mark, *(mark for one in known for mark in one.adopted)}
    if any(not one.owner for one in known):  # an earlier version made these records, and TPU VMs without the labels
        mine.add(UNLABELLED)
    found = {one.mark: one.owner for one in known if one.owner} | dict(there.marks())
    if plan is not None and plan.owner:
        found[plan.mark] = plan.owner
    return {mark: _whose(fleet, mark, owner, me) for mark, owner in sorted(found.items()) if mark not in mine}


def refuse(fleet: str, found: Mapping[str, str]) -> None:
    """Raise if part of the fleet belongs to another owner."""
    for words in found.values():
        hint = "name another fleet with --name, or take this one over with --adopt after its own driver was stopped"
        raise Conflict(words, hint=hint)


def _whose(fleet: str, mark: str, owner: str, me: Identity) -> str:
    if mark == UNLABELLED:
        words = f"Fleet `{fleet}` has TPU VMs without an owner: an earlier version of tpukit made them"
        return f"{words}, and your store has no record of them."
    if owner != me.owner:
        return f"Fleet `{fleet}` belongs to {owner}."
    return f"Fleet `{fleet}` is yours, but another store drives it: that of another machine or another TPUKIT_STORE."
