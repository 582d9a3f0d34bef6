"""A TPU held by another job: taken only from that job, and only after confirmation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.manager_desk import set_up
from tpukit.cli import context, job_start, questions, vms
from tpukit.core.errors import Conflict
from tpukit.jobs.reasons import State
from tpukit.jobs.use_cases import submission
from tpukit.sharing import inventory, windows

TPU = "g-v4-8-1"


def held_for() -> str:
    vm = inventory.get(context.store(), TPU)
    assert vm is not None
    return vm.job


def refuse(*given: Any, **options: Any) -> None:
    raise Conflict("only planned")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "possible", lambda: True)


def test_question_about_a_held_tpu_answered_yes_uses_it(desk, terminal):
    set_up(desk)
    desk(f"run {TPU} xibo")
    desk(f"run {TPU} lyy", answers="y\n")
    assert held_for() == desk.job("lyy:1").id
    assert desk.job("xibo:1").state is State.PENDING


def test_question_about_a_held_tpu_answered_no_changes_nothing(desk, terminal):
    set_up(desk)
    desk(f"run {TPU} xibo")
    asked = desk(f"run {TPU} lyy", code=1, answers="n\n").output
    assert "xibo" in asked and desk.job("xibo:1").id in asked and f"{TPU}. Use it anyway?" in asked
    assert held_for() == desk.job("xibo:1").id
    assert not windows.of_user(context.store(), "lyy")


def test_answer_about_one_job_does_not_take_the_tpu_from_another(desk, monkeypatch):
    set_up(desk)
    desk(f"run {TPU} xibo")

    def meanwhile(question: str) -> bool:
        inventory.release(context.store(), TPU, context.CLOCK.now())
        inventory.hold(context.store(), TPU, "ada", "ada-job", context.CLOCK.now(), lambda job: True)
        return True

    monkeypatch.setattr(questions, "possible", lambda: True)
    monkeypatch.setattr(questions, "confirm", meanwhile)
    assert "held by ada" in desk.error(f"run {TPU} lyy")
    assert held_for() == "ada-job"


def test_two_users_who_send_a_job_of_one_id_at_once_hold_the_tpu_once(desk, monkeypatch):
    """Send the first job between the second one's plan and its request for the TPU."""
    set_up(desk)
    vm = inventory.get(context.store(), TPU)
    plans = []
    with monkeypatch.context() as planned:
        planned.setattr(submission, "stage_code", lambda plan: plans.append(plan) or plan)
        planned.setattr(job_start, "send", refuse)
        desk(f"run {TPU} lyy", code=1)
    desk(f"run {TPU} xibo")
    first = desk.job("xibo:1").id
    with pytest.raises(Conflict, match="held by xibo"):
        job_start.send(replace(plans[0], id=first), vm, "lyy")
    assert held_for() == first
    assert not windows.of_user(context.store(), "lyy")


def test_hold_of_a_window_follows_its_job_to_another_id(desk):
    set_up(desk)
    store, now = context.store(), context.CLOCK.now()
    inventory.hold(store, TPU, "xibo", "train-a", now, vms.is_active, window="xibo:9")
    assert inventory.hold(store, TPU, "xibo", "train-b", now, vms.is_active, window="xibo:9").job == "train-b"
    with pytest.raises(Conflict, match="held by xibo"):
        inventory.hold(store, TPU, "lyy", "train-b", now, lambda job: None, window="lyy:9")
