"""A team: its quota, its members, and a requested change of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Any

from tpukit.catalogue import Slice
from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.render import pool_kinds
from tpukit.jobs.render.kueue import COMMON
from tpukit.jobs.render.pool_kinds import ON_DEMAND, PoolKind
from tpukit.jobs.spec.fields import TEAM
from tpukit.jobs.spec.forms import Violation, shown

GOOGLE_APIS = ("199.36.153.8/30", "199.36.153.4/30")
NONE, UNLIMITED = "none", "unlimited"
_COUNTED = {"quota": "--quota", "borrow": "--borrow"}
_KINDS = {"user": "User", "group": "Group", "account": "ServiceAccount"}
_EMAIL = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]@([a-z][-a-z0-9.]+)\.iam\.gserviceaccount\.com")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Team:
    name: str
    quota: Mapping[str, int] = field(default_factory=dict)  # slices of its own, by flavor; empty: it shares
    borrow: Mapping[str, int] | None = None  # slices it may borrow, by flavor, 0 of others; None: all that is left
    members: tuple[str, ...] = ()  # user:ada@example.com, group:…, account:NAME in its namespace
    email: str = ""  # Google account that its jobs act as
    made_with_cluster: bool = False
    allow_root: bool = False  # whether its programs may run as root
    egress: tuple[str, ...] = ()  # networks that its pods may reach besides each other; empty: all
    access: str = "restricted"  # access of its pods to their chips: restricted, tpu or privileged

    @property
    def queue(self) -> str:
        """The ClusterQueue that its jobs go to."""
        return self.name if self.quota else COMMON


@dataclass(frozen=True, slots=True)
class Request:
    """Changes of a team from a command line. Fields that it does not name keep their values."""

    name: str
    named: Mapping[str, Any]  # fields of Team; quota and borrow as written

    def applied(self, to: Team | None, flavors: Iterable[str] = ()) -> Team:
        """Return the requested team, in a cluster with these flavors."""
        every, problems = list(flavors), list[Problem]()
        named = dict(self.named)
        for field_, option in _COUNTED.items():
            if named.get(field_):
                named[field_] = _resolved(option, named[field_], every, problems)
        if problems:
            raise Invalid(problems)
        team = replace(to or Team(self.name), **named)
        # A limit of borrowing is removed with the quota, unless the request names it.
        return team if team.quota or "borrow" in self.named else replace(team, borrow=None)


def request(
    name: str,
    *,
    quota: Sequence[str] = (),
    borrow: Sequence[str] = (),
    members: Sequence[str] = (),
    email: str | None = None,
    allow_root: bool | None = None,
    egress: Sequence[str] = (),
    access: str | None = None,
) -> Request:
    """Return the request of a command line, or raise Invalid with all problems at once."""
    problems: list[Problem] = [*_name(name)]
    named: dict[str, Any] = {}
    if quota:
        named["quota"] = _slices("--quota", quota, problems, least=1)
    if UNLIMITED in borrow:
        named["borrow"] = None
        if len(borrow) > 1:
            problems.append(Problem("--borrow", "unlimited and a limit exclude each other", "name one of them"))
    elif borrow:
        named["borrow"] = _slices("--borrow", borrow, problems, least=0)
    if members:
        people = named["members"] = tuple(dict.fromkeys(one for one in members if one != NONE))
        problems += (problem for one in people for problem in _member(one))
        if NONE in members and people:
            problems.append(Problem("--member", "none and a member exclude each other", "name one of them"))
    if email is not None:
        named["email"] = "" if email == NONE else email
        if email != NONE and not _EMAIL.fullmatch(email):
            hint = "write NAME@PROJECT.iam.gserviceaccount.com, or none"
            problems.append(Problem("--service-account", f"{shown(email)} is not a Google service account", hint))
    if allow_root is not None:
        named["allow_root"] = allow_root
    if access is not None:
        named["access"] = access
    if egress:
        named["egress"] = _networks(egress, problems)
    if problems:
        raise Invalid(problems)
    return Request(name, named)


def subject(member: str, team: str) -> tuple[str, str, str]:
    """Return kind, name and namespace for binding roles to a member."""
    kind, _, name = member.partition(":")
    return _KINDS[kind], name, team if kind == "account" else ""


def member(kind: str, name: str) -> str:
    """Return a member from a subject's kind and name."""
    return f"{next(word for word, known in _KINDS.items() if known == kind)}:{name}"


def project(email: str) -> str:
    """Return the project of a Google service account; a domain-scoped project has its parts reversed in an address."""
    found = _EMAIL.fullmatch(email)
    return ":".join(reversed(found[1].split(".", 1))) if found else ""


def _name(name: str) -> Iterator[Problem]:
    wrong: list[Violation] = []
    TEAM.check(name, ("NAME",), wrong)
    yield from (Problem("", what, hint) for _, what, hint in wrong)
    if name == COMMON:
        yield Problem("NAME", f"{COMMON} is the name of the common queue", "use another name")


def _slices(
    option: str, words: Iterable[str], problems: list[Problem], *, least: int
) -> dict[tuple[Slice, str], tuple[str, int]]:
    """Parse amounts into (text, count) by shape and capacity; the capacity is "" if none is named."""
    found: dict[tuple[Slice, str], tuple[str, int]] = {}
    every = list(words)
    if NONE in every:
        if len(every) > 1:
            problems.append(Problem(option, "none and a number exclude each other", "name one of them"))
        return {}
    for word in every:
        tpu, equals, count = word.rpartition("=")
        if not equals or not count.isascii() or not count.isdigit() or not least <= int(count) < 10**6:
            hint = f"write TPU=SLICES, such as {option} v4-16=2"
            problems.append(Problem(option, f"{shown(word)} is not a number of slices", hint))
            continue
        try:
            shape, way = pool_kinds.parse(tpu, option)
        except Invalid as error:
            problems += error.problems
            continue
        if shape.machine_type is None:
            problems.append(Problem(option, f"GKE has no {tpu}", "name a newer one, such as v4-8"))
        elif (shape, way) in found:
            problems.append(Problem(option, f"{tpu} is named twice", "name it once"))
        found[shape, way] = tpu, int(count)
    return found


def _resolved(
    option: str,
    wanted: Mapping[tuple[Slice, str], tuple[str, int]],
    flavors: Sequence[str],
    problems: list[Problem],
) -> dict[str, int]:
    """Resolve amounts to flavors. A shape with one flavor needs no capacity; with several, one must be named."""
    found: dict[str, int] = {}
    kinds = [kind for flavor in flavors if (kind := pool_kinds.of_flavor(flavor))]
    for (shape, way), (word, count) in wanted.items():
        fitting = [kind for kind in kinds if _means(shape, way, kind)]
        if len(fitting) > 1:
            ways = [f"{option} {kind.written}={count}" for kind in fitting]
            problems.append(Problem(option, f"there are several kinds of {word}", f"write {' or '.join(ways)}"))
            continue
        flavor = (fitting[0] if fitting else PoolKind(shape, way or ON_DEMAND)).flavor
        if flavor in found:
            problems.append(Problem(option, f"{word} is named twice", "name it once"))
        found[flavor] = count
    return found


def _means(shape: Slice, way: str, kind: PoolKind) -> bool:
    alike = (kind.shape.generation, kind.shape.topology) == (shape.generation, shape.topology)
    return alike and (kind.capacity == way or not way or kind.capacity.startswith(f"{way}:"))


def _networks(words: Sequence[str], problems: list[Problem]) -> tuple[str, ...]:
    """Return address ranges. `google` means those of Google's APIs in a network whose DNS resolves them there.

    https://cloud.google.com/vpc/docs/configure-private-google-access#domain-options
    """
    found: list[str] = []
    for word in words:
        if word == "google":
            found += GOOGLE_APIS
        elif word != UNLIMITED:
            try:
                found.append(str(ip_network(word)))
            except ValueError as error:
                hint = "write a range such as 203.0.113.0/24, or google, or unlimited"
                problems.append(Problem("--egress", f"{shown(word)} is not a network: {error}", hint))
    if UNLIMITED in words and len(words) > 1:
        problems.append(Problem("--egress", "unlimited and a network exclude each other", "name one of them"))
    return tuple(dict.fromkeys(found))


def _member(member: str) -> Iterator[Problem]:
    kind, _, name = member.partition(":")
    if kind not in _KINDS or not name or re.search(r"[\s\x00-\x1f\x7f]", name) or len(name) > 320:
        hint = "write user:ada@example.com, group:research@example.com, or account:NAME of the team's namespace"
        yield Problem("--member", f"{shown(member)} is not a member", hint)
    elif name.startswith("system:"):
        # system:masters may do everything, and system:authenticated includes every user.
        yield Problem("--member", f"{shown(name)} belongs to Kubernetes", "name people or groups of your own")
    elif kind == "account" and not _LABEL.fullmatch(name):
        yield Problem("--member", f"{shown(name)} is not the name of an account", "write account:NAME")
