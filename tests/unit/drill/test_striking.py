"""Losses inflicted on real processes and files."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tpukit.core.clock import SystemClock
from tpukit.drill.following import Following
from tpukit.drill.losses import Damage, Loss, What, When
from tpukit.drill.saves import QUIET
from tpukit.drill.sites import Host, LocalSite
from tpukit.drill.striking import Strike

CONTENT = b"x" * 1000


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def save(workdir, step):
    folder = workdir / "checkpoints" / str(step)
    folder.mkdir(parents=True)
    (folder / "state").write_bytes(CONTENT)
    return folder / "state"


@pytest.mark.parametrize("damage", [Damage.TRUNCATE, Damage.CORRUPT])
def test_spoilt_checkpoint_is_the_newest_that_the_dead_left_though_it_ended_after_the_last_look(
    tmp_path, process, damage
):
    clock = SystemClock()
    site = LocalSite(tmp_path, clock)
    folders = site.folders("run")
    log = tmp_path / "log"
    log.write_text("step 13 loss 1.5\n")
    host = Host(0, 0, 0, 0, (log,), (process.pid,))
    following = Following(folders)
    older = save(folders.workdir_path, 12)
    while following.saves.last is None:
        following.poll([host], clock.now())
        time.sleep(QUIET)
    newest = save(folders.workdir_path, 18)

    loss = Loss("spoilt", What.KILL, ((0, 0),), When.SAVED, 6, damage=damage)
    strike = Strike(loss, site, clock, folders.workdir_path, 1.0, 0.0, 0)
    strike.consider(0, {(0, 0): host}, following, clock.now())

    assert strike.damaged == "checkpoints/18/state"
    assert newest.read_bytes() != CONTENT
    assert older.read_bytes() == CONTENT
    assert [(one.attempt, one.saved, one.named) for one in strike.struck] == [(0, 18, True)]
    assert process.wait() == -9
