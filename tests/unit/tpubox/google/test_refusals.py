"""Every refusal of the sandbox's Google, and the source of its message.

PYTHONPATH=tools:tests python -m unit.tpubox.google.test_refusals    writes the table
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import discovery
from tpubox.google import APIS
from tpubox.google.wire import common_refusals, sources
from tpubox.google.wire.refusal import Source

CODE = Path(sources.__file__).parents[1]
TABLE = CODE / "REFUSALS.md"
SOURCES = {name: one for name, one in vars(sources).items() if isinstance(one, Source)}
NUMBERS = {"invalid": "400", "not_ready": "400", "not_found": "404", "exists": "409", "aborted": "409"}
HEAD = """# Refusals

Refusals of the sandbox's Google APIs, with the source of their words and shape: a page, or a report of a user.
`guess`: there is no source; `the emulator's own` are about the emulator. Written by
`tests/unit/tpubox/google/test_refusals.py`, which holds it to be true.

| where | number | words | source |
|---|---|---|---|
"""


class Row(NamedTuple):
    where: str
    number: str
    words: str
    source: str


def rows() -> Iterator[Row]:
    """Yield one row for each place in the code that refuses."""
    for file in sorted(CODE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            source = SOURCES.get(ast.unparse(called.value)) if isinstance(called, ast.Attribute) else None
            if isinstance(node, ast.Call) and source:
                yield Row(str(file.relative_to(CODE).with_suffix("")), *_told(node), source.address)
    for permission, (source, words) in sorted(common_refusals.PERMISSIONS.items()):
        yield Row(f"permissions of {permission}", "403", words, source.address)
    for refused in (common_refusals.bad_request([("", "{problems}")]), common_refusals.unknown_parameters(["{name}"])):
        yield Row("common_refusals", str(refused.code), refused.message, refused.source)


def _told(call: ast.Call) -> tuple[str, str]:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "refused":
        return ast.unparse(call.args[0]), _words(call.args[1])
    return NUMBERS[call.func.attr], _words(call.args[0])


def _words(node: ast.expr) -> str:
    """Return the text of a message, with placeholders in braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_words, node.values))
    if isinstance(node, ast.Constant):
        return str(node.value)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    return "{" + ast.unparse(inner) + "}"


def table() -> str:
    lines = sorted({tuple(one.replace("|", "\\|").replace("\n", " ") for one in row) for row in rows()})
    return HEAD + "".join(f"| {where} | {number} | `{words}` | {source} |\n" for where, number, words, source in lines)


def test_every_refusal_says_where_it_is_known_from():
    """By its type, a Source creates no refusal without a source; no other code may create one."""
    makers = {
        file.stem
        for file in CODE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Refused"
    }
    assert makers == {"refusal"}


@pytest.mark.parametrize("name", SOURCES)
def test_source_is_a_page_or_says_that_there_is_none(name: str):
    address = SOURCES[name].address
    assert address.startswith("https://") or address in ("guess", "the emulator's own")


def test_sources_are_all_needed():
    assert {one.address for one in SOURCES.values()} == {row.source for row in rows()}


def test_table_of_refusals_is_as_the_code_has_it():
    assert TABLE.read_text() == table(), (
        "PYTHONPATH=tools:tests python -m unit.tpubox.google.test_refusals writes it anew"
    )


@pytest.mark.parametrize("api", [api for api in APIS if api.document], ids=lambda api: str(api.name))
def test_api_is_called_in_refusals_as_its_document_calls_it(api):
    document = discovery._document(api.document, api.versions[0])
    assert document and api.title == document["title"]


@pytest.mark.parametrize(
    ("permission", "resource", "words"),
    [
        ("compute.networks.create", "projects/p/n", "Required 'compute.networks.create' permission for 'projects/p/n'"),
        ("container.clusters.list", "projects/p", 'Required "container.clusters.list" permission(s) for "projects/p".'),
        ("tpu.nodes.get", "projects/p/nodes/vm", "Permission 'tpu.nodes.get' denied on 'projects/p/nodes/vm'"),
        (
            "storage.objects.get",
            "projects/_/buckets/b/objects/o",
            "me@p does not have storage.objects.get access to the Google Cloud Storage object. Permission "
            "'storage.objects.get' denied on resource (or it may not exist).",
        ),
        (
            "iam.roles.get",
            "projects/p",
            "Permission 'iam.roles.get' denied on resource 'projects/p' (or it may not exist).",
        ),
    ],
)
def test_missing_permission_is_refused_in_the_words_of_its_api(permission: str, resource: str, words: str):
    assert common_refusals.permission_denied("serviceAccount:me@p", permission, resource).message == words


if __name__ == "__main__":
    TABLE.write_text(table())
