"""The rules of `notices.yaml`: who gets which notice, and how it is sent.

Example:
    - name: research
      webhook: https://hooks.slack.com/services/...
      teams: [research]
      ended: [failed]
      waits: 2h
      idle: 30m
    - name: ada
      command: [mail, -s, "{subject}", ada@example.com]
      owners: [ada]
      ended: [completed, failed, cancelled]
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tpukit.core.errors import Denied, Invalid, Problem
from tpukit.jobs.reasons import State
from tpukit.jobs.spec import durations

ENDS = tuple(str(state) for state in State if state.ended)
_FIELDS = ("name", "webhook", "command", "teams", "owners", "ended", "waits", "idle")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    webhook: str = ""
    command: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()  # empty: all
    owners: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    waits: float = 0.0  # seconds; 0: no notice
    idle: float = 0.0

    def concerns(self, team: str, owner: str) -> bool:
        return (not self.teams or team in self.teams) and (not self.owners or owner in self.owners)

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"  # the address is a secret


def read(file: Path) -> list[Rule]:
    """Return the rules; none without a file. Raise Denied if others may read it, as it may hold secrets."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise Denied(f"{file} cannot be read: {type(error).__name__}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Denied(f"{file} may be read by other users, and webhooks are secrets", hint=f"`chmod 600 {file}`")
    try:
        listed = yaml.safe_load(text)
    except yaml.YAMLError as error:  # its text would quote the file
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        raise Invalid(
            Problem(where, "this is not YAML", "write a list of rules; `tpu notify --help` has one")
        ) from None
    return parse(listed, str(file))


def parse(listed: Any, where: str) -> list[Rule]:
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise Invalid(Problem(where, "this is not a list of rules", "begin each rule with `- name: NAME`"))
    problems: list[Problem] = []
    rules = [_rule(one, f"{where}: rule {number}", problems) for number, one in enumerate(listed, 1)]
    names = [rule.name for rule in rules if rule]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(Problem(where, f"two rules are named {name}", "rename one of them"))
    if problems:
        raise Invalid(problems)
    return [rule for rule in rules if rule]


def _rule(one: Any, where: str, problems: list[Problem]) -> Rule | None:
    if not isinstance(one, Mapping):
        problems.append(Problem(where, "this is not a rule", "write `- name: NAME` and its fields below"))
        return None
    before = len(problems)
    for field in one:
        if field not in _FIELDS:
            problems.append(Problem(where, f"there is no field {str(field)[:40]!r}", f"write {', '.join(_FIELDS)}"))
    name = one.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(Problem(where, "name: it is missing or not a name", "write `name: research`"))
    webhook, command = one.get("webhook", ""), one.get("command", [])
    if bool(webhook) == bool(command):
        problems.append(Problem(where, "a rule has either a webhook or a command", "write one of them"))
    if webhook and not _is_address(webhook):
        problems.append(Problem(where, "webhook: this is not an https address", "write https://HOST/PATH"))
    for field, values, known in (
        *(("command", command, ()), ("teams", one.get("teams", []), ()), ("owners", one.get("owners", []), ())),
        ("ended", one.get("ended", []), ENDS),
    ):
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            problems.append(Problem(where, f"{field}: this is not a list of texts", f"write `{field}: [one, two]`"))
        elif known and (wrong := [value for value in values if value not in known]):
            problems.append(Problem(where, f"{field}: there is no {wrong[0][:40]!r}", f"write {', '.join(known)}"))
    waits, idle = (_seconds(one, field, where, problems) for field in ("waits", "idle"))
    if not (one.get("ended") or waits or idle) and len(problems) == before:
        problems.append(
            Problem(where, "it would never send a notice", "add `ended: [failed]`, `waits: 2h` or `idle: 30m`")
        )
    if len(problems) > before:
        return None
    lists = {field: tuple(one.get(field, [])) for field in ("command", "teams", "owners", "ended")}
    return Rule(str(name), str(webhook), **lists, waits=waits, idle=idle)


def _is_address(text: object) -> bool:
    """Return whether a webhook is safe to call: https, or a server on this machine."""
    if not isinstance(text, str) or re.search(r"[\s\x00-\x1f\x7f]", text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
    return bool(parts.hostname) and (parts.scheme == "https" or local)


def _seconds(one: Mapping[str, Any], field: str, where: str, problems: list[Problem]) -> float:
    if field not in one:
        return 0.0
    try:
        return float(durations.parse(str(one[field])))
    except ValueError:
        problems.append(Problem(where, f"{field}: this is not a duration", f"write `{field}: 2h`"))
        return 0.0
