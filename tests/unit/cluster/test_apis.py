"""The APIs listed for people to enable by hand are those that bootstrap enables."""

from __future__ import annotations

import re
from pathlib import Path

from tpukit.cluster import bootstrap

ROOT = Path(__file__).parents[3]
GUIDE = (
    *("cloudbuild", "compute", "cloudresourcemanager", "iam", "container", "cloudtrace", "iamcredentials"),
    *("monitoring", "logging", "aiplatform", "config"),
)
"""APIs that Google's reference guide on TPU training on GKE enables."""


def test_services_enable_block_of_the_readme_is_what_bootstrap_enables():
    block = re.search(r"gcloud services enable \\\n(.*?)\n```", (ROOT / "terraform" / "README.md").read_text(), re.S)
    assert block
    listed = re.findall(r"^  (\w+)\.googleapis\.com(?: \\)?$", block[1], re.M)
    assert listed == list(bootstrap.APIS)
    assert set(GUIDE) <= set(listed)
