"""Lost hosts in five kinds of loops: nothing is charged, and no job ends. `make losses` tests many moments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import losses

SEED = 20261118


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[losses.World]:
    with losses.world(tmp_path_factory.mktemp("losses")) as made:
        yield made


def test_host_lost_in_a_loop_of_each_kind_is_charged_to_nobody_and_ends_no_job(world: losses.World):
    results = losses.run(world, SEED, len(losses.KINDS), backs=(3.0,))
    assert [str(one) for one in results if not one.right] == []
    assert [(one.kind, one.losses) for one in results] == [(kind, 1) for kind in losses.KINDS]
