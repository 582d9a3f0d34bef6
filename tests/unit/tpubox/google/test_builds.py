"""Builds of images: refusals of Cloud Build before the start, failures during a build, and its results."""

from __future__ import annotations

import io
import tarfile

import pytest

from support.google_world import PROJECT, World

BUILDS = f"cloud_build/v1/projects/{PROJECT}/locations/global/builds"
REPOSITORIES = f"artifact_registry/v1/projects/{PROJECT}/locations/us-central1/repositories"
EMAIL = f"tpu-image-build@{PROJECT}.iam.gserviceaccount.com"
ACCOUNT = f"projects/{PROJECT}/serviceAccounts/{EMAIL}"
IMAGE = f"us-central1-docker.pkg.dev/{PROJECT}/images/train:1"


def archive(*names: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as opened:
        for name in names:
            opened.addfile(tarfile.TarInfo(name), io.BytesIO())
    return made.getvalue()


def build(**changes: object) -> dict[str, object]:
    step = {"name": "gcr.io/cloud-builders/docker", "args": ["build", "-t", IMAGE, "."]}
    asked = {
        "steps": [step],
        "images": [IMAGE],
        "source": {"storageSource": {"bucket": "source", "object": "code.tgz"}},
        "serviceAccount": ACCOUNT,
        "options": {"logging": "CLOUD_LOGGING_ONLY"},
        **changes,
    }
    return {key: value for key, value in asked.items() if value is not None}


@pytest.fixture
def world(tmp_path):
    with World(tmp_path) as made:
        made.ask("POST", "storage/v1/b", {"name": "source", "location": "US"}, project=PROJECT)
        made.ask("POST", "upload/storage/v1/b/source/o", archive("Dockerfile"), uploadType="media", name="code.tgz")
        made.ask("POST", REPOSITORIES, {"format": "DOCKER"}, repositoryId="images")
        made.ask("POST", f"iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "tpu-image-build"})
        grant(made, "roles/storage.objectViewer", "roles/artifactregistry.writer")
        yield made


def grant(world: World, *roles: str) -> None:
    bindings = [{"role": role, "members": [f"serviceAccount:{EMAIL}"]} for role in roles]
    world.ask("POST", f"resource_manager/v1/projects/{PROJECT}:setIamPolicy", {"policy": {"bindings": bindings}})


def ended(world: World, **changes: object) -> dict[str, object]:
    started = world.ask("POST", BUILDS, build(**changes))
    return world.ask("GET", f"{BUILDS}/{started['metadata']['build']['id']}")


def images(world: World) -> list[dict[str, object]]:
    return world.ask("GET", f"{REPOSITORIES}/images/dockerImages")["dockerImages"]


def test_build_pushes_its_image_under_a_digest_that_follows_from_the_source(world):
    done = ended(world)
    assert done["status"] == "SUCCESS"
    (built,) = done["results"]["images"]
    (stored,) = images(world)
    assert stored["uri"] == f"us-central1-docker.pkg.dev/{PROJECT}/images/train@{built['digest']}"
    assert stored["tags"] == ["1"]
    assert ended(world)["results"]["images"] == [built]


def test_build_with_an_account_and_no_word_about_its_log_is_refused_as_google_does(world):
    code, status, text = world.refusal("POST", BUILDS, build(options=None))
    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert "if 'build.service_account' is specified, the build must either" in text


def test_build_as_an_account_that_is_not_there_is_refused(world):
    missing = ACCOUNT.replace("tpu-image-build", "nobody-here")
    assert world.refusal("POST", BUILDS, build(serviceAccount=missing))[0] == 404


def test_build_with_an_unknown_field_is_refused(world):
    assert "Unknown name" in world.refusal("POST", BUILDS, build(stepz=[]))[2]


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        (("roles/artifactregistry.writer",), "does not have storage.objects.get access"),
        (("roles/storage.objectViewer",), 'Permission "artifactregistry.repositories.uploadArtifacts" denied'),
    ],
)
def test_build_whose_account_lacks_a_role_fails_and_pushes_nothing(world, roles, said):
    grant(world, *roles)
    done = ended(world)
    assert done["status"] == "FAILURE"
    assert said in done["statusDetail"]
    assert images(world) == []


def test_build_needs_three_permissions_which_a_role_of_the_project_can_give_and_no_less(world):
    needed = ["artifactregistry.repositories.uploadArtifacts", "logging.logEntries.create", "storage.objects.get"]
    own = f"projects/{PROJECT}/roles/builds"
    asked = {"roleId": "builds", "role": {"title": "b", "stage": "GA", "includedPermissions": needed}}
    world.ask("POST", f"iam/v1/projects/{PROJECT}/roles", asked)
    grant(world, own)
    done = ended(world)
    assert (done["status"], done.get("warnings")) == ("SUCCESS", None)
    record = world.cloud.requests(agent="^cloud-build$")
    assert sorted(permission for one in record for permission in one["permissions"]) == needed
    assert {one["principal"] for one in record} == {f"serviceAccount:{EMAIL}"}


def test_build_prints_into_cloud_logging_where_its_account_may_write(world):
    query = {"resourceNames": [f"projects/{PROJECT}"], "filter": 'resource.type="build"'}
    assert "does not have permission to write logs" in ended(world)["warnings"][0]["text"]
    assert world.ask("POST", "logging/v2/entries:list", query) == {}
    grant(world, "roles/storage.objectViewer", "roles/artifactregistry.writer", "roles/logging.logWriter")
    done = ended(world)
    texts = [one["textPayload"] for one in world.ask("POST", "logging/v2/entries:list", query)["entries"]]
    assert texts == ["PUSH", f"{IMAGE}: digest: {done['results']['images'][0]['digest']}", "DONE"]


def test_build_without_an_account_runs_as_one_that_may_do_nothing(world):
    assert ended(world, serviceAccount=None)["status"] == "FAILURE"


def test_build_of_a_source_without_a_dockerfile_fails(world):
    world.ask("POST", "upload/storage/v1/b/source/o", archive("train.py"), uploadType="media", name="code.tgz")
    assert "Dockerfile" in ended(world)["statusDetail"]


def test_build_for_a_repository_that_is_not_there_fails(world):
    done = ended(world, images=[IMAGE.replace("/images/", "/other/")])
    assert 'Repository "other" not found' in done["statusDetail"]


def test_tag_moves_to_the_newer_image_and_stays_where_tags_are_immutable(world):
    ended(world)
    world.ask("POST", "upload/storage/v1/b/source/o", archive("Dockerfile", "a"), uploadType="media", name="code.tgz")
    ended(world)
    assert sorted(image["tags"] for image in images(world)) == [[], ["1"]]
    asked = {"dockerConfig": {"immutableTags": True}}
    world.ask("PATCH", f"{REPOSITORIES}/images", asked, updateMask="dockerConfig")
    world.ask("POST", "upload/storage/v1/b/source/o", archive("Dockerfile", "b"), uploadType="media", name="code.tgz")
    assert "tag immutability" in ended(world)["statusDetail"]


def test_images_go_with_their_repository(world):
    ended(world)
    world.ask("DELETE", f"{REPOSITORIES}/images")
    assert not [one for one in world.cloud.inventory() if one.startswith(("image", "repository"))]


@pytest.mark.parametrize(
    "words", [["--file", "deploy/Dockerfile"], ["-f", "deploy/Dockerfile"], ["--file=deploy/Dockerfile"]]
)
def test_build_of_a_dockerfile_that_is_named_wants_that_one(world, words):
    step = {"name": "gcr.io/cloud-builders/docker", "args": ["build", *words, "-t", IMAGE, "."]}
    assert "lstat /workspace/deploy/Dockerfile" in ended(world, steps=[step])["statusDetail"]
    source = archive("./deploy/Dockerfile")
    world.ask("POST", "upload/storage/v1/b/source/o", source, uploadType="media", name="code.tgz")
    assert ended(world, steps=[step])["status"] == "SUCCESS"


def test_tags_of_an_image_name_its_digest_and_an_image_that_is_not_there_has_none(world):
    tags = f"{REPOSITORIES}/images/packages/train/tags"
    assert world.refusal("GET", tags)[0] == 404
    (image,) = ended(world)["results"]["images"]
    (tag,) = world.ask("GET", tags)["tags"]
    assert tag["name"].endswith("/packages/train/tags/1")
    assert tag["version"].endswith(f"/packages/train/versions/{image['digest']}")
