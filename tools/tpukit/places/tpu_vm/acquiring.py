"""Create and release the TPU VMs of a job. Each call may stop anywhere, and any process can repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

from tpukit.core.errors import Conflict, Invalid, NotFound, NotYet
from tpukit.google.tpu_vm import Node, Queued, TpuVms
from tpukit.jobs.plan import Plan
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import target
from tpukit.places.tpu_vm.machines import Machines, assess


@dataclass(frozen=True, slots=True)
class Acquiring:
    client: TpuVms
    sender: Callable[[], str]
    public_key: Callable[[], str]

    def assess(self, handle: Handle) -> Machines:
        zone = target.of(handle.plan).zone
        queued = self.queued(zone)  # first: a request seen without its nodes has none, and may be deleted
        nodes = {one.name: one for one in self.client.nodes(zone)}
        return assess(handle, nodes, queued, target.store_label(self.sender()))

    def ours(self, handle: Handle, seen: Machines) -> Machines:
        """Return what the job created, without another user's resources of the same names.

        TPU VMs that the user named were checked by `assess`.
        """
        if not target.is_own(handle.plan):
            return seen
        nodes = tuple(node if node is not None and self._is_ours(handle, node) else None for node in seen.nodes)
        return replace(seen, nodes=nodes, queued=tuple(one for one in seen.queued if self._is_ours(handle, one)))

    def queued(self, zone: str) -> Mapping[str, Queued]:
        return {one.name: one for one in self.client.queued(zone)}

    def acquire(self, handle: Handle, retired: Callable[[Machines], AbstractContextManager[None]]) -> Machines | None:
        """Return the machines once their hosts are reachable; None while they are being created.

        `retired` blocks other jobs on TPU VMs that the user named while they are deleted, and raises if one runs.
        """
        seen = self.assess(handle)
        self._check_owner(handle, seen)
        if seen.ready:
            return seen
        if seen.waits:
            return None
        if seen.failed is not None:
            raise NotYet(seen.failed.words)  # the next observation ends the attempt
        plan, zone = handle.plan, target.of(handle.plan).zone
        if seen.queued or any(seen.nodes):
            with nullcontext() if target.is_own(plan) else retired(seen):
                self._remove(zone, seen)
            raise NotYet(f"TPU VMs of an earlier attempt of {plan.id} are being deleted")
        for request in target.requests(plan, handle.attempt.number, self.sender(), self.public_key()):
            with suppress(Conflict):  # another driver was faster, or the response to an earlier request was lost
                if plan.settings.queued:
                    self.client.request(zone, request)
                else:
                    self.client.create(zone, request)
        return None

    def release(self, handle: Handle) -> None:
        """Delete what the job created. TPU VMs that the user named stay."""
        if not target.is_own(handle.plan):
            return
        seen = self.ours(handle, self.assess(handle))
        self._check_owner(handle, seen)
        self._remove(target.of(handle.plan).zone, seen)

    def withdraw(self, handle: Handle, seen: Machines) -> None:
        """Delete a request that is still waiting."""
        if seen.waits and seen.held:
            self._check_owner(handle, seen)
            self._remove(target.of(handle.plan).zone, seen)

    def ids(self, plan: Plan) -> tuple[str, ...]:
        """Return the ids of TPU VMs that the user named, and of the queued resources that created them."""
        zone, names = target.of(plan).zone, set(target.of(plan).nodes)
        requests = [one for one in self.queued(zone).values() if names & {one.name, *one.nodes}]
        there: list[Node | Queued] = [one for one in self.client.nodes(zone) if one.name in names]
        return tuple(one.id for one in [*there, *requests] if one.id)

    def check(self, plan: Plan) -> None:
        """Check TPU VMs that the user named.

        Raises:
            Invalid: They do not match the job's request.
        """
        there = {one.name: one for one in self.client.nodes(target.of(plan).zone)}
        for name in target.of(plan).nodes:
            node = there.get(name)
            if node is None:
                known = ", ".join(sorted(there)) or "none"
                raise Invalid(
                    f"--on: there is no TPU VM {name} in {target.of(plan).zone}", hint=f"the TPU VMs there: {known}"
                )
            if node.accelerator != plan.slice.name:
                hint = f"name another TPU VM, or write tpu: {node.accelerator}"
                raise Invalid(f"--on: {name} is a {node.accelerator}, the job asks for {plan.slice.name}", hint=hint)

    def _check_owner(self, handle: Handle, seen: Machines) -> None:
        plan = handle.plan
        if seen.strangers:
            words = f"{', '.join(seen.strangers)} in {target.of(plan).zone}"
            raise Conflict(
                f"{words}: created by another user or tool since {plan.id} was sent",
                hint=f"to run there, stop {plan.id} and send it again with --on",
            )
        there: list[Queued | Node] = [*seen.queued, *(node for node in seen.nodes if node is not None)]
        for one in there:
            made = target.made_for(one.labels, plan)
            if target.is_own(plan) and not self._is_ours(handle, one):
                raise Conflict(
                    f"{one.name} in {target.of(plan).zone} was created by another user or tool",
                    hint="its owner has to delete it; send yours under another name: --set name=NAME",
                )
            if made is not None and made > handle.attempt.number:
                raise Conflict(f"{one.name} was made for attempt {made}, later than attempt {handle.attempt.number}")

    def _is_ours(self, handle: Handle, one: Queued | Node) -> bool:
        made = target.made_for(one.labels, handle.plan)
        return made is not None and one.labels.get(target.STORE) == target.store_label(self.sender())

    def _remove(self, zone: str, seen: Machines) -> None:
        for request in seen.queued:
            if request.state != "DELETING":
                with suppress(NotFound):
                    self.client.delete_queued(zone, request.name, request.id)
        queued = {request.name for request in seen.queued}
        for node in seen.nodes:
            if node is not None and node.queued not in queued and node.state != "DELETING":
                with suppress(NotFound):
                    self.client.delete_node(zone, node.name, node.id)
