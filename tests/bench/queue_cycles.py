"""One side of the queue comparison: processes that send, claim and complete jobs in one SQLite file.

    python queue_cycles.py tpukit|huey FOLDER PROCESSES JOBS

Prints the cycles per second, from when all processes have begun until the last job is completed. The jobs run no code,
so the result is the cost of the queue itself.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE = 240.0
"""Seconds to wait for an answer: a process that died leaves none."""


def tpukit(folder: Path, number: int, jobs: int, barrier: Any) -> int:
    from tpukit.code_queue import claims
    from tpukit.code_queue.client import Client
    from tpukit.code_queue.decide import Outcome
    from tpukit.jobs.reasons import Reason
    from tpukit.kernel.store.process import this_process
    from tpukit.kernel.store.sqlite import SqliteStore

    store = SqliteStore(folder / "store.db")
    client, holder, dice = Client(store), this_process(), random.Random(number)
    barrier.wait()
    done = 0
    for index in range(jobs):
        client.submit(f"result = {index}")
        claim = claims.take(store, holder, dice)
        done += claim is not None and claims.finish(store, claim, Outcome(Reason.DONE, "1")) is not None
    while claim := claims.take(store, holder, dice):
        done += claims.finish(store, claim, Outcome(Reason.DONE, "1")) is not None
    store.close()
    return done


def huey(folder: Path, number: int, jobs: int, barrier: Any) -> int:
    from huey import SqliteHuey

    # huey's writers give up after five seconds by default; ours wait for twenty.
    queue = SqliteHuey(filename=str(folder / "huey.db"), timeout=20)

    @queue.task()
    def work(index: int) -> str:
        return "1"

    barrier.wait()
    done = 0
    for index in range(jobs):
        work(index)
        task = queue.dequeue()
        done += task is not None and queue.execute(task) == "1"
    while task := queue.dequeue():
        done += queue.execute(task) == "1"
    return done


def main(side: str, folder: Path, processes: int, jobs: int) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(processes + 1), context.Queue()
    share = jobs // processes
    workers = [
        context.Process(target=_run, args=(side, folder, number, share, barrier, answers))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    done = 0
    for _ in workers:
        done += answers.get(timeout=PATIENCE)
    took = time.perf_counter() - began
    for worker in workers:
        worker.join()
    if done != share * processes:
        sys.exit(f"{done} of {share * processes} jobs were done")
    print(f"{done / took:.1f}")


def _run(side: str, folder: Path, number: int, jobs: int, barrier: Any, answers: Any) -> None:
    answers.put({"tpukit": tpukit, "huey": huey}[side](folder, number, jobs, barrier))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
