"""What JobSet does by itself when a slice's Job fails, from the rule of the job.

Kubernetes decides in two steps. The Job of a slice fails at its first failed pod, and `podFailurePolicy` says why:
lost hardware has the reason PodFailurePolicy, and everything else BackoffLimitExceeded, a program that was killed for
its memory (137) included. Then `failurePolicy` of the JobSet looks at that reason, and at the place in the list of the
rule that matched, which only the message tells: "… matching FailJob rule at index 1".

Where a rule wants another attempt from the last checkpoint, JobSet makes it, and lost hardware is not counted against
max.restarts. Where it wants nothing, or a run from the beginning, the JobSet fails and the loop decides.
"""

from __future__ import annotations

from dataclasses import dataclass

TERMINATED = 143
PEER_LOST = 134
HARDWARE_CODES = (TERMINATED, PEER_LOST)
"""Exit codes behind rules 1 and 2 of podFailurePolicy; rule 0 is the condition DisruptionTarget."""

_AGAIN = "RestartJobSetAndIgnoreMaxRestarts"
_COUNTED = "RestartJobSet"
_END = "FailJobSet"

_ACTIONS = {  # rule: what follows a preemption, what follows a lost peer
    "pass": (_END, _END),
    "resume": (_END, _AGAIN),
    "rerun": (_AGAIN, _END),
    "reapply": (_AGAIN, _AGAIN),
    "pre": (_AGAIN, _AGAIN),
}


@dataclass(frozen=True, slots=True)
class Restart:
    """One rule of a JobSet's failurePolicy."""

    name: str
    action: str
    reason: str  # of the Job's failure
    message: str | None = None  # a pattern in it


def restarts(rule: str) -> tuple[Restart, ...]:
    """The rules for a job with this rule.

    JobSet takes the first that fits any Job that has failed by then, so they stand by what explains the most. When
    the user's program fails in one slice, the other slices lose a peer; when a slice is preempted, programs elsewhere
    may fail in ways of their own.
    """
    preempted, peer_lost = _ACTIONS[rule]
    return (
        Restart("preempted", preempted, "PodFailurePolicy", "rule at index [01]$"),
        Restart("userError", _COUNTED, "BackoffLimitExceeded"),
        Restart("timeout", _END, "DeadlineExceeded"),
        Restart("peerLost", peer_lost, "PodFailurePolicy", "rule at index 2$"),
    )
