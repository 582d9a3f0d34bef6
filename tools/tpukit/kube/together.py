"""Run several reads of one command at the same time: it waits for the slowest instead of their sum."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def together(*reads: Callable[[], Any]) -> list[Any]:
    """Return the result of each read, in order. Raise the error of the first that failed."""
    results: list[Any] = [None] * len(reads)
    errors: list[BaseException | None] = [None] * len(reads)

    def run(number: int) -> None:
        try:
            results[number] = reads[number]()
        except BaseException as error:  # raised where the results are collected  # noqa: BLE001
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
