"""The provisioner killed at every call, with lost answers and refused calls, and a day of all of these."""

from __future__ import annotations

import random

import pytest

from support.provisioner_world import ProvisionerWorld
from support.simulated_gke import Killed
from tpukit.core.errors import TpukitError
from tpukit.provisioner import pool_names


def story(world: ProvisionerWorld) -> None:
    """Run two JobSets: one ends, the other restarts and is deleted. A killed provisioner is started again."""

    def on(seconds: float) -> None:
        due = world.clock.now() + seconds
        while world.clock.now() < due:
            try:
                world.pass_time(5)
            except Killed:
                world.start()
            except TpukitError:  # the loop retries
                continue

    world.cluster.send("one", jobs=2)
    world.cluster.send("two")
    on(300)
    assert world.cluster.running("one") + world.cluster.running("two") == 3
    assert len(world.pools()) == 3
    world.cluster.finish("one")
    world.cluster.restart("two")
    on(400)
    assert world.cluster.running("two") == 1
    world.cluster.delete("two")
    on(400)
    assert world.pools() == []


@pytest.mark.parametrize("fault", ["killed", "killed after", "lost", "refused", "busy", "conflict"])
def test_provisioner_fault_at_any_call_loses_doubles_and_orphans_no_pool(fault):
    good = ProvisionerWorld()
    story(good)
    acts = [n for n, call in enumerate(good.gke.calls, 1) if call.startswith(("create", "delete"))]
    for number in sorted({*acts, *range(1, acts[-1], 17)}):
        world = ProvisionerWorld()
        world.gke.faults = {number: fault}
        story(world)


def test_provisioner_killed_at_every_call_in_a_row_still_gets_there():
    world = ProvisionerWorld()
    world.gke.faults = {n: "killed after" if n % 2 else "killed" for n in range(1, 120, 3)}
    story(world)


@pytest.mark.parametrize("seed", range(2))
def test_provisioner_day_of_preemptions_stock_outs_and_quotas_leaks_nothing_and_starves_nobody(seed):
    dice = random.Random(seed)
    world = ProvisionerWorld(
        seed, zones=("us-central2-b", "us-central2-c"), capacity="spot,on-demand", node_timeout="900", error_limit="50"
    )
    world.gke.seconds = (60.0, 400.0)
    ended = number = 0
    alive: list[str] = []
    while world.clock.now() < 1_700_000_000.0 + 86_400 * 0.9:
        _meanwhile(world, dice)
        if len(alive) < 6 and dice.random() < 0.1:
            number += 1
            alive.append(f"job-{number}")
            world.cluster.send(alive[-1], jobs=dice.randint(1, 3))
        for name in list(alive):
            if world.cluster.running(name) == len(world.cluster.pods_of(name)) and dice.random() < 0.03:
                ended += 1
                alive.remove(name)
                world.cluster.delete(name) if dice.random() < 0.3 else world.cluster.finish(
                    name, dice.choice(["Completed", "Failed"])
                )
        _on(world, 60)
    # The faults stop: waiting jobs can run, and leftovers are removed.
    world.gke.stock.clear()
    world.gke.quota, world.gke.trouble = None, lambda: ""
    world.gke.breaks.clear()
    _on(world, 86_400 * 0.1)
    assert ended > 10
    for name in alive:
        assert world.cluster.running(name) == len(world.cluster.pods_of(name)), name
    slices = sum(len(world.cluster.pods_of(name)) for name in alive)
    owners = {doc["body"]["config"]["labels"][pool_names.JOBSET] for doc in world.gke.pool_docs.values()}
    assert len(world.pools()) >= slices
    for name in alive:
        world.cluster.finish(name)
    _on(world, 3000)
    assert world.pools() == [], owners


def _meanwhile(world: ProvisionerWorld, dice: random.Random) -> None:
    throw = dice.random()
    if throw < 0.02:
        world.gke.stock[dice.choice(world.zones), "spot"] = dice.choice([0, 16, 64])
    elif throw < 0.03:
        world.gke.stock.clear()
    elif throw < 0.04:
        world.gke.quota = dice.choice([None, 16, 64, 256])
    elif throw < 0.06:
        world.gke.breaks[""] = 1
    elif throw < 0.08:
        world.start()  # another replica takes over
    elif throw < 0.12 and world.pools():
        name = dice.choice(world.pools())
        doc = world.gke.pool_docs[name]
        if doc["body"]["config"].get("spot") and doc["status"] == "RUNNING":
            world.cluster.remove_hosts(name)  # these hosts do not return
    world.gke.trouble = lambda: dice.choices(["", "lost", "refused", "busy"], [95, 2, 2, 1])[0]


def _on(world: ProvisionerWorld, seconds: float) -> None:
    due = world.clock.now() + seconds
    while world.clock.now() < due:
        try:
            world.pass_time(30, step=30)
        except TpukitError:
            continue
