"""Preemption of node pools on Google's side: frees the chips of preempted hosts, and recreates the hosts.

Hosts return when there are enough chips. The node agent ends pods and removes nodes, and waits for the request to
restore them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from tpubox.google.gke import pool_preemption
from tpubox.google.wire.cloud import Cloud
from tpubox.kubelet.nodes import Presence, Record
from tpukit.core.errors import TpukitError

TICK_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Preemptions:
    def __init__(
        self, cloud: Cloud, records: Callable[[], Iterable[Record]], bring_back: Callable[[str], None]
    ) -> None:
        self._cloud = cloud
        self._records = records  # as written by the node agent
        self._bring_back = bring_back  # restores the hosts of a pool

    def run(self, over: threading.Event) -> None:
        while not over.wait(TICK_SECONDS):
            try:
                self.tick()
            except TpukitError as error:  # the next tick retries
                _log.warning("preemptions: %s", error)
            except Exception:  # continue with the next pools  # noqa: BLE001
                _log.exception("preemptions")

    def tick(self) -> None:
        now = self._cloud.clock.now()
        for record in self._records():
            full = record.pool.key
            if not record.pool.cluster or record.removed:
                continue
            if record.presence is Presence.HERE:
                pool_preemption.here(self._cloud, full)
            elif record.presence is Presence.AWAY:
                pool_preemption.gone(self._cloud, full, record.deadline)
                due = record.back_at is not None and now >= record.back_at
                if due and pool_preemption.may_return(self._cloud, full):
                    self._bring_back(full)
