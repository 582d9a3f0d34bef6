"""The cluster that `tpu provisioner` drives: options, else the ConfigMap; an error is not a missing ConfigMap."""

from __future__ import annotations

from typing import Any

import pytest

from tpukit.cli.provisioner import _identity
from tpukit.core.errors import Denied, Invalid, NotFound, TpukitError, Transient, Unauthenticated

GIVEN = {"project": "p", "location": "us-central2-b", "cluster": "c"}


class OneConfigMap:
    def __init__(self, found: dict[str, str] | TpukitError) -> None:
        self._found = found

    def get(self, kind: str, name: str, namespace: str) -> Any:
        if isinstance(self._found, TpukitError):
            raise self._found
        return {"data": self._found}


def identity(found: dict[str, str] | TpukitError, **given: str | None) -> tuple[str, str, str]:
    who = _identity(OneConfigMap(found), "system", **{**dict.fromkeys(GIVEN), **given})  # type: ignore[arg-type]
    return who.project, who.location, who.cluster


def test_config_map_says_what_is_not_given():
    assert identity({**GIVEN, "project": "another"}, project="p") == ("p", "us-central2-b", "c")


@pytest.mark.parametrize("error", [Transient("no answer"), Unauthenticated("signed out")])
def test_cluster_that_does_not_tell_is_not_a_config_map_without_a_project(error):
    with pytest.raises(type(error), match=str(error)):
        identity(error, location="us-central2-b", cluster="c")
    assert identity(error, **GIVEN) == ("p", "us-central2-b", "c")


@pytest.mark.parametrize("error", [NotFound("there is none"), Denied("not allowed")])
def test_cluster_without_a_config_map_is_what_is_given_and_what_is_not_is_named(error):
    with pytest.raises(Invalid, match="the project of the cluster is unknown"):
        identity(error, location="us-central2-b", cluster="c")


def test_zones_of_a_regional_cluster_are_those_that_are_given():
    regional = {**GIVEN, "location": "us-central2"}
    asked = OneConfigMap({})
    assert _identity(asked, "system", "us-central2-b,us-central2-a", **regional).zones == (
        "us-central2-b",
        "us-central2-a",
    )
    assert _identity(asked, "system", **regional).zones == ()
    with pytest.raises(Invalid, match="Berlin"):
        _identity(asked, "system", "Berlin", **regional)
