"""The cost of losses, and the best interval between saves."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.drill import costs, holding, pricing
from tpukit.drill.holding import Hold

POSITIVE = st.floats(0.001, 1e5)
STEADY = Hold(step_seconds=2.0, seconds=10.0, error=0.1)


def estimate(**changes):
    values = {
        "hold": STEADY,
        "save_seconds": [8.0, 10.0, 12.0],
        "save_bytes": 10**9,
        "save_every": 60.0,
        "back": [300.0],
        "losses_per_day": 4.0,
        "usd_per_hour": 100.0,
    }
    return costs.estimate(**{**values, **changes})


def test_estimate_adds_what_losses_and_saves_take():
    found = estimate()
    assert found.share_lost == 300.0 * 4 / 86400 + 10.0 / 60
    assert found.usd_lost_per_month == pytest.approx(73_000.0 * found.share_lost)
    assert found.best_every == math.sqrt(2 * 10.0 * 86400 / 4)
    assert found.best_steps == round(found.best_every / 2.0)


def test_estimate_what_is_not_known_stays_unknown():
    assert estimate(usd_per_hour=None).usd_lost_per_month is None
    assert estimate(back=[]).share_lost is None
    nothing = estimate(hold=Hold(2.0), save_seconds=[], save_bytes=None, save_every=None)
    assert (nothing.save_seconds, nothing.best_every, nothing.best_steps) == (None, None, None)


def test_estimate_error_larger_than_the_effect_gives_no_advice():
    assert estimate(hold=Hold(2.0, 10.0, 6.0)).held_seconds is None
    best = estimate().best_every
    assert estimate(save_every=best * 1.2).best_every is None
    assert estimate(save_every=best * 10).best_every == best


@given(POSITIVE, POSITIVE)
def test_estimate_best_interval_costs_least(hold, per_day):
    best = estimate(hold=Hold(1.0, hold, 0.0), losses_per_day=per_day, save_every=1e-6).best_every
    between = 86400 / per_day

    def cost(every):
        return hold / every + every / 2 / between

    assert best is None or cost(best) <= min(cost(best * 1.1), cost(best / 1.1))


def run(chance, *, hold=0.2, step=0.05, every=10, printed=1, background=False, steps=60, jitter=0.003):
    """Return the times of reported steps and observed saves of a program that saves every `every` steps."""
    now, times, saves = 0.0, {}, []
    for number in range(1, steps + 1):
        now += step + abs(chance.gauss(0, jitter))
        if number % printed == 0:
            times[number] = now
        if number % every == 0:
            saves.append((now + 0.005, now + (0.4 if background else hold)))
            now += hold
    return times, saves


@pytest.mark.parametrize("printed", [1, 5])
@pytest.mark.parametrize("background", [False, True])
def test_measure_known_hold_is_found_within_a_fifth(printed, background):
    for seed in range(13):
        times, saves = run(random.Random(seed), printed=printed, background=background)
        found = holding.measure(times, saves)
        assert found.step_seconds == pytest.approx(0.052, rel=0.1)
        assert found.seconds == pytest.approx(0.2, rel=0.2)
        assert found.is_measured


@pytest.mark.parametrize("pause", [0.06, 0.1, 0.3, 0.5])
def test_measure_on_a_busy_machine_where_several_steps_are_read_at_once_is_right_or_silent(pause):
    for seed in range(13):
        chance = random.Random(seed)
        times, saves = run(chance)
        looks = [0.0]
        while looks[-1] < times[60] + 1.0:
            looks.append(looks[-1] + pause * chance.uniform(0.9, 1.1))

        def seen(at: float, looks: list[float] = looks) -> float:
            return next(look for look in looks if look >= at)

        read = {step: seen(at) for step, at in times.items()}
        found = holding.measure(read, [(seen(began), seen(ended)) for began, ended in saves], pause)
        assert not found.is_measured or found.seconds == pytest.approx(0.2, abs=max(0.04, 2 * found.error))
        assert found.is_measured or pause > 0.1


def test_measure_hold_below_the_noise_of_steps_is_not_measured():
    times, saves = run(random.Random(1), hold=0.001, jitter=0.05)
    assert not holding.measure(times, saves).is_measured
    assert not holding.measure({}, []).is_measured


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
