"""Write what is generated from the .tf files: the tables of each README.md, and each module's metadata.yaml.

`python terraform/readme.py` writes the files. --check only compares, and exits 1 if a file is out of date. The text
around the tables is kept. metadata.yaml has the form that Google's catalogues of Terraform modules read:
https://github.com/GoogleCloudPlatform/cloud-foundation-toolkit/tree/master/cli/bpmetadata
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent

_BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_NETWORKS = ("roles/compute.networkAdmin", "roles/compute.securityAdmin")
_ACCOUNTS = ("roles/iam.serviceAccountAdmin", "roles/resourcemanager.projectIamAdmin")
_NODES = ("roles/container.admin", "roles/iam.serviceAccountUser")
_NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "artifact_bucket": (("storage",), ("roles/storage.admin",)),
    "artifact_registry": (("artifactregistry",), ("roles/artifactregistry.admin",)),
    "cluster": (("compute", "container"), _NODES),
    "cpu_pool": (("compute", "container"), _NODES),
    "job_store": (("firestore",), ("roles/datastore.owner", "roles/resourcemanager.projectIamAdmin")),
    "network": (("compute",), _NETWORKS),
    "node_account": (("iam",), _ACCOUNTS),
    "queue_monitoring": (("logging", "monitoring"), ("roles/logging.configWriter", "roles/monitoring.editor")),
    "tensorboard": (("aiplatform",), ("roles/aiplatform.user",)),
    "tpu_pools": (("compute", "container"), ("roles/compute.instanceAdmin.v1", *_NODES)),
    "tpu_shapes": ((), ()),
    "workload_identity": (("iam",), _ACCOUNTS),
}
"""APIs and roles that applying each module takes."""
_RESOURCE = re.compile(r'^resource "(\w+)"', re.MULTILINE)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every generated file with the text it should have."""
    yield ROOT / "README.md", render(ROOT)
    for folder in _folders("modules"):
        yield folder / "README.md", render(folder)
        yield folder / "metadata.yaml", metadata(folder)


def render(folder: Path) -> str:
    """Return the folder's README with each generated part, between its markers, brought up to date."""
    page = folder / "README.md"
    text = page.read_text()
    for name, table in _tables(folder).items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{page}: the lines {begin.strip()} and {end} are missing")
        head, tail = text.split(begin, 1)[0], text.split(end, 1)[1]
        text = f"{head}{begin}{table}{end}{tail}"
    return text


def metadata(folder: Path) -> str:
    """Return the module's metadata.yaml. Its values are written as JSON, which is YAML."""
    title, summary = (" ".join(part.split()) for part in (folder / "README.md").read_text().split("\n\n")[:2])
    services, roles = _NEEDS[folder.name]
    versions = (folder / "versions.tf").read_text()
    provider = re.search(r'source  = "(.*)"\n +version = "(.*)"', versions)
    terraform = re.search(r'required_version = "(.*)"', versions)
    interfaces = {
        "variables": [_variable(name, body) for name, body in _blocks(folder, "variable")],
        "outputs": [{"name": name, "description": _text(body)} for name, body in _blocks(folder, "output")],
    }
    requirements = {
        "roles": [{"level": "Project", "roles": list(roles)}] if roles else [],
        "services": [f"{name}.googleapis.com" for name in services],
        "providerVersions": [{"source": provider[1], "version": provider[2]}] if provider else [],
    }
    tool = {"flavor": "Terraform", "version": terraform[1] if terraform else ""}
    lines = [
        "apiVersion: blueprints.cloud.google.com/v1alpha1",
        "kind: BlueprintMetadata",
        f"metadata: {json.dumps({'name': folder.name.replace('_', '-')})}",
        "spec:",
        "  info:",
        f"    title: {json.dumps(title.removeprefix('# '))}",
        f"    actuationTool: {json.dumps(tool)}",
        f"    description: {json.dumps({'tagline': summary})}",
    ]
    for name, part in (("interfaces", interfaces), ("requirements", requirements)):
        lines.append(f"  {name}:")
        for key, items in part.items():
            lines += [f"    {key}:" if items else f"    {key}: []", *(f"      - {json.dumps(item)}" for item in items)]
    return "\n".join(lines) + "\n"


def _variable(name: str, body: str) -> dict[str, object]:
    kind = re.search(r"^  type += (.*?)(?=^  \w|^  validation|\Z)", body, re.MULTILINE | re.DOTALL)
    found: dict[str, object] = {"name": name, "description": _text(body)}
    found["varType"] = " ".join(kind[1].split()) if kind else "any"
    if not re.search(r"^  default\s+= ", body, re.MULTILINE):
        return {**found, "required": True}
    try:
        return {**found, "defaultValue": json.loads(_default(body).strip("`") or "null")}
    except ValueError:
        return found  # of several lines


def _blocks(folder: Path, kind: str) -> Iterator[tuple[str, str]]:
    for found, name, body in _BLOCK.findall((folder / f"{kind}s.tf").read_text()):
        if found == kind:
            yield name, body


def _tables(folder: Path) -> dict[str, str]:
    """Return the generated parts, by the names of their markers."""
    own = {"inputs": _inputs(folder), "outputs": _outputs(folder)}
    if folder != ROOT:
        return own | {"resources": _made(folder) + "\n"}
    return own | {"apis": _apis(), "modules": _modules(), "examples": _examples()}


def _folders(name: str) -> list[Path]:
    return sorted(folder for folder in (ROOT / name).iterdir() if (folder / "main.tf").is_file())


def _apis() -> str:
    """Return the line that enables the APIs that `tpu cluster bootstrap` enables."""
    text = (ROOT.parent / "tools" / "tpukit" / "cluster" / "bootstrap.py").read_text()
    listed = re.search(r"^APIS = \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    if not listed:
        raise SystemExit("bootstrap.py has no APIS")
    names = re.findall(r'^    "(\w+)"', listed[1], re.MULTILINE)
    lines = ["gcloud services enable", *(f"  {name}.googleapis.com" for name in names)]
    return "```console\n" + " \\\n".join(lines) + "\n```\n"


def _inputs(folder: Path) -> str:
    rows = ["| Variable | What it is | Default |", "|---|---|---|"]
    for kind, name, body in _BLOCK.findall((folder / "variables.tf").read_text()):
        if kind == "variable":
            rows.append(f"| `{name}` | {_description(body)} | {_default(body)} |")
    return "\n".join(rows) + "\n"


def _outputs(folder: Path) -> str:
    rows = ["| Output | What it is |", "|---|---|"]
    for _, name, body in _BLOCK.findall((folder / "outputs.tf").read_text()):
        rows.append(f"| `{name}` | {_description(body)} |")
    return "\n".join(rows) + "\n"


def _modules() -> str:
    rows = ["| Module | Creates |", "|---|---|"]
    rows += [f"| [{folder.name}](modules/{folder.name}) | {_made(folder)} |" for folder in _folders("modules")]
    return "\n".join(rows) + "\n"


def _examples() -> str:
    rows = ["| Example | What it shows |", "|---|---|"]
    for folder in _folders("examples"):
        first = (folder / "README.md").read_text().split("\n\n")[1]
        rows.append(f"| [{folder.name}](examples/{folder.name}) | {' '.join(first.split())} |")
    return "\n".join(rows) + "\n"


def _made(folder: Path) -> str:
    kinds = [kind for file in sorted(folder.glob("*.tf")) for kind in _RESOURCE.findall(file.read_text())]
    return ", ".join(f"`{kind}`" for kind in dict.fromkeys(kinds)) or "nothing: it computes"


def _text(body: str) -> str:
    found = re.search(r'^  description = "(.*)"$', body, re.MULTILINE)
    if not found:
        raise SystemExit(f"this block has no description:\n{body}")
    return found[1].replace('\\"', '"')


def _description(body: str) -> str:
    return _text(body).replace("|", "\\|")


def _default(body: str) -> str:
    found = re.search(r"^  default\s+= (.*)$", body, re.MULTILINE)
    if not found:
        return "**required**"
    return "" if found[1] == "null" else f"`{found[1]}`"


def main() -> int:
    check, stale = "--check" in sys.argv[1:], False
    for page, wanted in pages():
        if page.is_file() and page.read_text() == wanted:
            continue
        if check:
            print(f"{page} is out of date: run `python {Path(__file__).name}` in {ROOT}", file=sys.stderr)
            stale = True
        else:
            page.write_text(wanted)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
