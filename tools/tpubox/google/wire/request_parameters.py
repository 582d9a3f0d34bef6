"""Generator of `parameters.json`: the query parameters of each route.

    python -m tpubox.google.wire.request_parameters FOLDER    writes it

FOLDER holds Google's discovery documents, as for `fields.json`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tpubox.google import APIS
from tpubox.google.wire.api import Api
from tpubox.google.wire.request_fields import discovery_document

FILE = Path(__file__).with_name("parameters.json")


def gather(folder: Path, apis: Iterable[Api] = APIS) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the parameters by API, version and route."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for api in apis:
        for version in sorted(api.versions) if api.document else ():
            if routes := _routes(api, version, discovery_document(folder, api, version)):
                found.setdefault(api.name, {})[version] = dict(sorted(routes.items()))
    return dict(sorted(found.items()))


def _routes(api: Api, version: str, document: dict[str, Any]) -> dict[str, list[str]]:
    # The longest path first: the most specific of several matches.
    every = sorted(_methods(document), key=lambda one: -len(one[1]))
    found = {}
    for verb, routes in api.routes.items():
        for route in routes:
            path = f"{version}/{re.sub(r'{[a-z]+[+]?}', 'x', route.path)}"
            asked = f"{api.name}/{path}" if api.own_front else path
            for method, form, parameters in every:
                words = re.split(r"\{[^}]*\}", form)
                if method == verb and re.fullmatch("[^/:]+".join(map(re.escape, words)), asked):
                    found[f"{verb} {route.path}"] = parameters
                    break
    return found


def _methods(document: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    waiting = [document]
    while waiting:
        one = waiting.pop()
        waiting += one.get("resources", {}).values()
        for method in one.get("methods", {}).values():
            query = [name for name, what in method.get("parameters", {}).items() if what["location"] == "query"]
            yield method["httpMethod"], document["servicePath"] + method.get("flatPath", method["path"]), sorted(query)


def document(folder: Path) -> str:
    """Return the text of `parameters.json`: one route per line."""
    apis = []
    for api, versions in gather(folder).items():
        parts = []
        for version, routes in versions.items():
            lines = ",\n".join(f"      {json.dumps(route)}: {json.dumps(names)}" for route, names in routes.items())
            parts.append(f"    {json.dumps(version)}: {{\n{lines}\n    }}")
        apis.append(f"  {json.dumps(api)}: {{\n" + ",\n".join(parts) + "\n  }")
    return "{\n" + ",\n".join(apis) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(document(Path(sys.argv[1])), encoding="utf-8")
