"""gcloud when others change the same policy at the same time, played by a small program."""

import os

import pytest

from tpukit.cluster import gcloud
from tpukit.core.clock import ManualClock
from tpukit.core.errors import TpukitError

CHANGED = "ABORTED: There were concurrent policy changes. Please retry the whole read-modify-write."
NO_BINDING = "ERROR: Policy binding with the specified principal, role, and condition not found!"


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Return a function that sets gcloud's output per call (empty means success) and returns its number of calls."""
    calls = tmp_path / "calls"
    program = tmp_path / "gcloud"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def answer(*said):
        for number, text in enumerate(said):
            (tmp_path / f"say-{number}").write_text(text)
        program.write_text(
            f"#!/bin/sh\nnumber=`cat {calls} 2>/dev/null | wc -l`\necho >> {calls}\n"
            f'text=`cat {tmp_path}/say-"$number"`\n[ -z "$text" ] && exit 0\necho "$text" >&2\nexit 1\n'
        )
        program.chmod(0o755)
        return lambda: len(calls.read_text().splitlines())

    return answer


def change(clock):
    gcloud.change_policy(gcloud.command("iam", "x"), "binding the accounts", clock)


def test_change_policy_that_others_changed_meanwhile_is_begun_anew_a_little_later_each_time(answers):
    calls, clock = answers(CHANGED, CHANGED, ""), ManualClock(0.0)
    change(clock)
    assert calls() == 3
    assert clock.now() == 1.5


def test_change_policy_that_is_changed_for_ever_ends_with_what_gcloud_said(answers):
    calls = answers(*[CHANGED] * 9)
    with pytest.raises(TpukitError, match="concurrent policy changes"):
        change(ManualClock(0.0))
    assert calls() == 7


def test_change_policy_binding_that_is_gone_already_is_as_good(answers):
    calls = answers(CHANGED, NO_BINDING)
    change(ManualClock(0.0))
    assert calls() == 2


def test_change_policy_any_other_refusal_is_said_at_once(answers):
    calls = answers("PERMISSION_DENIED: nobody may")
    with pytest.raises(TpukitError, match="nobody may"):
        change(ManualClock(0.0))
    assert calls() == 1
