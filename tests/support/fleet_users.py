"""Users of one project, each with their own store and driver, who run `tpu fleet` on one simulated cloud."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.fleet_world import World
from tpukit.cli import context, fleet_driving, fleet_owner, vms
from tpukit.cli.fleet import command
from tpukit.fleet import driver
from tpukit.fleet.records import Worker
from tpukit.kernel.store.sqlite import SqliteStore


@dataclass
class User:
    name: str
    world: World
    store: SqliteStore
    patch: pytest.MonkeyPatch
    sender: str = ""

    def type(self, line: str, said: str = "") -> Result:
        """Run a command of this user; `said` is the input on a terminal."""
        with self.patch.context() as patch:
            patch.setattr(context, "store", lambda: self.store)
            patch.setattr(context, "owner", lambda: self.name)
            patch.setattr(context, "sender", lambda: self.sender or f"store of {self.name}")
            patch.setattr(vms, "cloud", lambda: self.world.cloud)
            patch.setattr(fleet_driving, "acting", self.world.acting)
            patch.setattr(fleet_driving, "LONGEST_TICK", 0.02)
            patch.setattr(fleet_owner, "is_terminal", lambda: bool(said))
            return CliRunner().invoke(command, line.split(), input=said)

    def run(self, line: str) -> str:
        done = self.type(line)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def workers(self, fleet: str) -> list[Worker]:
        return driver.of(self.store, fleet)


def users(world: World, folder: Path, patch: pytest.MonkeyPatch, *names: str) -> list[User]:
    patch.setenv("TPUKIT_HOME", str(folder / "home"))
    stores = [SqliteStore(folder / f"{name}.db", now=world.clock.now) for name in names]
    world.stores += stores
    return [User(name, world, store, patch) for name, store in zip(names, stores, strict=True)]
