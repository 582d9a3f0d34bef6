"""Remove each fix, one at a time, and report which seed finds that and how fast: `python -m simulation.mutations`.

A mutation is a piece of the product's source and its replacement without the fix. It is applied to a temporary copy of
the product, which the simulator then runs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tpukit
from simulation import mutation_table
from simulation.mutation import Mutation
from simulation.simulator import Simulator

PRODUCT = Path(tpukit.__file__).parent
TESTS = Path(__file__).parents[1]


MUTATIONS = (
    Mutation(
        "a",
        "a driver with another key is not admitted to a running attempt",
        "places/tpu_vm/observing.py",
        "replace(judged.observation, follow_up=FollowUp(admit=True))",
        "judged.observation",
        "jobs",
    ),
    Mutation(
        "a g",
        "a driver that cannot drive a key keeps its lease",
        "kernel/controller.py",
        "            if self._keys.lasted(entry.key) >= BLIND_SECONDS and _is_blindness(error):\n",
        "            if False:\n",
        "jobs",
    ),
    Mutation(
        "b",
        "hosts that are all silent have ended",
        "places/tpu_vm/outcome.py",
        "    if len(silent) == len(reports):\n        return Judgement(seen, unseen=True)\n",
        "    if len(silent) == len(reports) and all(one.silent >= SILENT_SECONDS for one in reports):\n"
        "        return Judgement(replace(seen, state=State.FAILED, reason=Reason.HOST_LOST, active=False))\n",
        "jobs",
    ),
    Mutation(
        "c",
        "a fleet takes silent hosts for dead without a witness or a look into the bucket",
        "fleet/observe.py",
        "replace(one, witness=witness and not one.host)",
        "replace(one, witness=not one.host)",
        "fleet",
        (
            (
                "fleet/driver.py",
                "        mark, now = (seen.node_id, seen.shards, seen.beat)",
                "        mark, now = seen.node_id",
            ),
        ),
    ),
    Mutation(
        "d",
        "sweeps take unreadable records for ended ones",
        "places/tpu_vm/sweeping.py",
        " | jobs.unreadable\n",
        "\n",
        "jobs",
        (
            (
                "jobs/controller/driver.py",
                "                yield not is_active(self._store, job_id)\n",
                "                yield True\n",
            ),
        ),
    ),
    Mutation(
        "e",
        "a driver without the code fails the job",
        "places/tpu_vm/shared_code.py",
        "        if not (self.shelf / digest).exists():\n            self._fetch(plan, digest)\n",
        "",
        "jobs",
    ),
    Mutation(
        "e",
        "a driver without the code keeps the job from one that has it",
        "places/tpu_vm/shared_code.py",
        "raise Transient(missing",
        'raise __import__("tpukit").core.errors.NotYet(missing',
        "jobs",
    ),
    Mutation(
        "f",
        "acts are not fenced",
        "core/fence.py",
        "    return current() if current is not None else math.inf\n",
        "    return math.inf\n",
        "jobs",
    ),
    Mutation(
        "f",
        "acts of fleets are not fenced",
        "core/fence.py",
        "    return current() if current is not None else math.inf\n",
        "    return math.inf\n",
        "fleet",
    ),
    Mutation(
        "f",
        "the age of a lease leaves out suspended time",
        "kernel/leases.py",
        "self._clock.elapsed()",
        "self._clock.monotonic()",
        "jobs",
    ),
    Mutation(
        "g",
        "a driver that cannot observe a group keeps its leases",
        "kernel/controller.py",
        "            if blind:  # let another driver try\n",
        "            if False:\n",
        "jobs",
    ),
    Mutation(
        "h",
        "TPU VMs of a fleet are treated as ours, whatever their owner label says",
        "fleet/records.py",
        "        return mark_of(labels) in (self.mark, *self.adopted)\n",
        "        return True\n",
        "fleet",
    ),
    Mutation(
        "j",
        "the record of a job keeps all its attempts",
        "jobs/controller/decide.py",
        "        history.compacted(launched), Act.SUBMIT",
        "        launched, Act.SUBMIT",
        "jobs",
    ),
    Mutation(
        "l",
        "a document that cannot be written is not ended",
        "code_queue/claims.py",
        "                end_unfit(store, entry, entry.value, str(error))\n                continue\n",
        "                raise\n",
        "queue",
        (
            (
                "code_queue/driver.py",
                "            written = self._store.put(TPU_JOBS, smaller, ended, lease=lease, events=events)\n",
                "            raise\n",
            ),
        ),
    ),
    Mutation(
        "l",
        "documents with another status are never ended",
        "code_queue/driver.py",
        "            self._records.end_strangers()\n",
        "            pass\n",
        "queue",
    ),
    Mutation(
        "l",
        "odd values in fields that are not the program's make its document unreadable",
        "code_queue/records.py",
        "    return {name: value for name, value in doc.items() if name not in OWN or _fits(value, OWN[name])}\n",
        "    return doc\n",
        "queue",
    ),
    Mutation(
        "m",
        "a full disk stops the jobs whose logs are copied to it",
        "places/tpu_vm/log_store.py",
        "        except OSError:\n            return False\n\n    def position",
        "        except ZeroDivisionError:\n            return False\n\n    def position",
        "jobs",
    ),
    Mutation(
        "r",
        "a stop waits for the end of a back-off",
        "kernel/retry_state.py",
        "            return self._revisions.get(name, revision) != revision\n",
        "            return False\n",
        "jobs",
    ),
    Mutation(
        "s",
        "leases of jobs that ended elsewhere are never released",
        "kernel/controller.py",
        "        if ended:\n            self._leases.release(*map(self._lease_name, ended))\n",
        "",
        "jobs",
    ),
    Mutation(
        "s",
        "a driver remembers the hosts of all attempts",
        "places/tpu_vm/observing.py",
        "        self._forget(handles, machines)\n",
        "",
        "jobs",
        (
            (
                "places/tpu_vm/observing.py",
                "        self.hosts.keep_only(zone, {one.id for one in nodes.values()})\n",
                "",
            ),
        ),
    ),
    Mutation(
        "t",
        "machines from one image are one machine",
        "kernel/store/process.py",
        '    return f"{boot}/{_text(_MACHINE_ID)}/{host}/{namespace}"\n',
        '    return f"{_text(_MACHINE_ID)}/{host}/{namespace}"\n',
        "jobs",
    ),
    Mutation(
        "u",
        "records do not wait for the disk",
        "kernel/store/sqlite.py",
        "durable=kind.plain is None",
        "durable=False",
        "jobs",
    ),
    Mutation(
        "unattended",
        "hosts are not told the limit for hardware without a driver",
        "places/tpu_vm/asking.py",
        '            "unattended": _unattended(plan, machines.nodes[slice_index] or first),\n',
        '            "unattended": {},\n',
        "jobs",
    ),
    Mutation(
        "w",
        "one report that cannot be read stops the fleet in its zone",
        "fleet/reach.py",
        "    except (KeyError, TypeError, ValueError, AttributeError) as error:\n        return Sight",
        "    except ZeroDivisionError as error:\n        return Sight",
        "fleet",
        (("fleet/reach.py", "    except (ValueError, RecursionError):\n", "    except ZeroDivisionError:\n"),),
    ),
    Mutation(
        "w",
        "one sample that is not JSON stops its stream",
        "host/shards.py",
        '        except (ValueError, RecursionError) as error:\n            _log.warning("%s, sample',
        '        except ZeroDivisionError as error:\n            _log.warning("%s, sample',
        "fleet",
    ),
)


def every() -> tuple[Mutation, ...]:
    """Return the mutations of this file and those of clusters."""
    try:
        cluster = importlib.import_module("simulation.mutations_cluster")
    except ModuleNotFoundError:
        return MUTATIONS
    return (*MUTATIONS, *getattr(cluster, "MUTATIONS", getattr(cluster, "CLUSTER", ())))


def edits(mutation: Mutation) -> tuple[tuple[str, str, str], ...]:
    """Return all changes: file, fixed, broken."""
    return (mutation.file, mutation.fixed, mutation.broken), *mutation.also


@dataclass(frozen=True, slots=True)
class Found:
    seed: int  # -1: not found
    invariant: str
    seeds: int  # that were run
    seconds: float  # CPU time, because other tests may run in parallel
    first: int = 0

    @property
    def row(self) -> str:
        seed = f"{self.seed} ({self.invariant})" if self.seed >= 0 else f"none of {self.seeds}"
        start = f", searched from {self.first}" if self.first else ""
        return f"{seed}{start} | {self.seconds:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation.mutations", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="Part of the name of the mutations to run.")
    parser.add_argument("--case", default="", help="Letter of the case whose mutations to run.")
    parser.add_argument("--find", metavar="SCENE", help=argparse.SUPPRESS)  # used in the process that runs the copy
    parser.add_argument("--table", action="store_true", help="Write the results into the table of README.md.")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.find is not None:
        return find(options.find, seeds)
    missed = 0
    for mutation in sorted(every(), key=lambda one: one.cases):
        if options.only in mutation.name and options.case in ("", *mutation.cases.split()):
            found = run(mutation, seeds)
            missed += found.seed < 0
            print(f"{mutation.cases}: {mutation.name} ({mutation.scene or 'all'}): {found.row} s", flush=True)
            if options.table:
                mutation_table.write(every(), {mutation_table.fixed_part(mutation): found.row})
    return int(bool(missed))


def find(scene: str, seeds: range) -> int:
    """Print the first seed that breaks an invariant, and the invariant."""
    with Simulator() as simulator:
        for seed in seeds:
            if violation := simulator.seed(seed, scene).violation:
                print(f"found {seed} {violation.invariant}")
                return 1
    print("found nothing")
    return 0


def run(mutation: Mutation, seeds: range) -> Found:
    """Run seeds without the fix until one breaks an invariant that holds with the fix."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tools" / "tpukit"
        shutil.copytree(PRODUCT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("jobset", "kueue"):  # data that the product reads beside its package
            (Path(folder) / name).symlink_to(PRODUCT.parents[1] / name)
        for name, fixed, broken in edits(mutation):
            text = (copy / name).read_text(encoding="utf-8")
            if fixed not in text:
                raise SystemExit(f"{mutation.name}: {name} has not got the fix that is to be taken out")
            (copy / name).write_text(text.replace(fixed, broken), encoding="utf-8")
        seed, invariant = _first(copy.parent, mutation, seeds)
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return Found(seed, invariant, seed - seeds.start + 1 if seed >= 0 else len(seeds), took, seeds.start)


def _first(product: Path, mutation: Mutation, seeds: range) -> tuple[int, str]:
    while seeds:
        path = os.pathsep.join((str(product), str(TESTS)))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        words = [sys.executable, "-m", "simulation.mutations", "--find", mutation.scene]
        words += ["--seeds", str(len(seeds)), "--first", str(seeds.start)]
        done = subprocess.run(words, cwd=TESTS, env=env, capture_output=True, text=True)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        if last == "found nothing":
            break
        if not last.startswith("found "):
            raise SystemExit(f"{mutation.name}: the simulator itself failed\n{done.stderr[-2000:]}")
        _, seed, invariant = last.split(" ", 2)
        with Simulator() as simulator:
            if not simulator.seed(int(seed), mutation.scene).violation:
                return int(seed), invariant
        seeds = range(int(seed) + 1, seeds.stop)  # it also breaks with the fix, so it proves nothing
    return -1, ""


if __name__ == "__main__":
    sys.exit(main())
