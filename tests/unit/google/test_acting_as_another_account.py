"""Google's clients act as the account in Application Default Credentials, such as one that a person impersonates."""

from __future__ import annotations

import json

import pytest

from tpukit.google import gke
from tpukit.google.clients import TOKEN

LINE = (
    "gcloud auth application-default login "
    "--impersonate-service-account tpu-provisioner@my-project.iam.gserviceaccount.com"
)
"""The command that writes the credentials of these tests. It opens a browser, so the tests write them."""
ACCOUNT = LINE.rpartition(" ")[2]
URL = f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"
PERSON = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}


@pytest.fixture
def signed_in(tmp_path, monkeypatch):
    """Return the credentials of the provisioner's client on a machine with this file."""
    for name in (TOKEN, gke.ENDPOINT, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))

    def credentials(document):
        (tmp_path / "application_default_credentials.json").write_text(json.dumps(document))
        return gke.Client("my-project", "us-central2", "my-cluster")._client.transport._credentials

    return credentials


def test_client_acts_as_the_account_that_a_person_impersonates(signed_in):
    made = {"type": "impersonated_service_account", "service_account_impersonation_url": URL, "delegates": []}
    assert signed_in({**made, "source_credentials": PERSON}).service_account_email == ACCOUNT


def test_client_does_not_act_as_the_account_of_gclouds_settings(signed_in, tmp_path):
    (tmp_path / "configurations").mkdir()
    (tmp_path / "active_config").write_text("default")
    (tmp_path / "configurations" / "config_default").write_text(f"[auth]\nimpersonate_service_account = {ACCOUNT}\n")
    assert not hasattr(signed_in(PERSON), "service_account_email")
