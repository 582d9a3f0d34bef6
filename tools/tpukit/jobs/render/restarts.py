"""Translate a job's rule into the restarts that JobSet makes by itself when a slice's Job fails.

Kubernetes decides in two steps. The Job of a slice fails at its first failed pod, and `podFailurePolicy` sets the
reason: PodFailurePolicy for lost hardware, BackoffLimitExceeded for everything else, including a program killed for its
memory (137). Then the JobSet's `failurePolicy` matches that reason and the index of the matching rule, which appears
only in the message: "… matching FailJob rule at index 1".

Where a rule asks for another attempt from the last checkpoint, JobSet makes it, and lost hardware does not count
towards max.restarts. Where it asks for nothing, or for a run from the beginning, the JobSet fails and the loop decides.
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

_ACTIONS = {  # rule: action after a preemption, action after a lost peer
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
    reason: str  # reason of the Job's failure
    message: str | None = None  # pattern in the message


def restarts(rule: str) -> tuple[Restart, ...]:
    """Return the failurePolicy rules for a job with this rule.

    JobSet takes the first rule that matches any failed Job, so the order is by what explains the most. When the user's
    program fails in one slice, the other slices lose a peer; when a slice is preempted, programs elsewhere may fail in
    other ways.
    """
    preempted, peer_lost = _ACTIONS[rule]
    return (
        Restart("preempted", preempted, "PodFailurePolicy", "rule at index [01]$"),
        Restart("userError", _COUNTED, "BackoffLimitExceeded"),
        Restart("timeout", _END, "DeadlineExceeded"),
        Restart("peerLost", peer_lost, "PodFailurePolicy", "rule at index 2$"),
    )
