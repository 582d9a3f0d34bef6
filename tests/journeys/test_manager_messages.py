"""Refusals of the job manager: they name existing options, and the file and the line to add."""

from __future__ import annotations

import re

import pytest

from journeys.cluster_machine import ROOT
from support.manager_desk import set_up
from support.waiting import until
from tpukit.cli import context, spellings, vms
from tpukit.google import refusals
from tpukit.sharing import inventory
from unit.cli.test_messages import options, resolve

NAMING = (
    *(
        "vm check-status strange",
        "vm describe strange",
        "vm reapply strange",
        "vm delete strange",
        "vm restart strange",
    ),
    *("vm solve strange", "vm mount-disk strange", "vm note strange text", "vm apply strange", "run strange xibo"),
)


@pytest.mark.parametrize("line", NAMING)
def test_unknown_tpu_is_refused_with_options_that_the_command_has(desk, line, monkeypatch, tmp_path):
    set_up(desk)
    settings = tmp_path / "empty.yaml"
    settings.write_text("project: my-project-1\n")
    monkeypatch.setenv("TPUKIT_SETTINGS", str(settings))
    vms.settings.cache_clear()
    said = desk.error(line, code=2)
    command, _ = resolve(spellings.canonical(line.split()))
    assert set(re.findall(r"--[a-z-]+", re.sub(r"`[^`]*`", "", said))) <= options(command)
    assert str(settings) in said and "`zone: us-central2-b`" in said
    assert "v4-8" in said


def test_type_that_is_none_is_misuse_and_one_without_tpus_is_not(desk):
    set_up(desk)
    assert "zork" in desk.error("find zork", code=2)
    assert "v9" in desk.error("find v9", code=2)
    for meant in ("v4-8", "v34", "v*", "v5e", "v5litepod-4"):
        desk(f"find {meant}")


def test_tpu_that_find_shows_as_free_is_released_by_anybody(desk):
    set_up(desk)
    desk("run v4-8-1 xibo")
    assert "held by xibo" in desk.error("release v4-8-1 lyy")
    desk.end()
    assert "free" in desk("find v4").output
    desk("release v4-8-1 lyy")
    assert inventory.get(context.store(), "g-v4-8-1").user == ""


def test_check_of_a_job_with_an_endless_log_shows_its_last_lines(desk, tmp_path):
    """Use a sparse log of a terabyte: a command that reads all of it does not return."""
    set_up(desk)
    desk("run v4-8-1 xibo place=local")
    job_id = desk.job("xibo:1").id
    driver = context.session().driver()
    until(lambda: driver.round([job_id]) == 0)
    driver.close()
    (log,) = (tmp_path / "home" / "data" / "runs" / job_id).glob("attempt-*/*-slice-0-0/log")
    with log.open("r+b") as file:
        file.seek(1 << 40)
        file.write(b"\nstep 1\nthe last line\n")
    assert "the last line" in desk("check xibo -v").output


class Forbidden(Exception):
    code = 403


@pytest.mark.parametrize(
    ("permission", "role"), [("tpu.nodes.create", "roles/tpu.admin"), ("tpu.nodes.list", "roles/tpu.viewer")]
)
def test_refusal_of_the_tpu_api_names_the_role_that_grants_it(permission, role):
    error = refusals.translated(Forbidden(f"Permission '{permission}' denied on 'projects/p'"), "listing TPU VMs")
    assert role in str(error)
    assert role in (ROOT / "deploy" / "README.md").read_text()


def test_words_that_are_no_window_are_named_as_they_were_typed(desk):
    set_up(desk)
    for line in ("kill w=lyy xibo", "job stop :lyy", "resume windows=lyy"):
        assert "lyy is not the number of a window" in desk.error(line)
