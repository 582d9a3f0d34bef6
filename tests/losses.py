"""Inject power losses of hosts into jobs in five kinds of loops, at moments that a seed chooses.

    make losses MOMENTS=50 SEED=1

Runs a real sandbox with JobSet and Kueue, JAX processes, and `tpu serve` as the only driver. Lost hardware must never
be charged to the user, and must never end a job: each job is released after its losses, and has to complete.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.box import TEAM, V4_16, ZONE, Box, Doc, sandbox, until
from support.person import Person
from tpubox.kubelet import of_slice
from tpukit.jobs import history
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.local import processes as pods

KINDS = ("allgather", "device_put", "psum", "orbax", "input_wait")
PROGRAM = Path(__file__).resolve().parent / "fixtures" / "loss_programs"
BUCKET = "my-runs"
PER_JOB = 3
"""Losses per job: with 50 moments, each kind has a job of each variant."""
AFTER_SECONDS = 3.0
"""Maximum seconds from the first step of an attempt to the loss of a host."""
BACKS = (2.0, 6.0, 15.0, 30.0, 60.0)
"""Seconds until the host is back. Kubernetes considers a node lost after 40."""


@dataclass(frozen=True, slots=True)
class Moment:
    after: float
    host: int
    back: float


@dataclass(slots=True)
class Result:
    kind: str
    job: str
    losses: int
    restarts: int  # max.restarts
    plain: bool
    charged: int = 0
    state: str = ""
    said: str = ""
    reasons: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return not self.charged and self.state == State.COMPLETED

    def __str__(self) -> str:
        how = f"{self.kind}{' plain' if self.plain else ''}, max.restarts {self.restarts}"
        ends = ", ".join(self.reasons)
        return f"{self.job} ({how}): {self.losses} losses, {self.charged} charged, {self.state} {self.said} [{ends}]"


def moments(seed: int, kind: str, count: int, backs: Sequence[float] = BACKS) -> list[Moment]:
    chance = random.Random(f"{seed} {kind}")
    return [Moment(chance.uniform(0, AFTER_SECONDS), chance.randrange(2), chance.choice(backs)) for _ in range(count)]


class World:
    """A sandbox with a slice of two hosts for each kind of loop, and a running `tpu serve`."""

    def __init__(self, box: Box) -> None:
        self.box = box
        for number in range(len(KINDS)):
            box.agent.add_pool(of_slice(f"tpu-{number}", V4_16, ZONE, capacity="spot"))
        box.add_queue(len(KINDS))
        box.ask("POST", "storage/v1/b?project=tpu-project", {"name": BUCKET, "location": "US"})
        self.person = Person(box.home / "ada", box.place.kubeconfig)
        self.store = SqliteStore(self.person.home / "state" / "store.db")

    def lose(self, kind: str, number: int, ordered: Sequence[Moment]) -> Result:
        """Send one job, lose hosts of it at these moments, and return how it ended."""
        index = KINDS.index(kind)
        plain, restarts = (index + number) % 2 == 0, 3 * ((index + number) // 2 % 2)
        name = f"{kind.replace('_', '-')}-{number}"
        words = ("python", "loop.py", kind, *(["plain"] if plain else []))
        mounts = [{"bucket": BUCKET, "path": "/runs", "read_only": False}]
        file = self.person.job(
            name,
            *words,
            slices=1,
            rule="pre",
            code=str(PROGRAM),
            mounts=mounts,
            workdir=f"/runs/{name}",
            max={"restarts": restarts, "grace": "2s"},
        )
        job = self.person.tpu("run", file, "--place", "gke", "--detach").stdout.strip()
        result = Result(kind, job, 0, restarts, plain)
        attempt = -1
        for moment in ordered:
            attempt = self._begun(job, name, attempt)
            if attempt < 0:
                break
            time.sleep(moment.after)
            nodes = self._nodes(job)
            if len(nodes) < 2:
                continue  # it ended on its own in this moment, as recorded
            self.box.agent.lose(nodes[moment.host], back=moment.back)
            result.losses += 1
        else:
            self._begun(job, name, attempt)
        (self._workdir(name) / "release").touch()
        until(lambda: self._job(job).state.ended, f"{job} to end")
        ended = self._job(job)
        result.state, result.said = str(ended.state), ended.message
        result.charged = history.restarts(history.fold(ended.folded, ended.attempts))
        result.reasons = [str(one.reason) for one in ended.attempts]
        return result

    def _begun(self, job: str, name: str, after: int) -> int:
        """Return the number of an attempt after `after` with all hosts in their loop, or -1 if the job has ended."""

        def there() -> tuple[int] | None:
            if self._job(job).state.ended:
                return (-1,)
            marks = [one.name.split("-") for one in self._workdir(name).glob("marks/*")]
            numbers = [int(number) for number, _ in marks]
            return next(((one,) for one in sorted(set(numbers)) if one > after and numbers.count(one) == 2), None)

        return until(there, f"an attempt of {job} after {after}")[0]

    def _nodes(self, job: str) -> list[str]:
        """Return the nodes of its running hosts, in order."""
        found: list[Doc] = self.box.cluster.list("Pod", TEAM, labels=f"jobset.sigs.k8s.io/jobset-name={job}")
        running = [
            one for one in found if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
        ]
        running.sort(key=lambda one: str(one["metadata"]["name"]))
        return [str(one["spec"]["nodeName"]) for one in running]

    def _workdir(self, name: str) -> Path:
        return self.box.place.path / "google" / "buckets" / BUCKET / name

    def _job(self, job: str) -> Job:
        return self.store.get(JOBS, job).value


@contextmanager
def world(home: Path) -> Iterator[World]:
    with sandbox(home, "losses") as box:
        made = World(box)
        serve = made.person.start("serve")
        try:
            yield made
        finally:
            serve.terminate()
            serve.wait()
            made.store.close()
            pods.kill_strays(made.person.home)


def run(made: World, seed: int, count: int, backs: Sequence[float] = BACKS) -> list[Result]:
    """Inject `count` losses, the same number in each kind of loop, with one job of each kind at a time."""

    def one_kind(kind: str) -> list[Result]:
        left, results = moments(seed, kind, -(-count // len(KINDS)), backs), []
        while left:
            results.append(made.lose(kind, len(results), left[:PER_JOB]))
            left = left[PER_JOB:]
            print(results[-1], flush=True)
        return results

    with ThreadPoolExecutor(len(KINDS)) as threads:
        return [one for results in threads.map(one_kind, KINDS) for one in results]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="losses-") as folder, world(Path(folder)) as made:
        results = run(made, given.seed, given.moments)
    losses, charged = sum(one.losses for one in results), sum(one.charged for one in results)
    ended = sum(1 for one in results if one.state != State.COMPLETED)
    print(f"{losses} losses in {len(results)} jobs: {charged} charged, {ended} jobs ended before their release")
    return 0 if all(one.right for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
