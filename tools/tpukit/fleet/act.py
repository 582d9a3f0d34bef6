"""Doing what was decided for a worker. Each may be cut off anywhere and done again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tpukit.cloud.tpu_vm import Node, Queued, Request, TpuVms
from tpukit.errors import Conflict, NotFound, NotYet
from tpukit.fleet.decide import Create, Delete, Launch, Stop
from tpukit.fleet.observe import is_ours
from tpukit.fleet.reach import Reach
from tpukit.fleet.records import Work, Worker
from tpukit.places.tpu_vm.channel import Login

Act = Create | Delete | Launch | Stop


@dataclass(frozen=True, slots=True)
class Acting:
    client: TpuVms
    reach: Reach
    runtime: Callable[[str], str]  # of TPUs of a type
    archive: Callable[[Work], bytes]  # the code
    queued: bool = True

    def act(self, worker: Worker, act: Act) -> None:
        if isinstance(act, Create):
            self._create(worker)
        elif isinstance(act, Delete):
            self._delete(worker, act)
        else:
            login = self.login(worker)
            if isinstance(act, Stop):
                self.reach.stop(worker, login, act.attempt)
            else:
                self._launch(worker, login)

    def _create(self, worker: Worker) -> None:
        request = Request(
            worker.tpu,
            (worker.tpu,),
            accelerator=worker.tpu_type,
            runtime=self.runtime(worker.tpu_type),
            spot=worker.spot,
            labels=worker.labels,
            metadata={"ssh-keys": self.reach.ssh_keys},
            external_ips=self.reach.external_ips,
        )
        with suppress(Conflict):  # the answer to an earlier request was lost, or another driver was faster
            (self.client.request if self.queued else self.client.create)(worker.zone, request)

    def _delete(self, worker: Worker, act: Delete) -> None:
        """What is there now, if it is what was seen: somebody may have made it anew since."""
        node, queued = self._there(worker)
        if any(one is not None and not is_ours(worker, one.labels) for one in (node, queued)):
            return
        if node is not None and act.node_id and node.id != act.node_id:
            return
        with suppress(NotFound):
            if queued is not None and queued.state != "DELETING":
                self.client.delete_queued(worker.zone, queued.name, queued.id)
            elif queued is None and node is not None and node.state != "DELETING":
                self.client.delete_node(worker.zone, node.name, node.id)

    def _launch(self, worker: Worker, login: Login) -> None:
        work = worker.work
        assert work is not None
        first = worker.number * len(worker.zones) + sorted(worker.zones).index(worker.zones[0])
        self.reach.launch(
            worker, login, self.archive(work), argv(work, worker.tpu), {"TPUKIT_FLEET_WORKER": str(first)}
        )

    def login(self, worker: Worker) -> Login:
        node, _ = self._there(worker)
        login = self.reach.login(worker.zone, node) if node is not None else None
        if login is None:
            raise NotYet(f"{worker.tpu} cannot be reached yet")
        return login

    def _there(self, worker: Worker) -> tuple[Node | None, Queued | None]:
        node = next((one for one in self.client.nodes(worker.zone) if one.name == worker.tpu), None)
        named = [one for one in self.client.queued(worker.zone) if worker.tpu in (one.name, *one.nodes)]
        return node, next(iter(named), None)


def argv(work: Work, name: str) -> list[str]:
    """The command that a worker runs, as a person could type it on the host."""
    options = [word for pair in work.options.items() for word in ("--option", "=".join(pair))]
    return [
        *("python3", "-m", "tpukit.host.worker", "--worker", name),
        *("--data", work.data, "--output", work.output, "--program", work.program, *options),
        *("--shard-samples", str(work.shard_samples), "--patience", f"{work.patience:g}"),
        *("--claim-seconds", f"{work.claim_seconds:g}"),
        *(("--requirements", work.requirements) if work.requirements else ()),
    ]
