"""Documentation checks: links resolve, commands exist, job files load, things have one name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner
from markdown_it.token import Token

from support.page_commands import PAGES, ROOT, tokens
from tpukit.cli import command
from tpukit.jobs import spec

LESSONS = [
    path for path in PAGES if path.parent == ROOT or ROOT / "examples" in path.parents
]  # pages that users type from

pages = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
lessons = pytest.mark.parametrize("page", LESSONS, ids=lambda path: str(path.relative_to(ROOT)))


def inline(page: Path) -> Iterator[Token]:
    for token in tokens(page):
        yield from token.children or ()


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub gives to headings: the second of two equal ones gets -1."""
    found: list[str] = []
    for before, token in pairwise(tokens(page)):
        if before.type == "heading_open":
            text = "".join(child.content for child in token.children or ())
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            same = sum(1 for other in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", other))
            found.append(f"{name}-{same}" if same else name)
    return frozenset(found)


@pages
def test_page_links_lead_somewhere(page: Path) -> None:
    targets = [str(token.attrs.get("href") or token.attrs.get("src") or "") for token in inline(page) if token.attrs]
    dead = []
    for target in targets:
        if re.match(r"https://|mailto:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.is_relative_to(ROOT) or not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


def fences(page: Path, *languages: str) -> list[str]:
    return [token.content for token in tokens(page) if token.type == "fence" and token.info.strip() in languages]


def typed(page: Path) -> list[list[str]]:
    """Return the commands that a page tells people to type, as words; each part of a pipe or chain is one."""
    found = []
    for block in fences(page, "console", "sh", "bash"):
        lines = block.replace("\\\n", " ").splitlines()
        prompted = any(line.startswith("$ ") for line in lines)
        for line in lines:
            if prompted and not line.startswith("$ "):
                continue  # output of a command
            lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            for ends, words in groupby(lexer, key=lambda word: set(word) <= set("|&;<>()")):
                if not ends:
                    found.append(list(words))
    return found


@lessons
def test_lesson_tpu_commands_are_understood(page: Path) -> None:
    misunderstood = []
    for words in typed(page):
        in_shell = words[1:3] == ["sandbox", "shell"] and len(words) > 3
        program, *arguments = words[3:] if in_shell else words
        if program.rpartition("/")[2] == "tpu":
            done = CliRunner().invoke(command, [*arguments, "--help"])
            if done.exit_code:
                misunderstood.append(f"tpu {shlex.join(arguments)}: {done.output}")
    assert misunderstood == []


@lessons
def test_lesson_commands_that_change_nothing_work(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands that only print or are dry runs, with the page's own job file as job.yaml."""
    jobs = [text for text in fences(page, "yaml") if re.search(r"^tpu:", text, re.MULTILINE)]
    (tmp_path / "job.yaml").write_text(jobs[0] if jobs else "", encoding="utf-8")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TPUKIT_SETTINGS", str(tmp_path / "settings.yaml"))
    failed = []
    for program, *words in typed(page):
        harmless = words[:2] in (["job", "render"], ["job", "schema"]) or (
            words[:1] == ["run"] and "--dry-run" in words
        )
        if program == "tpu" and harmless:
            done = CliRunner().invoke(command, [str(tmp_path / word) if word == "job.yaml" else word for word in words])
            if done.exit_code:
                failed.append(f"tpu {shlex.join(words)}: {done.exception}")
    assert failed == []


@lessons
def test_lesson_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    wanted = {word for program, *words in typed(page) if program == "make" for word in words if "=" not in word}
    assert wanted <= targets


@lessons
def test_lesson_files_of_the_checkout_exist(page: Path) -> None:
    tops = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    named = {word for words in typed(page) for word in words if "/" in word and word.split("/")[0] in tops}
    assert [word for word in sorted(named) if not (ROOT / word.partition(":")[0]).exists()] == []  # FILE.py:NAME is one


@lessons
def test_lesson_job_files_load(page: Path) -> None:
    for text in fences(page, "yaml"):
        if re.search(r"^tpu:", text, re.MULTILINE):
            spec.loads(text, page.name)


@pytest.mark.parametrize(
    "example", sorted(path.parent for path in ROOT.glob("examples/*/job.yaml")), ids=lambda p: p.name
)
def test_example_has_a_page_and_a_job_that_loads(example: Path) -> None:
    spec.load(example / "job.yaml")
    assert (example / "README.md").is_file()


OTHER_NAMES = {r"workers?": "host", r"nodepools?": "pool", r"tenants?": "team", r"retries": "attempts"}


@pages
def test_page_calls_things_by_their_names(page: Path) -> None:
    text = "\n".join(token.content for token in inline(page) if token.type == "text")
    found = {
        match[0]: name for other, name in OTHER_NAMES.items() for match in re.finditer(rf"\b(?:{other})\b", text, re.I)
    }
    assert found == {}


def test_decisions_are_all_listed() -> None:
    folder = ROOT / "tools" / "decisions"
    listed = {str(token.attrs["href"]) for token in inline(folder / "README.md") if "href" in token.attrs}
    assert listed == {path.name for path in folder.glob("*.md")} - {"README.md"}


def test_changelog_keeps_its_form() -> None:
    headings = [
        (before.tag, token.content)
        for before, token in pairwise(tokens(ROOT / "CHANGELOG.md"))
        if before.type == "heading_open"
    ]
    assert headings[:2] == [("h1", "Changelog"), ("h2", "[Unreleased]")]
    releases = [text for tag, text in headings[2:] if tag == "h2"]
    assert [text for text in releases if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", text)] == []
    numbers = [tuple(map(int, re.findall(r"\d+", text)[:3])) for text in releases]
    assert numbers == sorted(numbers, reverse=True)
    kinds = {text for tag, text in headings if tag == "h3"}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
