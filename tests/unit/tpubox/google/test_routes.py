"""Every route of the sandbox's Google, and the source that documents it.

PYTHONPATH=tools:tests python -m unit.tpubox.google.test_routes    writes the table
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from support import discovery
from tpubox.google import APIS
from tpubox.google.wire.api import Api

TABLE = Path(__file__).parents[4] / "tools" / "tpubox" / "google" / "ROUTES.md"
UPLOADS = "https://cloud.google.com/storage/docs/resumable-uploads"
ELSEWHERE = {
    "GET /storage/v1/b/{bucket}/anywhereCaches/": "the Terraform provider asks so before it deletes a bucket",
    "POST /upload/storage/v1/b/{bucket}/o": UPLOADS,
    "PUT /upload/storage/v1/b/{bucket}/o": UPLOADS,
    "DELETE /upload/storage/v1/b/{bucket}/o": UPLOADS,
    "POST /resumable/upload/storage/v1/b/{bucket}/o": UPLOADS,
    "PUT /resumable/upload/storage/v1/b/{bucket}/o": UPLOADS,
    "GET /download/storage/v1/b/{bucket}/o/{object}": "https://cloud.google.com/storage/docs/json_api/v1/objects/get",
    "GET /{bucket}/{object}": "https://cloud.google.com/storage/docs/xml-api/get-object-download",
    "HEAD /{bucket}/{object}": "https://cloud.google.com/storage/docs/xml-api/head-object",
}
"""Routes without a discovery document, and their sources."""
HEAD = """# Routes

What the sandbox's Google answers, and who says that Google answers it: a method of one of Google's discovery documents,
or a page. Written by `tests/unit/tpubox/google/test_routes.py`, which holds it to be true.

| route | source |
|---|---|
"""


def routes(apis: Iterable[Api] = APIS) -> Iterator[tuple[str, str]]:
    """Yield each route with its source; an empty source means unknown."""
    for api in apis:
        for method, every in api.routes.items():
            for route in every:
                path = re.sub(r"\(\?P<(\w+)>(\[\^/:\]\+|\.\+)\)", r"{\1}", route.pattern.pattern).replace("\\", "")
                version, source = _documented(api, method, path)
                text = f"{method} /" + "/".join(word for word in (api.name, version, path) if word)
                yield text, source or ELSEWHERE.get(text, "")


def _documented(api: Api, method: str, path: str) -> tuple[str, str]:
    """Return the version of the API that has the route, and the method in its document."""
    if not api.document:
        return "", ""
    for version in api.versions:
        asked = re.sub(r"\{\w+\}", "x", f"{api.name}/{version}/{path}")
        if found := discovery.documented(method, asked):
            return version, f"{api.document} {version}: `{found['id']}`"
    return api.versions[0], ""


def table() -> str:
    rows = sorted((route.partition(" /")[2], route.partition(" ")[0], source) for route, source in routes())
    return HEAD + "".join(f"| `{method} /{path}` | {source} |\n" for path, method, source in rows)


def test_every_route_of_the_sandbox_is_one_of_googles():
    assert [route for route, source in routes() if not source] == []


def test_sources_that_are_no_document_are_all_needed():
    assert {route for route, source in routes() if source in ELSEWHERE.values()} == set(ELSEWHERE)


def test_table_of_routes_is_as_the_code_has_it():
    assert TABLE.read_text() == table(), (
        "PYTHONPATH=tools:tests python -m unit.tpubox.google.test_routes writes it anew"
    )


NODE = "tpu/v2/projects/p/locations/us-central2-b/nodes/vm"
OPERATION = "tpu/v2/projects/p/locations/us-central2-b/operations/one"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (NODE, {"colour": "red"}),
        (NODE, {"state": "SLEEPING"}),
        (NODE, {"health": 3}),
        (NODE, {"id": 12}),
        (NODE, {"createTime": "yesterday"}),
        (NODE, {"labels": {"a": 1}}),
        (NODE, {"networkEndpoints": [{"ipAddress": "10.0.0.1", "gate": 1}]}),
        (OPERATION, {"error": {"code": 429}}),
        (OPERATION, {"metadata": {"@type": "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata", "who": "x"}}),
        (OPERATION, {"response": {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", "state": 1}}),
        ("tpu/v2/projects/p/locations/us-central2-b/chairs", {}),
        ("tpu/v9/projects/p/locations/us-central2-b/nodes", {}),
    ],
)
def test_answer_that_google_could_not_give_is_a_problem(path: str, body: dict[str, object]):
    assert discovery.problems("GET", path, body)


def test_answer_that_google_could_give_is_no_problem():
    node = {"state": "READY", "id": "12", "createTime": "2026-01-02T03:04:05.678Z", "labels": {"a": "b"}}
    message = {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", **node}
    assert discovery.problems("GET", NODE, node) == []
    assert discovery.problems("GET", OPERATION, {"done": True, "response": message}) == []


if __name__ == "__main__":
    TABLE.write_text(table())
