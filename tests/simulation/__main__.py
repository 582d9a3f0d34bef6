"""Run seeds on all cores: `python -m simulation --seeds N [--first K]`; replay one, with its history: `--seed K`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from simulation.simulator import Simulator
from simulation.world import Result

CHUNK = 50


def _some(seeds: range, scene: str = "") -> list[tuple[int, str, str]]:
    with Simulator() as simulator:
        results = [(seed, simulator.seed(seed, scene)) for seed in seeds]
        return [(seed, one.violation.invariant, one.violation.text) for seed, one in results if one.violation]


def show(result: Result, *, trace: bool) -> None:
    for line in result.plan.history:
        print("  ", line)
    if trace:
        print("\n".join(result.lines))
    violation = result.violation
    print(f"{violation.invariant} at {violation.at:.1f} s: {violation.text}" if violation else "no violation")
    print(f"trace {result.digest}, {result.calls} calls, {result.seconds:.0f} simulated seconds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--scene", default="", help="Run every seed in this scene.")
    parser.add_argument("--until-found", action="store_true", help="Stop at the first violation, without its history.")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--progress", type=int, default=0, help="Report after every N seeds.")
    options = parser.parse_args()
    if options.seed is not None:
        with Simulator() as simulator:
            result = simulator.seed(options.seed, options.scene, kept=True)
            show(simulator.shrink(result) if options.shrink and result.violation else result, trace=True)
        return int(result.violation is not None)
    began = time.monotonic()
    last = options.first + options.seeds
    size = 10 if options.until_found else CHUNK
    chunks = [range(start, min(start + size, last)) for start in range(options.first, last, size)]
    found: list[tuple[int, str, str]] = []
    with ProcessPoolExecutor(options.processes) as pool:
        waiting = {pool.submit(_some, chunk, options.scene): chunk for chunk in chunks}
        for future, chunk in waiting.items():
            found += future.result()
            before, done = chunk.start - options.first, chunk.stop - options.first
            if options.progress and done // options.progress > before // options.progress:
                names = ", ".join(f"{seed} {name}" for seed, name, _ in found)
                print(f"{done} seeds in {time.monotonic() - began:.0f} s: {names or 'clean'}", flush=True)
            if found and options.until_found:
                pool.shutdown(wait=False, cancel_futures=True)
                print(f"found {found[0][0]} {found[0][1]}")
                return 1
    took = time.monotonic() - began
    print(f"{options.seeds} seeds in {took:.1f} s ({options.seeds / took:.0f} a second): {len(found)} violations")
    for invariant, count in Counter(name for _, name, _ in found).most_common():
        print(f"  {invariant}: {count}, seeds {[seed for seed, name, _ in found if name == invariant][:12]}")
    if found:
        seed = found[0][0]
        print(f"\nShortest history of seed {seed}:")
        with Simulator() as simulator:
            show(simulator.shrink(simulator.seed(seed, options.scene)), trace=True)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
