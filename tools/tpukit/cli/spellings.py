"""Short spellings of the job manager's commands, each mapped to its canonical command. Pure.

`tpu kill 101 xibo` is `tpu job stop xibo:101`. Canonical commands pass through unchanged. Arguments that a spelling
does not know are passed on, so that the canonical command rejects them with its own message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpukit.sharing import tpu_names

_SHOWN = re.compile(r"-[wdtsv]+")
_JOB_FILES = (".yaml", ".yml", ".json")
_ONLY_SHORT = ("-apply", "-q", "-ssn", "--set-spreadsheet-notes")
_WINDOW = dict.fromkeys(("w", "-w", "window", "-window", "windows", "-windows"), "window")


@dataclass(frozen=True, slots=True)
class Spelling:
    """A short spelling.

    `becomes` is filled with the positional words, which `takes` names in order. A user without a place in it is added
    as
    --user.
    """

    words: str  # all spellings of the first word
    becomes: str
    says: str
    takes: str = "user"
    named: Mapping[str, str] = field(default_factory=dict)  # KEY=VALUE that stands for a positional word, by KEY
    options: Mapping[str, str] = field(default_factory=dict)  # KEY=VALUE that becomes an option, by KEY
    flags: Mapping[str, str] = field(default_factory=dict)
    settings: bool = False  # any other KEY=VALUE is a setting of the program
    tldr: str = ""  # an example for new users


_TO_START = {"dir": "--dir", "tag": "--tag", "rule": "--rule", "ssn": "--notes", "place": "--place"}
_AGAIN = {"tpu": "--on"}

SPELLINGS = (
    Spelling("add-user", "user add {name}", "Add a user.", "name", tldr="tpu add-user ada"),
    Spelling("list-users", "user list", "List users.", ""),
    Spelling(
        *("set-cur", "user set-dir {number}", "Make this folder working directory NUMBER.", "number user"),
        tldr="tpu set-cur 1 ada",
    ),
    Spelling("ls", "user dirs", "List working directories."),
    Spelling("del-dir", "user delete-dir {number}", "Forget a working directory.", "number user"),
    Spelling("swap-dir", "user swap-dirs {number} {second}", "Swap two working directories.", "number second user"),
    Spelling(
        *("run", "job start {tpu}", "Run the program of a working directory on a TPU.", "tpu user"),
        options=_TO_START,
        flags={
            "-apply": "--reapply",
            "-q": "--no-monitor",
            "-ssn": "--ask-notes",
            "--set-spreadsheet-notes": "--ask-notes",
            "--log-stage": "--log-stage",
        },
        settings=True,
        tldr="tpu run v2-32-6 ada lr=0.01 tag=try",
    ),
    Spelling("monitor", "job monitor", "Follow all jobs of a user.", tldr="tpu monitor ada"),
    Spelling("check", "job check", "Show all jobs of a user once.", tldr="tpu check ada"),
    Spelling("add-tag", "job tag {user}:{window} {tag}", "Mark a job.", "window tag user", _WINDOW),
    Spelling(
        *("find", "vm find {types}", "Show TPUs of these types and who holds them.", "types"),
        flags={"-n": "--on-demand", "-p": "--spot"},
        tldr="tpu find v34 -n",
    ),
    Spelling("release rel", "vm release {tpu}", "Release a TPU.", "tpu user"),
    Spelling(
        *("clean", "job clear", "Drop windows of jobs that have ended."),
        flags={"-re": "--parents"},
        tldr="tpu clean ada",
    ),
    Spelling(
        *("kill kill-job -k -kj", "job stop {user}:{window}", "Stop a job.", "window user", _WINDOW),
        tldr="tpu kill w=101 ada",
    ),
    Spelling("-kw kill-window", "job stop {user}:{window}", "Stop the job of a window.", "window user", _WINDOW),
    Spelling("-czw", "job clear --missing", "Drop windows whose job's record was removed."),
    Spelling("-czj", "job clear --dead", "Close jobs that no process drives and of which nothing runs."),
    Spelling("clear-finished", "job clear --finished", "Drop windows of jobs that completed."),
    Spelling("clear-error", "job clear --error", "Drop windows of jobs that failed."),
    Spelling("clear clear-all", "job clear", "Drop windows of jobs that have ended."),
    Spelling("apply", "vm apply {tpu}", "Create a TPU.", "tpu"),
    Spelling("reapply", "vm reapply {tpu}", "Delete a TPU and recreate it.", "tpu", flags={"-q": "--yes"}),
    Spelling("delete", "vm delete {tpu}", "Delete a TPU.", "tpu", flags={"-q": "--yes"}),
    Spelling("restart", "vm restart {tpu}", "Restart the hosts of a TPU.", "tpu"),
    Spelling(
        "mount-disk", "vm mount-disk {tpu}", "Mount the shared disk on all hosts of a TPU, and set up wandb.", "tpu"
    ),
    Spelling(
        "describe",
        "vm describe {tpu}",
        "Show a TPU: its state, hosts, holder and events.",
        "tpu",
        tldr="tpu describe v2-32-6",
    ),
    Spelling("check-status", "vm check-status {tpu}", "Print the state of a TPU.", "tpu"),
    Spelling("solve", "vm solve {tpu}", "Diagnose a TPU and repair it.", "tpu", tldr="tpu solve v2-32-6"),
    Spelling(
        *("-a -alias", "alias add {alias} {setting}", "Add a short name for a setting.", "alias setting user"),
        tldr="tpu -a lr config.training.learning_rate ada",
    ),
    Spelling("-sa", "alias list", "List short names for settings."),
    Spelling("del-config-alias", "alias delete {alias}", "Delete a short name for a setting.", "alias user"),
    Spelling("-lta", "alias list --tpu", "List short names for TPUs.", ""),
    Spelling("-ta", "alias add --tpu {alias} {tpu}", "Add a short name for a TPU.", "alias tpu"),
    Spelling("del-tpu-alias", "alias delete --tpu {alias}", "Delete a short name for a TPU.", "alias"),
    Spelling(
        *("resume", "job resume {user}:{window}", "Run a job again from its last checkpoint.", "window user"),
        *(_WINDOW, _AGAIN),
        tldr="tpu resume windows=101 ada",
    ),
    Spelling(
        *("rerun", "job rerun {user}:{window}", "Run a job again from the beginning.", "window user"),
        *(_WINDOW, _AGAIN),
    ),
    Spelling("check-rules", "job rules", "Show what each rule does.", ""),
    Spelling("ack", "job ack", "Have the driver of the jobs look at them now."),
    Spelling("set-settings", "user set {key} {value}", "Change a setting of a user.", "key value user"),
    Spelling("get-settings", "user settings", "Show the settings of a user."),
    Spelling("reset-settings", "user reset", "Reset all settings of a user to their defaults."),
    Spelling("reset-window-num", "user set-window {number}", "Set the number of the next job.", "number user"),
    Spelling("log", "user log", "Show new events.", tldr="tpu log ada"),
    Spelling(
        "upd-log", "job update-log {window} {log} {code} {tpu} {start}", "For scripts.", "window log code tpu start"
    ),
    Spelling("finish-job", "job finish {window}", "For scripts: report that the program is done.", "window"),
    Spelling("tldr", "help tldr", "The commands of the first day.", ""),
)

BY_WORD = {word: one for one in SPELLINGS for word in one.words.split()}


def canonical(arguments: Sequence[str]) -> list[str]:
    """Return the canonical command line for these arguments of `tpu`."""
    if not arguments:
        return []
    first, *rest = arguments
    if first == "-h" and rest:
        return ["help", *rest]
    spelling = BY_WORD.get(first)
    if spelling is None or not _is_short(first, rest):
        return list(arguments)
    return _filled(spelling, rest)


def _is_short(first: str, rest: Sequence[str]) -> bool:
    """Return True for a short spelling. `run` and `clean` are also canonical commands, with files or without words."""
    plain = bool(rest) and _plain(rest[0])
    if first == "clean":
        return plain or "-re" in rest
    if first == "run":
        if any(_plain(word) and word.endswith(_JOB_FILES) for word in rest[:2]):
            return False
        second = len(rest) > 1 and (_plain(rest[1]) or any(word in _ONLY_SHORT for word in rest))
        return plain and (tpu_names.is_tpu(rest[0]) or second)
    return True


def _plain(word: str) -> bool:
    return not word.startswith("-") and "=" not in word


def _filled(spelling: Spelling, words: Sequence[str]) -> list[str]:
    values: dict[str, str] = {}
    options: list[str] = []
    plain: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if _plain(word):
            plain.append(word)
        elif equals and key in spelling.named:
            values[spelling.named[key]] = value
        elif equals and key in spelling.options:
            options.append(f"{spelling.options[key]}={value}")
        elif equals and spelling.settings and not key.startswith("-"):
            options.append(f"--set={word}")
        elif spelling.becomes.startswith(("job monitor", "job check")) and _SHOWN.fullmatch(word):
            options.append(f"--show={word[1:]}")
        else:
            options.append(spelling.flags.get(word, word))
    places = [name for name in spelling.takes.split() if name not in values]
    if "window" in places and "user" in places:  # in any order, as a number is never a user name
        number = next((word for word in plain if word.isdecimal()), None)
        if number is not None:
            plain.remove(number)
            places.remove("window")
            values["window"] = number
    values.update(zip(places, plain, strict=False))
    filled = [_word(part, values) for part in spelling.becomes.split()]
    if "user" in values and "{user}" not in spelling.becomes:
        options.append(f"--user={values['user']}")
    return [*(word for word in filled if word), *plain[len(places) :], *options]


def _word(part: str, values: Mapping[str, str]) -> str:
    """Fill a part of a template; return "" if its last value is missing."""
    names = re.findall(r"\{(\w+)\}", part)
    if names and names[-1] not in values:
        return ""
    return part.format(**{name: values.get(name, "") for name in names})
