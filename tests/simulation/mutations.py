"""Take each fix out, one at a time, and report which seed finds that and how fast: `python -m simulation.mutations`.

A mutation is a piece of the product's source and what stands there without the fix. It is applied to a temporary copy
of the product, which the simulator then runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tpukit
from simulation.mutation import Mutation
from simulation.mutations_cluster import CLUSTER
from simulation.simulator import Simulator

PRODUCT = Path(tpukit.__file__).parent
TESTS = Path(__file__).parents[1]


MUTATIONS = (
    Mutation(
        "f",
        "acts are not fenced",
        "fence.py",
        "    return current() if current is not None else math.inf\n",
        "    return math.inf\n",
    ),
    Mutation(
        "f",
        "the age of a lease leaves out suspended time",
        "control/leases.py",
        "self._clock.elapsed()",
        "self._clock.monotonic()",
    ),
    Mutation(
        "g",
        "a driver that cannot observe a group keeps its leases",
        "control/kernel.py",
        "            if blind:  # let another driver try\n",
        "            if False:\n",
    ),
    Mutation(
        "a g",
        "a driver that cannot drive a key keeps its lease",
        "control/kernel.py",
        "            if self._keys.lasted(entry.key) >= BLIND_SECONDS and _is_blindness(error):\n",
        "            if False:\n",
    ),
    Mutation(
        "b",
        "hosts that are all silent have ended",
        "places/tpu_vm/outcome.py",
        "    if len(silent) == len(reports):\n        return Judgement(seen, unseen=True)\n",
        "    if len(silent) == len(reports) and all(one.silent >= SILENT_SECONDS for one in reports):\n"
        "        return Judgement(replace(seen, state=State.FAILED, reason=Reason.HOST_LOST, active=False))\n",
    ),
    Mutation(
        "a",
        "a driver with another key is not admitted to a running attempt",
        "places/tpu_vm/observing.py",
        "replace(judged.observation, follow_up=FollowUp(admit=True))",
        "judged.observation",
    ),
    Mutation(
        "d",
        "sweeps take unreadable records for ended ones",
        "places/tpu_vm/sweeping.py",
        " | jobs.unreadable\n",
        "\n",
    ),
    Mutation(
        "e",
        "a driver without the code fails the job",
        "places/tpu_vm/shared_code.py",
        "        if not (self.shelf / digest).exists():\n            self._fetch(plan, digest)\n",
        "",
    ),
    Mutation(
        "e",
        "a driver without the code keeps the job from one that has it",
        "places/tpu_vm/shared_code.py",
        "raise Transient(missing",
        'raise __import__("tpukit").errors.NotYet(missing',
    ),
    Mutation(
        "k",
        "one slow list of node pools blinds the provisioner",
        "provisioner/pool_cache.py",
        "min(_LONGEST_WAIT, _SHARE * self._took)",
        "_SHARE * self._took",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation.mutations", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--only", default="", help="Part of the name of the mutations to run.")
    parser.add_argument("--scene", default="", help="Only mutations that are looked for in this scene.")
    options = parser.parse_args()
    missed = 0
    print("| case | fix taken out | found by seed | invariant | seeds a second | seconds |\n|---|---|---|---|---|---|")
    for mutation in (*MUTATIONS, *CLUSTER):
        if options.only in mutation.name and options.scene in ("", mutation.scene):
            found = run(mutation, options.seeds)
            missed += not found
            print(f"| {mutation.cases} | {mutation.name} | {found or 'not found'} |", flush=True)
    return int(bool(missed))


def run(mutation: Mutation, seeds: int) -> str:
    """Return the first seed that finds the mutation, the invariant that broke, and how long that took."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tools" / "tpukit"
        for name in ("jobset", "kueue"):  # what the product reads beside its package
            (Path(folder) / name).symlink_to(PRODUCT.parents[1] / name)
        shutil.copytree(PRODUCT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name, fixed, broken in ((mutation.file, mutation.fixed, mutation.broken), *mutation.also):
            text = (copy / name).read_text(encoding="utf-8")
            if fixed not in text:
                raise SystemExit(f"{mutation.name}: {name} has not got the fix that is to be taken out")
            (copy / name).write_text(text.replace(fixed, broken), encoding="utf-8")
        began = time.monotonic()
        path = os.pathsep.join((str(copy.parent), str(TESTS)))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        words = [sys.executable, "-m", "simulation", "--seeds", str(seeds), "--until-found"]
        words += ["--scene", mutation.scene] if mutation.scene else []
        done = subprocess.run(words, cwd=TESTS, env=env, capture_output=True, text=True)
        took = time.monotonic() - began
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode == 0:
        return ""
    if not last.startswith("found "):
        raise SystemExit(f"{mutation.name}: the simulator itself failed\n{done.stderr[-2000:]}")
    _, seed, invariant = last.split(" ", 2)
    with Simulator() as simulator:
        if simulator.seed(int(seed), mutation.scene).violation:
            raise SystemExit(f"seed {seed} breaks without the mutation, too: {mutation.name}")
    return f"{seed} | {invariant} | {(int(seed) + 1) / took:.0f} | {took:.1f}"


if __name__ == "__main__":
    sys.exit(main())
