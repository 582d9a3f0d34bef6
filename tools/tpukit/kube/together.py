"""Several reads of one command at the same time: a command waits for the slowest instead of for their sum."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def together(*reads: Callable[[], Any]) -> list[Any]:
    """Return what each read returns, in their order. The error of the first that failed is raised."""
    results: list[Any] = [None] * len(reads)
    errors: list[BaseException | None] = [None] * len(reads)

    def run(number: int) -> None:
        try:
            results[number] = reads[number]()
        except BaseException as error:
            errors[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(1, len(reads))]
    for one in threads:
        one.start()
    run(0)
    for one in threads:
        one.join()
    for error in errors:
        if error is not None:
            raise error
    return results
