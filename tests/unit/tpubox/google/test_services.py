"""Service Usage of the emulator: its list of APIs, and those that are enabled and disabled together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.google_world import PROJECT, World

SERVICES = f"service_usage/v1/projects/{PROJECT}/services"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture
def new(tmp_path: Path) -> Iterator[World]:
    """Yield a project with few APIs enabled."""
    with World(tmp_path, enabled=("serviceusage", "cloudapis", "cloudtrace")) as made:
        yield made


def enabled(world: World) -> set[str]:
    listed = world.ask("GET", SERVICES, filter="state:ENABLED", pageSize="200")["services"]
    return {one["config"]["name"].partition(".")[0] for one in listed}


def test_service_that_others_need_is_not_disabled_and_the_refusal_names_them(world):
    status, answer = world.send("POST", f"{SERVICES}/compute.googleapis.com:disable", {})
    error = answer["error"]
    assert (status, error["status"]) == (400, "FAILED_PRECONDITION")
    assert error["message"] == (
        "The service compute.googleapis.com is depended on by the following active service(s): "
        "container.googleapis.com,tpu.googleapis.com; Please specify disable_dependent_services=true if you want to "
        "proceed with disabling all services."
    )
    failure, info = error["details"]
    subject = (
        "?error_code=100001&service_name=compute.googleapis.com&services=container.googleapis.com,tpu.googleapis.com"
    )
    assert failure["violations"] == [{"type": "googleapis.com", "subject": subject}]
    assert info["reason"] == "COMMON_SU_SERVICE_HAS_DEPENDENT_SERVICES"
    assert "compute" in enabled(world)


def test_service_is_disabled_with_all_that_need_it_when_told_so(world):
    before = enabled(world)
    world.ask("POST", f"{SERVICES}/compute.googleapis.com:disable", {"disableDependentServices": True})
    assert before - enabled(world) == {"compute", "container", "tpu"}


def test_service_whose_dependents_are_off_is_disabled_by_itself(world):
    for name in ("container", "tpu", "compute"):
        world.ask("POST", f"{SERVICES}/{name}.googleapis.com:disable", {})
    assert not enabled(world) & {"container", "tpu", "compute"}


def test_service_of_a_new_project_that_its_bundle_needs_is_not_disabled(new):
    assert "cloudapis.googleapis.com" in new.refusal("POST", f"{SERVICES}/cloudtrace.googleapis.com:disable", {})[2]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/container.googleapis.com:enable", {}), (":batchEnable", {"serviceIds": ["container.googleapis.com"]})],
)
def test_service_comes_with_those_that_it_needs(new, path, body):
    before = enabled(new)
    operation = new.ask("POST", f"{SERVICES}{path}", body)
    assert enabled(new) - before == {"container", "compute"}
    assert [one.rpartition("/")[2] for one in operation["metadata"]["resourceNames"]] == ["container.googleapis.com"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/nonsense.googleapis.com", None),
        ("POST", "/nonsense.googleapis.com:enable", {}),
        ("POST", "/nonsense.googleapis.com:disable", {}),
        ("POST", ":batchEnable", {"serviceIds": ["compute.googleapis.com", "nonsense.googleapis.com"]}),
    ],
)
def test_service_that_does_not_exist_is_refused_as_one_that_is_not_allowed(new, method, path, body):
    before = enabled(new)
    status, word, text = new.refusal(method, f"{SERVICES}{path}", body)
    assert (status, word) == (403, "PERMISSION_DENIED")
    assert text == "Not found or permission denied for service(s): nonsense.googleapis.com."
    assert enabled(new) == before


@pytest.mark.parametrize("count", [0, 21])
def test_batch_of_none_or_of_more_than_twenty_is_refused(new, count):
    body = {"serviceIds": ["compute.googleapis.com"] * count}
    assert new.refusal("POST", f"{SERVICES}:batchEnable", body)[:2] == (400, "INVALID_ARGUMENT")


def test_service_that_was_used_lately_is_not_disabled_when_that_is_to_be_looked_at(world):
    nodes, path = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes", f"{SERVICES}/tpu.googleapis.com:disable"
    world.ask("GET", nodes)
    assert world.refusal("POST", path, {"checkIfServiceHasUsage": "CHECK"})[1] == "FAILED_PRECONDITION"
    world.pass_time(31 * 86400)
    world.ask("POST", path, {"checkIfServiceHasUsage": "CHECK"})
    assert "tpu" not in enabled(world)


@pytest.mark.parametrize("body", [{}, {"checkIfServiceHasUsage": "SKIP"}])
def test_service_that_was_used_lately_is_disabled_when_nobody_looks(world, body):
    world.ask("GET", f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes")
    world.ask("POST", f"{SERVICES}/tpu.googleapis.com:disable", body)
    assert "tpu" not in enabled(world)
