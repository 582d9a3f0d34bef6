"""One name, one thing: a reader who knows one `decide` knows what the next one is for."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import tpukit

PACKAGE = Path(tpukit.__file__).parent
ROLES = {
    "act": "carries out what a loop decided",
    "decide": "what a loop does next; pure",
    "documents": "objects of Kubernetes with the fields that are read",
    "driver": "a loop from its observation to its report",
    "metrics": "what a service counts, for Prometheus",
    "observe": "what a loop decides from",
    "observing": "what a place says of its attempts",
    "place": "somewhere to run jobs, with the contract of places",
    "progress": "how far a program is: written, read, added up",
    "records": "what a loop remembers",
    "service": "what a `serve` command does for ever",
    "settings": "what a person can set, with defaults",
    "status": "what a `status` command shows",
    "sweeping": "removes what a place has left over",
    "trace": "every report of a host: written, compared",
    "unmanaged": "jobs that no store knows",
    "worker": "a process that takes one piece of work after the other",
}


def modules() -> dict[str, list[Path]]:
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.stem.startswith("__"):
            found[path.stem].append(path.relative_to(PACKAGE))
    return found


def test_modules_of_one_name_have_one_role_or_are_a_thing_and_its_command():
    twice = {}
    for name, paths in modules().items():
        things = [path for path in paths if path.parts[0] != "cli"]
        if name not in ROLES and len(things) > 1:
            twice[name] = [str(path) for path in things]
    assert not twice, "rename all but one of each, or say in ROLES what both are"


def test_roles_are_those_of_several_modules():
    assert not [name for name in ROLES if len(modules().get(name, [])) < 2]
