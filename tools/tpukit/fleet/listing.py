"""TPU VMs and requests in zones, and which fleet owns them. A zone that cannot be listed does not affect others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tpukit.core.errors import TpukitError
from tpukit.fleet.records import FLEET, OWNER, SLOT, mark_of
from tpukit.fleet.seen import READY, Found
from tpukit.google.tpu_vm import Node, Queued, TpuVms

ZONES_AT_ONCE = 16
RECENT_SECONDS = 10.0
"""Maximum age of the list of another zone."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A TPU VM with the request that created it, or one of the two."""

    zone: str
    name: str
    node: Node | None = None
    queued: Queued | None = None
    blocked: bool = False  # a request for a name that belongs to another's TPU VM

    @property
    def labels(self) -> list[Mapping[str, str]]:
        return [one.labels for one in (self.node, self.queued) if one is not None]

    @property
    def found(self) -> Found:
        node, queued = self.node, self.queued
        return Found(
            self.zone,
            self.name,
            node.state if node else None,
            node.id if node else "",
            queued.state if queued else None,
            queued.id if queued else "",
            self.blocked,
        )


@dataclass(frozen=True, slots=True)
class Zone:
    """The list of one zone; with `error`, the zone could not be listed."""

    name: str
    pieces: Mapping[str, Piece] = field(default_factory=dict)  # by TPU VM name; blocked requests apart
    error: TpukitError | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """The objects of a fleet by slot, and zones that could not be listed."""

    pieces: Mapping[str, Sequence[Piece]]
    hidden: Mapping[str, str] = field(default_factory=dict)  # zone: why

    def zone_of(self, slot: str) -> str:
        """Return the zone of the slot's TPU VM, a READY one if there are several; empty if there is none."""
        ready_first = sorted(self.pieces.get(slot, ()), key=lambda one: one.node is None or one.node.state not in READY)
        return ready_first[0].zone if ready_first else ""

    def marks(self, *slots: str) -> dict[str, str]:
        """Return the marks of these slots (or all), each with the owner's name."""
        chosen = slots or tuple(self.pieces)
        labels = [each for slot in chosen for piece in self.pieces.get(slot, ()) for each in piece.labels]
        return {mark_of(each): each.get(OWNER, "") for each in labels}


def pieces(zone: str, nodes: Iterable[Node], queued: Iterable[Queued]) -> Mapping[str, Piece]:
    requests = {name: one for one in queued for name in one.nodes or (one.name,)}
    found: dict[str, Piece] = {}
    for node in nodes:
        request = requests.pop(node.name, None)
        if request and node.queued != request.name and mark_of(node.labels) != mark_of(request.labels):
            found[f"{node.name} requested"] = Piece(zone, node.name, None, request, blocked=True)
            request = None
        found[node.name] = Piece(zone, node.name, node, request)
    return found | {name: Piece(zone, name, None, one) for name, one in requests.items()}


def read(client: TpuVms, zone: str) -> Zone:
    try:
        # A request that is ACTIVE has its TPU VM: in this order, an ACTIVE one without a TPU VM has lost it.
        queued = client.queued(zone)
        return Zone(zone, pieces(zone, client.nodes(zone), queued))
    except TpukitError as error:
        return Zone(zone, error=error)


def read_all(client: TpuVms, zones: Sequence[str]) -> dict[str, Zone]:
    """List zones concurrently."""
    if not zones:
        return {}
    with ThreadPoolExecutor(max(1, min(ZONES_AT_ONCE, len(zones)))) as pool:
        return dict(zip(zones, pool.map(lambda zone: read(client, zone), zones), strict=True))


def located(client: TpuVms, fleet: str, zones: Sequence[str]) -> Located:
    return of_fleet(fleet, read_all(client, zones).values())


def of_fleet(fleet: str, zones: Iterable[Zone]) -> Located:
    """Return everything that carries the label of a fleet, regardless of its owner."""
    found: dict[str, list[Piece]] = {}
    hidden: dict[str, str] = {}
    for zone in zones:
        if zone.error is not None:
            hidden[zone.name] = str(zone.error)
        for piece in zone.pieces.values():
            slots = {each[SLOT] for each in piece.labels if each.get(FLEET) == fleet and SLOT in each}
            for slot in slots:
                found.setdefault(slot, []).append(piece)
    return Located(found, hidden)


class Recent:
    """A cache of lists of zones that are at most `RECENT_SECONDS` old. Thread-safe."""

    def __init__(self, client: TpuVms, monotonic: Callable[[], float]) -> None:
        self._client, self._monotonic = client, monotonic
        self._read: dict[str, tuple[float, Zone]] = {}

    def note(self, zone: Zone) -> None:
        self._read[zone.name] = self._monotonic(), zone

    def zones(self, names: Iterable[str]) -> dict[str, Zone]:
        wanted, now = list(names), self._monotonic()
        old = [name for name in wanted if name not in self._read or now - self._read[name][0] >= RECENT_SECONDS]
        for zone in read_all(self._client, old).values():
            self.note(zone)
        return {name: self._read[name][1] for name in wanted}
