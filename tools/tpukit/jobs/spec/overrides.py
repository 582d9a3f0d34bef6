"""Apply `--set key=value`, which overrides any field of a spec for one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.spec import located_yaml, program_config
from tpukit.jobs.spec.located_yaml import Node
from tpukit.jobs.spec.words import brief

TEXT = frozenset({"name", "code", "image", "team", "priority", "workdir", "progress", "fit"})
"""Fields that are always text, so that `--set name=007` needs no quotes. All values of `env` are text too."""


def apply(root: Node, sets: Sequence[str], aliases: Mapping[str, str]) -> list[Problem]:
    """Put every `key=value` into the tree, in order, and return the problems found."""
    found: list[Problem] = []
    for item in sets:
        try:
            found += _put(root, item, aliases)
        except Invalid as error:
            found += error.problems
    return found


def _put(root: Node, item: str, aliases: Mapping[str, str]) -> list[Problem]:
    key, equals, text = item.partition("=")
    place = f"--set {brief(key)}"
    if not equals:
        raise Invalid(Problem(place, "the value is missing", f"write --set {brief(key)}=VALUE"))
    way = aliases.get(key, key).split(".")
    if way[0] == "config" and len(way) > 1:
        way = ["config", *program_config.steps(".".join(way[1:]), aliases)]
    if not all(program_config.KEY.fits(step) for step in way) or len(way) > located_yaml.DEEPEST:
        raise Invalid(Problem(place, "this is not the name of a field", "write, for example, --set max.runtime=2h"))
    node, found = _value(way, text, place)
    if way == ["config"]:
        found += program_config.expand(node, aliases)
    for step in way[:-1]:
        around = root.value.get(step)
        if around is None or not isinstance(around.value, dict):
            around = root.value[step] = Node({}, place)
        root = around
    root.value[way[-1]] = node
    return found


def _value(way: Sequence[str], text: str, place: str) -> tuple[Node, list[Problem]]:
    if way[0] in TEXT or (way[0] == "env" and len(way) > 1):
        return Node(text, place), []
    if text.lstrip()[:1] in ("[", "{", '"', "'"):
        return located_yaml.parse(text, place, lines=False)
    return Node(located_yaml.scalar(text), place), []
