"""Run gcloud and read its output. Pass every option explicitly; ignore gcloud's own configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from tpukit.cluster import diagnosis, programs
from tpukit.cluster.programs import Cancelled, Command
from tpukit.core import retry
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError

if TYPE_CHECKING:  # a build step imports this without installed packages
    from tpukit.cluster.spec import ClusterSpec

INSTALL = "install it: https://cloud.google.com/sdk/docs/install"
# Google also responds this way to callers without permission; the next step then reports what is missing.
_MEANWHILE = re.compile(r"concurrent policy changes|service account \S+ does not exist", re.I)
_NO_BINDING = re.compile(r"policy binding\b.*\bnot found", re.I)
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# Changes take time to propagate: https://cloud.google.com/iam/docs/access-change-propagation
_NOT_EVERYWHERE_YET = re.compile(
    r"SERVICE_DISABLED|has not been used in project|not enabled on project|service account \S+ does not exist"
    r"|concurrent policy changes",
    re.I,
)
_PATIENCE_SECONDS = 300.0
LIMIT_SECONDS = 120.0
"""Time limit of a single command; commands that wait for a Google operation get more."""
T = TypeVar("T")
_ABSENT = re.compile(r"\b404\b|not[ _]found|does not exist|may not exist|unknown service account", re.I)


def command(*argv: str) -> Command:
    return Command(("gcloud", *argv, "--quiet"))


def email(account: str, project: str) -> str:
    """Return a service account's address. A domain-scoped project (example.com:p) has its parts reversed."""
    return f"{account}@{'.'.join(reversed(project.split(':')))}.iam.gserviceaccount.com"


def pairs(values: Mapping[str, str]) -> str:
    """Return KEY=VALUE,… for gcloud, with another separator if a value has a comma (`gcloud topic escaping`)."""
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
    """Return the output of a command, or "" if the resource does not exist."""
    programs.need("gcloud", INSTALL)
    done = programs.run(question, limit=LIMIT_SECONDS)
    if done.code and not _ABSENT.search(done.errors):
        raise diagnosis.failure("gcloud", done.errors, doing)
    return "" if done.code else done.output


def settled(attempt: Callable[[], T], clock: Clock) -> T:
    """Call `attempt`, retrying for a while if Google has not yet propagated a recent change."""
    until = clock.now() + _PATIENCE_SECONDS

    def again(error: TpukitError, pause: float) -> bool:
        return bool(_NOT_EVERYWHERE_YET.search(error.message)) and clock.now() + pause <= until

    return retry.call(attempt, (retry.growing(tries, 1.0, 20.0) for tries in count(1)), clock.sleep, again)


def change_policy(order: Command, doing: str, clock: Clock) -> None:
    """Add a binding to a policy, or remove one; removing a missing binding succeeds.

    The policy may change between gcloud's read and write, and a lost response makes gcloud repeat a write. Google
    recommends to retry both with growing pauses.
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
    """Run a command and pass on each line of its output as it appears."""
    programs.need("gcloud", INSTALL)
    done = programs.stream(order, say, on_note=say)
    if done.presses:
        raise Cancelled(
            f"{doing} was interrupted", hint="the operation continues at Google; `tpu cluster status` shows its state"
        )
    if done.code:
        raise diagnosis.failure("gcloud", done.errors, doing)


def describe_cluster(spec: ClusterSpec) -> Command:
    return command(
        *("container", "clusters", "describe", spec.cluster_name),
        *(f"--project={spec.project_id}", f"--location={spec.region}"),
        "--format=json(name,status,currentMasterVersion,nodePools[].name,nodePools[].status)",
    )


def get_credentials(spec: ClusterSpec) -> Command:
    # Use the DNS endpoint: private clusters have no other, and IAM protects it.
    return command(
        *("container", "clusters", "get-credentials", spec.cluster_name),
        *(f"--project={spec.project_id}", f"--location={spec.region}", "--dns-endpoint"),
    )
