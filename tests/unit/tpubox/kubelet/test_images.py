"""Images of a node, and the kubelet's messages about missing ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpubox.kubelet import image_names
from tpubox.kubelet.emulator_door import EmulatorDoor
from tpubox.kubelet.pulled_images import PulledImages


@pytest.mark.parametrize(
    "image",
    [
        "python:3.13",
        "us-docker.pkg.dev/p/r/train:1",
        "localhost:5000/a/b__c",
        "busybox@sha256:" + "1" * 64,
        "UPPER/lower:Tag",
    ],
)
def test_name_of_an_image_is_taken(image: str):
    assert image_names.malformed(image) is None


@pytest.mark.parametrize("image", ["Bad/Image:1", "Image", "a b", "x:", "gcr.io/p//x", "x@sha256:1", "-x/y.z", ""])
def test_what_is_no_name_of_an_image_is_told(image: str):
    assert image_names.malformed(image) is not None


def test_image_that_another_pod_pulled_may_be_used_without_a_pull_on_that_node_alone(tmp_path: Path):
    images = PulledImages(EmulatorDoor("", ""), tmp_path / "images")
    assert images.refusal("one", "python:3.13", "Never")
    assert images.refusal("one", "python:3.13") is None
    after = PulledImages(EmulatorDoor("", ""), tmp_path / "images")
    assert after.refusal("one", "python:3.13", "Never") is None
    assert after.refusal("two", "python:3.13", "Never")


def test_image_of_policy_always_is_asked_for_each_time():
    images = PulledImages(EmulatorDoor("http://127.0.0.1:1", ""))
    images._there.add(("one", "us-docker.pkg.dev/p/r/train:1"))
    assert images.refusal("one", "us-docker.pkg.dev/p/r/train:1") is None
    assert images.refusal("one", "us-docker.pkg.dev/p/r/train:1", "Always")


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("registry.invalid/train:1", "lookup registry.invalid: no such host"),
        ("example.com/team/train", "lookup example.com: no such host"),
        ("registry.example:5000/train:1", "lookup registry.example: no such host"),
        ("mars-docker.pkg.dev/p/r/train:1", "lookup mars-docker.pkg.dev: no such host"),
        ("us-docker.pkg.dev/p/train:1", "not found"),
    ],
)
def test_image_that_no_registry_can_have_is_not_pulled(image: str, words: str):
    refused = PulledImages(EmulatorDoor("", "")).refusal("one", image)
    assert refused is not None
    assert (refused.reason, words in refused.message) == ("ErrImagePull", True)


@pytest.mark.parametrize("image", ["us-docker.pkg.dev/p/r/train:1", "europe-west4-docker.pkg.dev/p/r/a/b", "python:3"])
def test_image_that_a_registry_may_have_is_pulled(image: str):
    assert PulledImages(EmulatorDoor("", "")).refusal("one", image) is None
