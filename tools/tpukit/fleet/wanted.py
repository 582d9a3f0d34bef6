"""The plan of a fleet, in the bucket beside its output: enough for a driver on any machine."""

from __future__ import annotations

import msgspec

from tpukit.core.errors import Invalid, NotFound
from tpukit.fleet import dataset, records
from tpukit.fleet.records import Work, Worker


class Plan(msgspec.Struct, frozen=True):
    name: str
    zones: list[str]
    workers_per_zone: int
    tpu_type: str
    spot: bool = True
    elsewhere: bool = True  # whether workers may move to another of the zones
    move_after: float = 300.0  # seconds without hardware
    work: Work | None = None
    owner: str = ""  # empty in plans of earlier versions
    store: str = ""
    unattended: float = 0.0

    @property
    def mark(self) -> str:
        return f"{self.owner}/{self.store}"

    def workers(self, now: float) -> list[Worker]:
        return records.plan(
            *(self.name, self.zones, self.workers_per_zone, self.tpu_type, now),
            spot=self.spot,
            elsewhere=self.elsewhere,
            move_after=self.move_after,
            work=self.work,
            owner=self.owner,
            store=self.store,
            unattended=self.unattended,
        )


def root_of(bucket: str) -> str:
    """Return gs://BUCKET for a bucket name or address; the path of a folder shared by all hosts is kept."""
    return bucket.rstrip("/") if bucket.startswith(("gs://", "/")) else f"gs://{bucket.rstrip('/')}"


def save(plan: Plan, bucket: str) -> None:
    content = msgspec.json.format(msgspec.json.encode(plan))
    dataset.save(_address(plan.name, bucket), content, "application/json")


def load(name: str, bucket: str) -> Plan:
    address = _address(name, bucket)
    try:
        return msgspec.json.decode(dataset.read(address), type=Plan)
    except (NotFound, FileNotFoundError) as error:
        raise NotFound(f"there is no {address}", hint="run `tpu fleet deploy` to write it") from error
    except msgspec.DecodeError as error:
        raise Invalid(f"{address}: {error}", hint="run `tpu fleet deploy` again to write a new one") from error


def _address(name: str, bucket: str) -> str:
    return f"{root_of(bucket)}/fleets/{name}/plan.json"
