"""gcloud: what it is asked and what it answers. All it is told is on its command line, never in its settings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tpukit.cluster import diagnosis, programs
from tpukit.cluster.programs import Cancelled, Command
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError

if TYPE_CHECKING:  # a step of a build imports this with nothing installed
    from tpukit.cluster.spec import ClusterSpec

INSTALL = "install it: https://cloud.google.com/sdk/docs/install"
# Google answers so too where one may not know: then the next step says what is missing.
_MEANWHILE = re.compile(r"concurrent policy changes|service account \S+ does not exist", re.I)
_NO_BINDING = re.compile(r"policy binding\b.*\bnot found", re.I)
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# What was just made or switched on is not known everywhere at once:
# https://cloud.google.com/iam/docs/access-change-propagation
_NOT_EVERYWHERE_YET = re.compile(
    r"SERVICE_DISABLED|has not been used in project|not enabled on project|service account \S+ does not exist"
    r"|concurrent policy changes",
    re.I,
)
_PATIENCE_SECONDS = 300.0
LIMIT_SECONDS = 120.0
"""For a single question or order; what waits for an operation of Google's gets more."""
T = TypeVar("T")
_ABSENT = re.compile(r"\b404\b|not[ _]found|does not exist|may not exist|unknown service account", re.I)


def command(*argv: str) -> Command:
    return Command(("gcloud", *argv, "--quiet"))


def email(account: str, project: str) -> str:
    """Of a service account. A project of a domain (example.com:p) turns its parts around."""
    return f"{account}@{'.'.join(reversed(project.split(':')))}.iam.gserviceaccount.com"


def pairs(values: Mapping[str, str]) -> str:
    """KEY=VALUE,… as gcloud splits it; with another comma where a value has one (`gcloud topic escaping`)."""
    comma = next(sign for sign in ",;|#~" if not any(sign in value for value in values.values()))
    joined = comma.join(f"{key}={value}" for key, value in values.items())
    return joined if comma == "," else f"^{comma}^{joined}"


def exists(question: Command, doing: str, *, limit: float = LIMIT_SECONDS) -> bool:
    programs.need("gcloud", INSTALL)
    done = programs.run(question, limit=limit)
    if done.code and not _ABSENT.search(done.errors):
        raise diagnosis.failure("gcloud", done.errors, doing)
    return done.code == 0


def read(question: Command, doing: str, *, limit: float = LIMIT_SECONDS) -> str:
    programs.need("gcloud", INSTALL)
    done = programs.run(question, limit=limit)
    if done.code:
        raise diagnosis.failure("gcloud", done.errors, doing)
    return done.output


def read_if_there(question: Command, doing: str) -> str:
    """What it answers; nothing where the thing is not there."""
    programs.need("gcloud", INSTALL)
    done = programs.run(question, limit=LIMIT_SECONDS)
    if done.code and not _ABSENT.search(done.errors):
        raise diagnosis.failure("gcloud", done.errors, doing)
    return "" if done.code else done.output


def settled(attempt: Callable[[], T], clock: Clock) -> T:
    """What `attempt` gives, tried again for a while where Google does not know yet what was made a moment ago."""
    until, pause = clock.now() + _PATIENCE_SECONDS, 1.0
    while True:
        try:
            return attempt()
        except TpukitError as error:
            if not _NOT_EVERYWHERE_YET.search(error.message) or clock.now() + pause > until:
                raise
        clock.sleep(pause)
        pause = min(pause * 2, 20.0)


def change_policy(order: Command, doing: str, clock: Clock) -> None:
    """Add a binding to a policy, or take one away; one that is not there is away.

    Somebody else may change the policy between gcloud's reading and its writing, and an answer that is lost on its way
    makes gcloud write again what is written. Google's own advice for both is to begin anew, a little later each time.
    """
    programs.need("gcloud", INSTALL)
    for pause in _PAUSES:
        done = programs.run(order, limit=LIMIT_SECONDS)
        if done.code == 0 or _NO_BINDING.search(done.errors):
            return
        if not _MEANWHILE.search(done.errors):
            break
        clock.sleep(pause)
    raise diagnosis.failure("gcloud", done.errors, doing)


def read_json(question: Command, doing: str) -> Any:
    return json.loads(read(question, doing) or "null")


def follow(order: Command, doing: str, say: Callable[[str], None]) -> None:
    """Run it and pass on what it says as it says it."""
    programs.need("gcloud", INSTALL)
    done = programs.stream(order, say, on_note=say)
    if done.presses:
        raise Cancelled(f"{doing} was left", hint="what was asked of Google goes on there; `tpu cluster status` looks")
    if done.code:
        raise diagnosis.failure("gcloud", done.errors, doing)


def describe_cluster(spec: ClusterSpec) -> Command:
    return command(
        *("container", "clusters", "describe", spec.cluster_name),
        *(f"--project={spec.project_id}", f"--location={spec.region}"),
        "--format=json(name,status,currentMasterVersion,nodePools[].name,nodePools[].status)",
    )


def get_credentials(spec: ClusterSpec) -> Command:
    # By its DNS name: private clusters have no other way in, and IAM guards this one.
    return command(
        *("container", "clusters", "get-credentials", spec.cluster_name),
        *(f"--project={spec.project_id}", f"--location={spec.region}", "--dns-endpoint"),
    )
