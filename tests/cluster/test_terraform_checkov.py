"""Terraform, Cloud Build files and the Dockerfile, checked by checkov. Waivers are in the files with their reasons."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def checkov(*words: str | Path) -> dict[str, int]:
    """Return the counts of passed, failed and waived checks. Failed checks fail the test with their names."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("checkov", path=places)
    if program is None:
        pytest.fail("checkov is not on PATH: pip install -r tools/checkov.txt, in an environment of its own")
    line = [program, *words, "--skip-download", "--output", "json"]
    reports = json.loads(subprocess.run(line, capture_output=True, text=True, cwd=ROOT).stdout)
    totals = {"passed": 0, "failed": 0, "skipped": 0, "parsing_errors": 0}
    for report in reports if isinstance(reports, list) else [reports]:
        summary = report.get("summary", report)
        for name in totals:
            totals[name] += summary[name]
        for check in report.get("results", {}).get("failed_checks", []):
            pytest.fail(f"{check['check_id']} {check['check_name']}: {check['resource']}")
    return totals


def test_checkov_finds_nothing_in_terraform():
    waivers = [
        waiver
        for path in (ROOT / "terraform").rglob("*.tf")
        for waiver in re.findall(r"checkov:skip=\w+:?(.*)", path.read_text())
    ]
    assert all(len(reason) > 30 for reason in waivers)
    found = checkov("--directory", ROOT / "terraform", "--framework", "terraform")
    assert found["passed"] > 50
    # At least one for the root module; the examples call the same modules again.
    assert found["skipped"] >= len(waivers)
    assert found["failed"] == found["parsing_errors"] == 0


def test_checkov_finds_nothing_in_cloud_build():
    found = checkov("--file", "cloudbuild.provision.yaml", "cloudbuild.destroy.yaml")
    assert found["failed"] == found["parsing_errors"] == 0


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/serve/Dockerfile", "deploy/queue/Dockerfile"])
def test_checkov_finds_nothing_in_the_dockerfile(file):
    found = checkov("--file", file, "--framework", "dockerfile")
    assert found["passed"] > 3
    assert (found["failed"], found["parsing_errors"], found["skipped"]) == (0, 0, 1)
