"""What losses cost, and how often it pays to save."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.drill import costs, pricing

POSITIVE = st.floats(0.001, 1e5)


def estimate(**changes):
    values = {
        "step_seconds": 2.0,
        "save_seconds": [8.0, 10.0, 12.0],
        "save_bytes": 10**9,
        "held": [],
        "save_every": 600.0,
        "back": [300.0],
        "losses_per_day": 4.0,
        "usd_per_hour": 100.0,
    }
    return costs.estimate(**{**values, **changes})


def test_estimate_adds_what_losses_and_saves_take():
    found = estimate()
    assert found.share_lost == 300.0 * 4 / 86400 + 10.0 / 600
    assert found.usd_lost_per_hour == 100.0 * found.share_lost
    assert found.best_every == math.sqrt(2 * 10.0 * 86400 / 4)
    assert found.best_steps == round(found.best_every / 2.0)


def test_estimate_what_is_not_known_stays_unknown():
    assert estimate(usd_per_hour=None).usd_lost_per_hour is None
    assert estimate(back=[]).share_lost is None
    nothing = estimate(save_seconds=[], save_bytes=None, save_every=None)
    assert (nothing.save_seconds, nothing.best_every, nothing.best_steps) == (None, None, None)


def test_estimate_save_in_the_background_costs_what_it_holds_up():
    assert estimate(held=[0.5]).best_every == math.sqrt(2 * 0.5 * 86400 / 4)


@given(POSITIVE, POSITIVE)
def test_estimate_best_interval_costs_least(hold, per_day):
    best = estimate(save_seconds=[hold], losses_per_day=per_day).best_every
    between = 86400 / per_day

    def cost(every):
        return hold / every + every / 2 / between

    assert cost(best) <= min(cost(best * 1.1), cost(best / 1.1))


def test_price_is_that_of_all_slices_in_the_cheapest_zone_or_the_one_named():
    slice_ = catalogue.find("v5e-16")
    cheapest, note = pricing.per_hour(slice_, 2, "on-demand")
    assert cheapest is not None
    assert f"2 x {slice_.name}, on-demand" in note
    for zone in slice_.zones:
        one, _ = pricing.per_hour(slice_, 1, "on-demand", zone)
        assert one is None or 2 * one >= cheapest


def test_price_that_nobody_states_is_unknown_and_says_why():
    assert pricing.per_hour(catalogue.find("v4-8"), 1, "flex-start")[0] is None
    assert "nowhere-1" in pricing.per_hour(catalogue.find("v4-8"), 1, "spot", "nowhere-1a")[1]
    assert pricing.per_hour(catalogue.find("v4-8"), 1, object())[0] is None
