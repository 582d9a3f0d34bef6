"""Writes the tables of README.md from the .tf files beside it: `python terraform/readme.py`; --check only compares."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"

_BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_RESOURCE = re.compile(r'^resource "(\w+)"', re.MULTILINE)


def tables() -> dict[str, str]:
    """The generated parts, by the name that their markers carry."""
    return {"apis": _apis(), "inputs": _inputs(), "outputs": _outputs(), "modules": _modules()}


def render(text: str) -> str:
    """README with every generated part brought up to date; what lies between the markers is replaced."""
    for name, table in tables().items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{README}: the lines {begin.strip()} and {end} are missing")
        head, tail = text.split(begin, 1)[0], text.split(end, 1)[1]
        text = f"{head}{begin}{table}{end}{tail}"
    return text


def _apis() -> str:
    """The line that turns on what `tpu cluster bootstrap` turns on."""
    text = (HERE.parent / "tools" / "tpukit" / "infra" / "bootstrap.py").read_text()
    listed = re.search(r"^APIS = \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    if not listed:
        raise SystemExit("bootstrap.py has no APIS")
    names = re.findall(r'^    "(\w+)"', listed[1], re.MULTILINE)
    lines = ["gcloud services enable", *(f"  {name}.googleapis.com" for name in names)]
    return "```console\n" + " \\\n".join(lines) + "\n```\n"


def _inputs() -> str:
    rows = ["| Variable | What it is | Default |", "|---|---|---|"]
    for kind, name, body in _BLOCK.findall((HERE / "variables.tf").read_text()):
        if kind == "variable":
            rows.append(f"| `{name}` | {_description(body)} | {_default(body)} |")
    return "\n".join(rows) + "\n"


def _outputs() -> str:
    rows = ["| Output | What it is |", "|---|---|"]
    for _, name, body in _BLOCK.findall((HERE / "outputs.tf").read_text()):
        rows.append(f"| `{name}` | {_description(body)} |")
    return "\n".join(rows) + "\n"


def _modules() -> str:
    rows = ["| Module | Creates |", "|---|---|"]
    for folder in sorted((HERE / "modules").iterdir()):
        kinds = _RESOURCE.findall((folder / "main.tf").read_text())
        made = ", ".join(f"`{kind}`" for kind in dict.fromkeys(kinds)) or "nothing: it computes"
        rows.append(f"| [{folder.name}](modules/{folder.name}) | {made} |")
    return "\n".join(rows) + "\n"


def _description(body: str) -> str:
    found = re.search(r'^  description = "(.*)"$', body, re.MULTILINE)
    if not found:
        raise SystemExit(f"this block has no description:\n{body}")
    return found[1].replace('\\"', '"').replace("|", "\\|")


def _default(body: str) -> str:
    found = re.search(r"^  default\s+= (.*)$", body, re.MULTILINE)
    if not found:
        return "**required**"
    return "" if found[1] == "null" else f"`{found[1]}`"


def main() -> int:
    text = README.read_text()
    wanted = render(text)
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print(f"{README} is out of date: run `python {Path(__file__).name}` in {HERE}", file=sys.stderr)
            return 1
    else:
        README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
