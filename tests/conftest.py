"""Shared fixtures: repeatable property tests, separate homes, and checks for leftover processes and impossible answers.

Helpers that are not fixtures are modules below this folder (`journeys.world`), importable from any test.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.waiting import PATIENCE
from tpubox.box import answer_log as kept_answers

pytest.register_assert_rewrite(
    "store_home", "store_documents_suite", "store_leases_suite", "place_suite", "manager_suite", "manager_kills_suite"
)

# Shells ignore Ctrl-C in background jobs, and nohup ignores hangups. Processes started by tests would inherit both.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# No deadline: loads differ between machines, examples do not.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(scope="session", autouse=True)
def check_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """Compare the answers of the emulators of Google's APIs, here and in sandboxes, with Google's own documents.

    The comparison runs after each test, and when the last sandbox is gone.
    """
    from support.google_answers import check

    file = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kept_answers.VARIABLE, str(file))
        yield partial(check, file)
    check(file)


@pytest.fixture(autouse=True)
def no_answer_that_google_could_not_give(check_answers: Callable[[], None]) -> Iterator[None]:
    yield
    check_answers()


def processes_of(folder: Path) -> dict[int, str]:
    """Return processes whose environment or command line names `folder`.

    Hosts carry it as a mark, shims as an argument.
    """
    mark = os.fsencode(folder)
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if mark in command or mark in (entry / "environ").read_bytes():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield a separate TPUKIT_HOME.

    A process that still runs below it after the test fails the test and is killed.
    """
    folder = tmp_path / "home"
    folder.mkdir()
    yield folder
    until = time.monotonic() + PATIENCE
    while (left := processes_of(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, "the test left processes behind"
