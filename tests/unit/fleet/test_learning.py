"""Workers learn which zones have TPU VMs, and choose by expected cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tpukit.fleet import learning, records
from tpukit.fleet.decide import Create, Delete, Seen, decide, refused
from tpukit.goodput.zone_odds import Odds
from tpukit.kernel.store.codec import decode, encode, to_json

ZONES = ["us-central1-a", "us-central1-b", "us-central1-f", "europe-west4-a"]
START = 1e6
HOUR = 3600.0


def worker(**fields):
    return records.Worker("f", ZONES, 0, "v3-8", 1.0, **{"zone": ZONES[0], "wanted": "ready", **fields})


def teacher(**odds):
    """Return a worker of another fleet, which is gone and has learnt this."""
    return replace(
        worker(state="gone"), fleet="other", odds={zone.replace("_", "-"): one for zone, one in odds.items()}
    )


def offered(one, *others, now=START):
    return learning.offers(one, others, now)


BAD = Odds(START, tried=5.0, waited=5 * HOUR)
GOOD = Odds(START, tried=5.0, came=5.0, waited=300.0, lived=50 * HOUR)
SHORT_LIVED = Odds(START, tried=20.0, came=20.0, waited=600.0, lost=20.0, lived=20 * 900.0)


def test_wait_and_life_of_a_tpu_vm_are_learnt_from_what_google_reports():
    one = decide(worker(), Seen(), START).value
    one = decide(one, Seen(node="CREATING"), START + 60.0).value
    one = decide(one, Seen(node="READY"), START + 120.0).value
    assert (one.held, one.since) == (START + 120.0, 0.0)
    one = decide(one, Seen(node="READY"), START + 500.0).value
    one = decide(one, Seen(node="PREEMPTED"), START + 120.0 + HOUR).value
    known = one.odds[ZONES[0]]
    assert (known.tried, known.came, known.lost) == pytest.approx((1.0, 1.0, 1.0), rel=0.01)
    assert (known.waited, known.lived) == pytest.approx((120.0, HOUR), rel=0.01)
    again = decide(one, Seen(node="PREEMPTED"), START + 121.0 + HOUR).value
    assert again.odds == one.odds, "a loss that is seen twice happened once"


def test_tpu_vm_that_we_delete_was_not_lost():
    one = decide(worker(), Seen(), START).value
    one = decide(one, Seen(node="READY"), START + 60.0).value
    gone = decide(replace(one, wanted="gone"), Seen(node="READY"), START + HOUR).value
    assert (gone.odds[ZONES[0]].lost, gone.held) == (0.0, 0.0)
    assert gone.odds[ZONES[0]].lived == pytest.approx(HOUR - 60.0, rel=0.01)


@pytest.mark.parametrize("how", ["late", "stockout", "refused"])
def test_zone_without_capacity_is_left_for_the_one_where_others_had_luck(how):
    one = decide(worker(), Seen(), START).value
    later = START + 400.0
    if how == "refused":
        one = refused(one, Create(), "no capacity", later, for_good=False).value
    elif how == "late":
        one = decide(one, Seen(queued="WAITING_FOR_RESOURCES"), later).value
    else:
        one = decide(one, Seen(queued="FAILED", error="there is no more capacity"), later).value
    assert one.moving
    assert one.odds[ZONES[0]].tried == 1.0
    offers = offered(one, teacher(us_central1_b=BAD, us_central1_f=GOOD, europe_west4_a=BAD), now=later)
    moved = decide(one, Seen(offers=offers), later + 60.0)
    assert moved.value.zone == "us-central1-f"
    assert "us-central1-f costs about" in moved.note


def test_zone_follows_the_order_of_the_fleet_while_nothing_is_known_and_prices_are_equal():
    one = decide(replace(worker(), moving=True), Seen(), START).value
    assert one.zone == ZONES[1]
    same = replace(worker(), zones=ZONES[:3], moving=True)
    assert decide(same, Seen(offers=offered(same)), START).value.zone == ZONES[1]


def test_lost_tpu_vm_comes_again_in_its_zone_unless_another_is_clearly_better():
    one = replace(worker(), zones=ZONES[:3], held=START - HOUR)
    lost = decide(one, Seen(node="PREEMPTED", offers=offered(one)), START)
    assert (lost.value.moving, type(lost.act)) == (False, Delete)
    fickle = replace(one, odds={ZONES[0]: SHORT_LIVED}, held=START - 300.0)
    offers = offered(fickle, teacher(us_central1_f=GOOD))
    moves = decide(fickle, Seen(node="PREEMPTED", offers=offers), START)
    assert (moves.value.moving, type(moves.act)) == (True, Delete)
    assert "elsewhere: us-central1-f costs about" in moves.note
    there = decide(moves.value, Seen(offers=offered(moves.value, teacher(us_central1_f=GOOD))), START + 60.0)
    assert there.value.zone == "us-central1-f"


def test_worker_of_one_zone_stays_there():
    alone = records.Worker("f", ZONES[:1], 0, "v3-8", 1.0, zone=ZONES[0], wanted="ready", held=START - 60.0)
    assert decide(alone, Seen(node="PREEMPTED"), START).value.moving is False


def test_workers_of_another_kind_teach_nothing():
    other = replace(teacher(us_central1_f=GOOD), spot=False)
    assert all(one.odds.tried == 0.0 for one in offered(worker(), other))


def test_tpu_vm_that_still_lives_counts_with_its_life_so_far():
    lives = replace(worker(), fleet="other", held=START - HOUR)
    assert offered(worker(), lives)[0].odds.lived == pytest.approx(HOUR)


@given(st.lists(st.tuples(st.sampled_from(ZONES), st.floats(0, 1e7)), max_size=40))
def test_memory_survives_the_store_and_is_bounded(events):
    one, now = worker(), START
    for zone, waited in events:
        now += waited
        one = learning.gave_up(replace(one, zone=zone, since=now - waited), now)
    assert len(one.odds) <= learning.MOST_ZONES
    assert decode(records.WORKERS, encode(records.WORKERS, one, {}, 1)) == one


def test_many_zones_fit_into_a_record():
    one = worker()
    for index in range(200):
        one = learning.gave_up(replace(one, zone=f"zone-{index}", since=START), START + index)
    assert len(one.odds) == learning.MOST_ZONES
    assert len(to_json(encode(records.WORKERS, one, {}, 1))) < 16_384
