"""The defects that the simulator was built to find: the change that fixed each, and the test that failed before it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    change: str
    test: str  # below tests/


CASES = {
    "a": Case("the key of a new driver is admitted before it judges", "journeys/test_tpu_vm_evidence.py"),
    "b": Case("hosts that are all silent are not seen, which is no evidence", "journeys/test_tpu_vm_evidence.py"),
    "c": Case("a fleet deletes only what another host or the bucket shows to be dead", "unit/fleet/test_evidence.py"),
    "d": Case("unreadable records count as active", "unit/places/gke/test_sweeping.py"),
    "e": Case("a driver without the code fetches it, or yields", "unit/places/tpu_vm/test_shared_code.py"),
    "f": Case("every act checks its lease last, and carries what it expects", "unit/kernel/test_control_fencing.py"),
    "g": Case("a driver that cannot observe or act releases its leases", "unit/jobs/test_takeover.py"),
    "h": Case("labels name the owner and the store", "unit/fleet/test_ownership.py"),
    "i": Case("the mark of hardware moves with the store", "unit/kernel/store/test_move.py"),
    "j": Case("old attempts are folded", "unit/jobs/test_history.py"),
    "k": Case("no slice is bought or kept for a pod that cannot use it", "unit/provisioner/test_needs.py"),
    "l": Case("a bad document ends with a sentence", "unit/code_queue/test_documents.py"),
    "m": Case("a full disk stops copies of logs only", "unit/places/tpu_vm/test_log_store.py"),
    "n": Case("`forget` refuses while hardware is held", "unit/cli/test_forget.py"),
    "o": Case("a sweep continues after a part that fails", "unit/places/gke/test_sweeping.py"),
    "p": Case("a submission has a key, so a lost answer gives one job", "unit/jobs/test_submission.py"),
    "q": Case("times in the future are not waited for", "unit/provisioner/test_clocks.py"),
    "r": Case("a person's change ends a back-off", "unit/jobs/test_takeover.py"),
    "s": Case("drivers drop what belongs to ended jobs", "unit/places/tpu_vm/test_memory.py"),
    "t": Case("a machine is identified by its boot too", "unit/kernel/store/test_process.py"),
    "u": Case("records wait for the disk", "unit/kernel/store/test_store.py"),
    "unattended": Case("hardware ends by itself after `max.unattended`", "unit/host/test_unattended.py"),
    "v": Case("a failed precondition of GKE is tried again", "unit/google/test_gke.py"),
    "w": Case("a sample or report that cannot be read is left out", "unit/fleet/test_limits.py"),
}
