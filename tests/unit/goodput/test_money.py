"""Time in money: bills, advice on save intervals, budgets."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from tpukit.cli import context, cost
from tpukit.core import paths
from tpukit.core.clock import ManualClock
from tpukit.goodput import accounts, budgets, groups, intervals, money, rates
from tpukit.goodput.causes import UNBILLED, Cause, ms, week_of
from tpukit.goodput.measures import Measured
from tpukit.goodput.sums import Goodput
from tpukit.jobs.plan import ThisMachine, make
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, Attempt, Job, Marks
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.jobs.spent_budgets import CHECK_SECONDS, Holding
from tpukit.kernel.store.sqlite import SqliteStore

HOUR = 3_600_000


def job(name: str, *, capacity: str = "spot", place: str = "gke", created: float = 1e9, hours: float = 2.0) -> Job:
    """Return a job that waited for an hour and trained for `hours`, on 16 chips of v5e."""
    spec = JobSpec.from_json({"name": name, "tpu": "v5e-16", "command": ["true"], "capacity": capacity})
    plan = make(spec, Settings.from_json({"region": "us-west4"}), place)
    began = created + 3600
    ended = began + hours * 3600
    marks = Marks(since=created, placed=began, stepped=began, first=0, advanced=began)
    attempt = Attempt(0, 0, 0, State.COMPLETED, started=began, ended=ended, step=99, reason=Reason.DONE, marks=marks)
    if place == "local":
        plan = make(spec, Settings(), place, target=ThisMachine("desk"))
    fields: dict[str, Any] = {"state": State.COMPLETED, "attempts": (attempt,), "ended": ended}
    return Job(plan.id, place, "research", "me", created, plan.to_json(), **fields)


def test_bill_of_a_job_is_its_billed_hours_at_the_price_of_its_zone():
    account = accounts.of_job(job("one"), 2e9)
    assert account.rate.usd == pytest.approx(16 * 0.60732, rel=0.01)
    assert account.bill.cost == pytest.approx(2 * account.rate.usd)
    assert account.bill.usd.keys().isdisjoint(UNBILLED)
    assert account.bill.usd_per_step == pytest.approx(account.bill.cost / 100)


def test_bill_of_a_job_on_this_machine_is_zero_and_of_an_unknown_price_is_unknown():
    assert accounts.of_job(job("one", place="local"), 2e9).bill.cost == 0.0
    broken = accounts.of_job(replace(job("one"), plan={}), 2e9)
    assert (broken.rate.usd, broken.bill.usd, broken.bill.unpriced) == (None, {}, 2 * HOUR)
    whole = accounts.together([broken, accounts.of_job(job("two"), 2e9)])
    assert whole.unpriced == 2 * HOUR
    assert whole.usd_per_step is None  # it would be wrong


def test_bills_add_up_by_cause():
    one = money.bill(Goodput({Cause.NEW: HOUR, Cause.WAITING: 5 * HOUR}), 3.0)
    two = money.bill(Goodput({Cause.NEW: HOUR, Cause.HUNG: HOUR}), 1.0)
    whole = money.together([one, two])
    assert whole.usd == {Cause.NEW: 4.0, Cause.HUNG: 1.0}
    assert whole.goodput.wall == 8 * HOUR


def test_sums_by_team_owner_and_week_are_parts_of_the_same_whole():
    monday = 1_793_577_600.0  # 2026-11-02
    jobs = [job("one", created=monday - 3600, hours=200), replace(job("two", created=monday), team="other")]
    now = monday + 30 * 86_400
    listed = [accounts.of_job(one, now) for one in jobs]
    whole = accounts.together(listed)
    for by in groups.BY:
        found = groups.grouped(listed, by, now)
        again = money.together(one.bill for one in found)
        assert again.goodput.spent == whole.goodput.spent
        assert again.usd == pytest.approx(whole.usd)
    weeks, first = groups.grouped(listed, "week", now), week_of(ms(monday))
    assert [(one.name, one.jobs) for one in weeks] == [(str(first + 1), 1), (str(first), 2), (str(first - 1), 1)]
    assert {one.name: one.jobs for one in groups.grouped(listed, "team", now)} == {"other": 1, "research": 1}


def trained(save: float, every: float, rate: float, seconds: float, seed: int) -> tuple[float, Measured]:
    """Simulate training with saves and hardware losses at a rate, and return the time it took and the measurements."""
    dice = random.Random(seed)
    took = done = 0.0
    loss, saves, squares, losses, held_sum = dice.expovariate(rate), 0, 0.0, 0, 0.0
    while done < seconds:
        held = max(0.0, dice.gauss(save, save / 4))
        if took + every + held > loss:
            took, losses = loss, losses + 1
            loss = took + dice.expovariate(rate)
            continue
        took, done = took + every + held, done + every
        saves, held_sum, squares = saves + 1, held_sum + held, squares + held * held
    measured = Measured(
        saves=saves, saving=held_sum, squares=squares, stepping=took, losses=losses, running=took, steps=done
    )
    return took, measured


@pytest.mark.parametrize("seed", range(20))
def test_advised_interval_costs_less_than_the_fixed_one_in_seeded_weeks(seed):
    dice = random.Random(1000 + seed)
    save, rate = dice.uniform(5, 60), 1 / dice.uniform(2 * 3600, 12 * 3600)
    every = math.sqrt(2 * save / rate) * dice.choice([0.1, 0.15, 6.0, 9.0])
    week = 8 * 7 * 86400.0
    took, measured = trained(save, every, rate, week, seed)
    best = intervals.interval(measured, 1000.0)
    assert best is not None
    better, _ = trained(save, best.best, rate, week, seed)
    assert better < took
    assert best.usd is not None and best.usd > 0


def test_interval_is_silent_near_the_best_and_where_the_error_is_larger_than_the_gain():
    at_best = Measured(saves=1000, saving=10_000, squares=110_000, stepping=1000 * 600, losses=33, running=594_000)
    assert intervals.interval(at_best) is None
    noisy = Measured(saves=2, saving=20.0, squares=392.0, stepping=200.0, losses=1, running=90_000.0)
    sure = Measured(saves=2000, saving=20_000.0, squares=392_000.0, stepping=200_000.0, losses=1000, running=90_000e3)
    assert intervals.interval(noisy) is None
    assert intervals.interval(sure) is not None
    for missing in ("saves", "losses", "running"):
        assert intervals.interval(Measured(**{**sure.to_record(), missing: 0.0})) is None


def test_choices_name_cheaper_zones_and_never_a_capacity_whose_losses_are_unknown():
    goodput = Goodput({Cause.NEW: 8 * HOUR, Cause.REPEATED: 2 * HOUR}, Measured(losses=3, back=2 * 3600.0, running=1))
    rates = {("a", "spot"): 5.0, ("b", "spot"): 4.0, ("a", "on-demand"): 6.0, ("c", "on-demand"): 9.0}
    assert [(one.zone, one.capacity, one.usd) for one in intervals.choices(goodput, rates, "a", "spot")] == [
        ("b", "spot", 40.0),
        ("a", "on-demand", 48.0),
    ]
    assert intervals.choices(goodput, rates, "c", "on-demand") == [
        intervals.Choice("a", "on-demand", 60.0, "if it lost as much there")
    ]


@pytest.fixture
def store(tmp_path):
    one = SqliteStore(tmp_path / "store.sqlite")
    yield one
    one.close()


def test_budget_spent_holds_new_jobs_of_its_team_until_it_is_raised(store):
    now = 1e9 + 4 * 3600
    for number in range(3):
        one = replace(job(f"job-{number}"), id=f"job-{number}")
        store.create(JOBS, one.id, one)
    spent = sum(rates.of_job(entry.value).usd * 2 for entry in store.list(JOBS).entries)
    clock = ManualClock(now)
    holding = Holding(store, clock)
    new = replace(job("new"), state=State.PENDING, attempts=(), ended=0.0)
    assert holding.why(new) == ""
    for usd, hold, held in ((spent - 0.01, False, False), (spent - 0.01, True, True), (spent + 1, True, False)):
        budgets.set_budget(store, "research", usd, hold, now)
        clock.sleep(CHECK_SECONDS)
        assert bool(holding.why(new)) is held
        (spending,) = budgets.spending(store, budgets.recent(store, 0.0), now)
        assert spending.usd == pytest.approx(spent)
    assert holding.why(replace(new, team="other")) == ""
    clock.sleep(budgets.WINDOW_SECONDS)
    budgets.set_budget(store, "research", 1.0, True, now)
    clock.sleep(CHECK_SECONDS)
    assert holding.why(new) == ""  # the spending is older than the window


def test_cost_command_lists_jobs_sums_them_and_prints_json_and_csv(store, monkeypatch, tmp_path):
    monkeypatch.setattr(context, "store", lambda: store)
    monkeypatch.setattr(paths, "state", lambda: tmp_path)
    for name in ("one", "two"):
        record = replace(job(name), id=name)
        store.create(JOBS, name, record)
    run = CliRunner().invoke
    listed = run(cost.command, [])
    assert listed.exit_code == 0, listed.output
    assert "two" in listed.stdout
    assert "new steps" in listed.stdout
    rows = run(cost.command, ["--csv", "--since", "2001-01-01"]).stdout.splitlines()
    assert len(rows) == 3
    assert len({row.count(",") for row in rows}) == 1
    import json

    document = json.loads(run(cost.command, ["one", "--json"]).stdout)
    assert document["total"]["usd_total"] == pytest.approx(document["jobs"][0]["usd_per_hour"] * 2, abs=1e-5)
    assert run(cost.command, ["--since", "2020-01-01"]).stdout == ""
    (team,) = json.loads(run(cost.command, ["--by", "team", "--json"]).stdout)["groups"]
    assert (team["team"], team["jobs"], team["usd_total"]) == (
        "research",
        2,
        pytest.approx(2 * document["total"]["usd_total"]),
    )
    assert [line.split(",")[:2] for line in run(cost.command, ["--by", "owner", "--csv"]).stdout.splitlines()] == [
        ["owner", "jobs"],
        ["me", "2"],
    ]
    assert "2001-09-03" in run(cost.command, ["--by", "week"]).stdout
    assert "1.00 USD" in run(cost.command, ["--team", "research", "--budget", "1"]).stderr
    assert budgets.BUDGETS.name and len(store.list(budgets.BUDGETS).entries) == 1
