"""Errors, hints and help texts are plain technical English with named subjects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from support.modules import TOOLS, name, packages
from tpukit.core.quantities import counted

MODULES = [path for path in TOOLS.glob("tpu*/**/*.py") if path.relative_to(TOOLS).parts[:2] != ("tpubox", "google")]
SPEAKERS = {
    *("Invalid", "NotFound", "Conflict", "Denied", "Transient", "NotYet", "Problem", "NoCapacity", "TpukitError"),
    *("Unauthenticated", "HostKeyChanged", "Disagreement", "UsageError", "BadParameter", "ClickException"),
    *("echo", "say", "_say", "confirm", "prompt", "complain", "refuse"),
}
"""Calls whose texts people read."""
NAMES = {"hint", "words", "why", "question"}
BANNED = re.compile(
    r"\b(?:nobody|somebody|whoever|anew|again and again|mend(?:s|ed|ing)?|unless told|for ever"
    r"|(?:could|may|can) ?not be had|on purpose|ended well|any more|made again|not say whose|short for nothing"
    r"|who asks|(?:say|says) who you are|goes on (?:from|without)|told to leave|call it again|say it again|without us"
    r"|the words are|unasked|all the same|gives? (?:it|them) back|hears of|lets you read|is away|comes and goes)\b"
    r"|\bbegun otherwise|(?<!there )(?<!There )\b(?:is|are) no (?!longer\b|such\b)[a-zA-Z]+",
    re.IGNORECASE,
)


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "WORD" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def messages(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            spoken = [one.value for one in node.keywords if called in SPEAKERS or one.arg in ("hint", "help")]
            values = [*(node.args if called in SPEAKERS else ()), *spoken]
        elif isinstance(node, ast.Assign) and any(getattr(one, "id", "") in NAMES for one in node.targets):
            values = [node.value]
        for value in values:
            parts = {id(part) for one in ast.walk(value) if isinstance(one, ast.JoinedStr) for part in one.values}
            yield from (text_of(one) for one in ast.walk(value) if id(one) not in parts and text_of(one))


@packages(MODULES)
def test_messages_use_the_words_of_the_field(modules: list[Path]) -> None:
    assert [(name(path), text) for path in modules for text in messages(path) if BANNED.search(text)] == []


COUNTED = re.compile(
    r" (?:more |active |other )?(?:jobs|TPU VMs|TPUs|workers|samples|streams|shards|problems|times|steps|batches|days"
    r"|attempts|resources|values|records|things|errors|windows|slices|processes|pods|hosts|chips)\b(?!/)"
)
ALWAYS_MANY = re.compile(
    r"len\(devices\)|\bhosts\b.*not|shape\.hosts|slice\.hosts|machine\.hosts|node\.hosts|[A-Z_]{4,}"
)
"""Numbers that appear in messages only when greater than one, and constants."""


NEVER_ONE = {
    *("tpukit/catalogue/__init__.py", "tpukit/drill/page.py", "tpukit/jobs/rules.py", "tpukit/cluster/checks.py"),
    *("tpukit/fleet/decide.py", "tpukit/jobs/spec/fleet.py", "tpukit/jobs/spec/job.py", "tpukit/teams/naming.py"),
    "tpubox/kubelet/tpu_environment.py",
}
"""Modules whose numbers are limits or sizes above one; one of them repeats Google's own words."""


def miscounted(path: Path) -> Iterator[str]:
    """Yield texts with a number and a plural noun, where no condition handles the number 1."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    chosen = {id(node.orelse) for node in ast.walk(tree) if isinstance(node, ast.IfExp)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr) or id(node) in chosen:
            continue
        for number, (value, noun) in enumerate(pairwise(node.values)):
            before = node.values[number - 1] if number else None
            share = isinstance(before, ast.Constant) and str(before.value).endswith((" of ", "more than ", "the "))
            follows = isinstance(noun, ast.Constant) and COUNTED.match(str(noun.value))
            if isinstance(value, ast.FormattedValue) and follows and not share:
                text = ast.unparse(node)
                if not ALWAYS_MANY.search(text):
                    yield text


@packages(MODULES)
def test_messages_count_one_of_a_thing_in_the_singular(modules: list[Path]) -> None:
    may_be_one = [path for path in modules if str(path.relative_to(TOOLS)) not in NEVER_ONE]
    assert [(name(path), text) for path in may_be_one for text in miscounted(path)] == []


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 TPU VMs"), (1, "1 TPU VM"), (2, "2 TPU VMs"), (1_200, "1200 TPU VMs")]
)
def test_counted_says_one_of_a_thing_in_the_singular(number: int, text: str) -> None:
    assert counted(number, "TPU VM") == text
    assert counted(number, "batch is", "batches are") == f"{number} {'batch is' if number == 1 else 'batches are'}"


TIMES = re.compile(r"^(?:at|created|ended|started|began|seen|updated|ends|deadline|not_before|(?!resumed)[a-z]+_at)$")
"""Names of attributes that hold seconds since the epoch."""


def epochs(path: Path) -> Iterator[str]:
    """Yield texts that contain a time as its number of seconds."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FormattedValue):
            value = node.value
            if isinstance(value, ast.Attribute) and TIMES.match(value.attr):
                yield ast.unparse(node)


@packages(MODULES)
def test_messages_hold_times_and_not_numbers_of_seconds(modules: list[Path]) -> None:
    assert [(name(path), text) for path in modules for text in epochs(path)] == []
