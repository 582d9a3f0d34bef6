"""Create and delete the JobSet of an attempt. Each call may stop anywhere, and any process can repeat it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Invalid, LeaseLost, NotFound, NotYet, TpukitError, Transient
from tpukit.jobs import snapshots as stage
from tpukit.jobs.plan import Plan
from tpukit.jobs.render import documents
from tpukit.kube import Docs
from tpukit.places.base import Handle
from tpukit.places.gke import code, unattended
from tpukit.places.gke.attempts import Position
from tpukit.places.gke.jobsets import SENDER, UID, JobSetState, label, runs
from tpukit.places.gke.namespace import Lister


@dataclass(frozen=True, slots=True)
class Sending:
    lister: Lister
    shelf: Path
    clock: Clock
    sender: Callable[[], str]

    def submit(self, handle: Handle) -> dict[str, Any]:
        """Create the JobSet of an attempt, and return the position at which the attempt begins.

        The record stores it: without it, a JobSet that is deleted before it is observed looks as if it was never
        created.
        """
        plan, attempt = handle.plan, handle.attempt
        if attempt.number:  # nothing precedes the first, and a JobSet of its name makes the request to create it fail
            state = self._fresh(plan)
            if state.jobset is not None and self._is_there(handle, state):
                return _beginning(handle, state.uid)
            if state.jobset is not None or any(runs(pod) for pod in state.pods):
                if state.jobset is not None and not state.leaving:
                    self.lister.cluster.delete("JobSet", plan.id, plan.team, foreground=True, uid=state.uid)
                raise NotYet(f"hosts of the attempt before attempt {attempt.number} of {plan.id} are still stopping")
        parts = self._send_code(plan.team, plan.snapshot.digest) if plan.snapshot else 0
        limited = bool(plan.spec.max.unattended) and unattended.may_renew(self.lister.cluster, plan.team)
        uid = ""
        for document in documents(plan, attempt, parts):
            document["metadata"]["annotations"][SENDER] = self.sender()
            if limited:
                unattended.limit(document, plan.spec.max.unattended)
            uid = self._create(handle, document)
        return _beginning(handle, uid)

    def stop(self, handle: Handle, grace: float) -> None:
        plan = handle.plan
        state = self._fresh(plan)
        uids = {state.uid}
        if state.jobset is not None:
            if state.sender != self.sender():
                return  # ours is gone, and its name is in use by another sender
            if state.made_for > handle.attempt.number:
                raise Conflict(
                    f"JobSet {plan.id} was made for attempt {state.made_for}, which this driver may not stop"
                )
            if not state.finished and not state.leaving:
                self.lister.cluster.delete("JobSet", plan.id, plan.team, foreground=True, uid=state.uid)
        elif known := Position.of(handle.attempt.learned):
            uids = {known.uid}
        if grace < plan.spec.max.grace:  # a hanging job gets no time to save
            self._hurry(plan, state, uids, max(1, int(grace)))

    def check_code(self, plan: Plan) -> None:
        if plan.snapshot and not self._parts(plan.team, plan.snapshot.digest):
            stage.require(self.shelf, plan.snapshot.digest)

    def share_code(self, plan: Plan) -> str:
        """Upload the code to the team's namespace; return why this machine may not."""
        try:
            if plan.snapshot:
                self._send_code(plan.team, plan.snapshot.digest)
        except (Transient, NotYet):
            raise
        except TpukitError as error:
            return str(error)
        return ""

    def _parts(self, team: str, digest: str) -> int | None:
        """Return the number of parts in the team's namespace; None if they are missing or incomplete."""
        return code.complete(self._code_maps(team, digest), digest)

    def _code_maps(self, team: str, digest: str) -> Docs:
        return self.lister.cluster.list_metadata("ConfigMap", team, labels=code.selector(digest))

    def _is_there(self, handle: Handle, state: JobSetState) -> bool:
        """Return whether the JobSet with this name is this attempt's."""
        plan, number = handle.plan, handle.attempt.number
        if state.sender != self.sender():
            raise Conflict(
                f"JobSet {plan.id} in {plan.team} was sent by another user or tool",
                hint="its owner has to stop it; send yours under another name: --set name=NAME",
            )
        if state.made_for > number:
            raise Conflict(f"JobSet {plan.id} was made for attempt {state.made_for}, later than attempt {number}")
        known = Position.of(handle.attempt.learned)
        ours = state.made_for == number or (known is not None and known.uid == state.uid)
        return ours and not state.leaving

    def _create(self, handle: Handle, document: dict[str, Any]) -> str:
        """Create the JobSet and return its uid. Do not apply it, because another driver may have created it first."""
        try:
            return str(self.lister.cluster.create(document)["metadata"]["uid"])
        except LeaseLost:
            raise
        except Conflict:
            state = self._fresh(handle.plan)
            if state.jobset is None:
                raise Transient(f"JobSet {handle.plan.id} was deleted meanwhile: the next round creates it") from None
            if not self._is_there(handle, state):
                raise NotYet(f"an earlier JobSet {handle.plan.id} is still there") from None
            return state.uid

    def _hurry(self, plan: Plan, state: JobSetState, uids: set[str], grace: int) -> None:
        for pod in state.pods:
            given = pod["metadata"].get("deletionGracePeriodSeconds")
            if label(pod, UID) not in uids or not runs(pod) or (given is not None and given <= grace):
                continue
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            try:
                self.lister.cluster.delete("Pod", name, plan.team, grace=grace, uid=uid)
            except LeaseLost:
                raise
            except Conflict:
                continue  # another pod has its name by now

    def _send_code(self, team: str, digest: str) -> int:
        """Upload code to the team's namespace, unless some machine already did, and return the number of its parts."""
        cluster = self.lister.cluster
        there = self._code_maps(team, digest)
        if not code.complete(there, digest):
            made = code.config_maps(team, digest, code.pack(self._shelved(digest)))
            self._make_room(team, digest, there, made)
            for document in made:
                try:
                    cluster.create(document)
                except LeaseLost:
                    raise
                except Conflict:
                    continue  # it exists: from an interrupted upload, or from another machine
        parts = self._parts(team, digest)
        if parts is None:
            raise Transient(f"the code {digest[:12]} is not yet complete in {team}")
        with suppress(NotFound):  # removed meanwhile: the hosts wait for it, and it is sent again
            cluster.patch("ConfigMap", code.names(digest, 1)[0], code.mark_used(self.clock.now()), team)
        return parts

    def _make_room(self, team: str, digest: str, there: Docs, made: Docs) -> None:
        """Remove parts of an interrupted upload by another compressor.

        Wait for an upload that is still running, because two that remove each other's parts would never end.
        """
        in_the_way = {name: uid for name, uid in code.in_the_way(there, made).items() if uid}
        if in_the_way and code.is_coming(there, self.clock.now()):
            raise NotYet(f"another machine is uploading the code {digest[:12]} to {team}")
        for name, uid in in_the_way.items():
            self.lister.cluster.delete("ConfigMap", name, team, uid=uid)

    def _shelved(self, digest: str) -> Path:
        """Return the snapshot. With a shared store, another machine may have the code and upload it."""
        try:
            return stage.require(self.shelf, digest)
        except Invalid as error:
            hint = "start `tpu serve` on the machine that sent the job, or send it again"
            raise Transient(f"neither the cluster nor this machine has its code: {error}", hint=hint) from error

    def _fresh(self, plan: Plan) -> JobSetState:
        return self.lister.fresh(plan.team, plan.id)


def _beginning(handle: Handle, uid: str) -> dict[str, Any]:
    """Return what the record learns of a JobSet created for this attempt; nothing if it already has a position."""
    return {} if Position.of(handle.attempt.learned) or not uid else Position(uid).learned()
