"""Check the settings of a Cloud Build of the environment, and write them down for its later steps.

Later steps read the values from files; they are never inserted into scripts. Depends on Python only.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpukit.cluster import state_prefix, versions
from tpukit.cluster.substitutions import REST, VARIABLES
from tpukit.core.errors import Invalid, Problem

_NEEDED = (
    *("_TF_STATE_BUCKET", "_REGION", "_ZONE", "_CLUSTER_NAME"),
    *("_NETWORK_NAME", "_SUBNET_NAME", "_ARTIFACT_REPOSITORY_BUCKET_NAME"),
)
_FLAGS = ("_FORCE_DESTROY", "_ALLOW_REPLACE", "_EVICT")
_RELEASES = {"JobSet": "_JOBSET_API_VERSION", "Kueue": "_KUEUE_API_VERSION"}


@dataclass(frozen=True, slots=True)
class BuildSettings:
    variables: Mapping[str, Any]  # Terraform variables
    steps: Mapping[str, str]  # variables for the scripts of the steps, by name

    def shell(self) -> str:
        """Return the variables as shell assignments for a step to source with `.`. No value is evaluated."""
        return "".join(f"{name}={shlex.quote(value)}\n" for name, value in self.steps.items())


def read(given: Mapping[str, str], declared: str) -> BuildSettings:
    """Read the settings from a build's substitutions and the text of variables.tf.

    Raise Invalid with all problems at once.
    """
    problems = list(_problems(given))
    names = re.findall(r'^variable "(\w+)"', declared, re.MULTILINE)
    rest = _rest(given.get(REST, ""), names, problems)
    if problems:
        raise Invalid(problems)
    own = {name: given[key] for name, key in VARIABLES.items() if given.get(key)}
    cluster = given["_CLUSTER_NAME"]
    steps = {
        "PROJECT_ID": given["PROJECT_ID"],
        "BUILD_ID": given["BUILD_ID"],
        "LOCATION": given["LOCATION"],
        "REGION": given["_REGION"],
        "CLUSTER_NAME": cluster,
        "NETWORK_NAME": given["_NETWORK_NAME"],
        "ARTIFACT_BUCKET": given["_ARTIFACT_REPOSITORY_BUCKET_NAME"],
        "FORCE_DESTROY": given["_FORCE_DESTROY"],
        "STATE_BUCKET": given["_TF_STATE_BUCKET"],
        "STATE_PREFIX": given["_TF_STATE_PREFIX"] or state_prefix.of(cluster),
        # The prefix of environments made by earlier versions; not searched if the user names a prefix.
        "OLDER_PREFIX": "" if given["_TF_STATE_PREFIX"] else state_prefix.COMMON,
        "ALLOW_REPLACE": given.get("_ALLOW_REPLACE", "false"),
        "EVICT": given["_EVICT"],
        "JOBSET_VERSION": given.get("_JOBSET_API_VERSION", ""),
        "KUEUE_VERSION": given.get("_KUEUE_API_VERSION", ""),
    }
    return BuildSettings({"project_id": given["PROJECT_ID"], **own, **rest}, steps)


def warnings(given: Mapping[str, str]) -> list[str]:
    """Return a line for each known fault of the requested releases."""
    return [line for name, key in _RELEASES.items() for line in versions.warnings(name, given.get(key, ""))]


def _problems(given: Mapping[str, str]) -> Iterator[Problem]:
    for key in _NEEDED:
        if not given.get(key):
            yield Problem(key, "the value is empty", f"write {key}=...")
    for key in _FLAGS:
        if given.get(key, "false") not in ("true", "false"):
            yield Problem(key, f"{given[key]!r} is neither true nor false", f"write {key}=true, or leave it out")
    for name, key in _RELEASES.items():
        if key in given and (problem := versions.problem(name, given[key], key)):
            yield problem


def _rest(text: str, names: list[str], problems: list[Problem]) -> dict[str, Any]:
    example = f'{REST}={{"enable_tpu_autoscaling": true}}'
    try:
        rest = json.loads(text or "{}")
    except ValueError as error:
        problems.append(Problem(REST, f"the value is not JSON: {error}", f"write {example}"))
        return {}
    if not isinstance(rest, dict):
        problems.append(Problem(REST, "the value is not a JSON object", f"write {example}"))
        return {}
    for name in rest:
        if name in VARIABLES:
            what = f"{name} has its own substitution"
            problems.append(Problem(REST, what, f"write {VARIABLES[name]}=..., which may be empty"))
        elif name not in names or name == "project_id":
            near = difflib.get_close_matches(name, names, 1)
            hint = f"write {near[0]}" if near else "terraform/README.md lists the variables"
            problems.append(Problem(REST, f"Terraform has no variable {name} to set", hint))
    return rest
