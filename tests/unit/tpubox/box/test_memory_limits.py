"""Memory limits: every component has one and stays within it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tpubox.box import addon_processes, cloud_components, control_plane, emulator, folder, memory_limits
from tpubox.box.binaries import Binaries
from tpubox.kubelet import __main__ as agent

KEEPS = "import time; from tpubox.box import memory_limits; memory_limits.keep(); {then}"


def python(script, limit):
    env = {**os.environ, memory_limits.VARIABLE: limit}
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read from /proc, which Linux alone has")
def test_program_that_holds_more_than_it_may_ends_and_says_so():
    done = python(KEEPS.format(then="time.sleep(600)"), limit="1")
    assert done.returncode == 137
    assert "more than its limit of 1 MiB, and is stopped; `tpu sandbox up` starts it again" in done.stderr


@pytest.mark.parametrize("limit", ["100000", "0"], ids=["far away", "none"])
def test_program_within_its_limit_goes_on(limit):
    done = python(KEEPS.format(then="time.sleep(0.1); print('to the end')"), limit=limit)
    assert (done.returncode, done.stdout) == (0, "to the end\n")


@pytest.mark.parametrize(
    "main",
    [
        emulator.main,
        addon_processes.main,
        lambda: agent.main.callback(**dict.fromkeys(o.name for o in agent.main.params)),
    ],
    ids=["google", "addons", "agent"],
)
def test_program_in_python_keeps_to_its_limit_from_its_first_moment(monkeypatch, main):
    class Kept(Exception):
        pass

    def keep():
        raise Kept

    monkeypatch.setattr(memory_limits, "keep", keep)
    with pytest.raises(Kept):
        main()


def test_every_component_has_a_limit_and_is_told_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    with folder.locked("box"):
        place = folder.prepare("box")
    programs = Binaries(tmp_path)
    monkeypatch.setattr(Binaries, "manifests", lambda self, name: [])
    made = [
        *(make(place, programs) for make in (control_plane.store, control_plane.api_server, control_plane.kwok)),
        *(make(place, programs) for make in (control_plane.controller_manager, control_plane.scheduler)),
        *(make(place, programs, {}, "1") for make in (control_plane.jobset, control_plane.kueue)),
    ]
    imitated = [make(place) for make in (cloud_components.agent, cloud_components.google, cloud_components.addons)]
    assert {one.name for one in (*made, *imitated)} == set(memory_limits.LIMITS)
    assert all(set(memory_limits.environment(one.name)) == {"GOGC", "GOMEMLIMIT"} for one in made)
    assert all(set(memory_limits.environment(one.name)) == {memory_limits.VARIABLE} for one in imitated)


def test_page_has_every_limit():
    page = (Path(memory_limits.__file__).parents[1] / "README.md").read_text("utf-8")
    told = dict(re.findall(r"^\| ([a-z-]+) \| (\d+) \|", page, re.MULTILINE))
    assert told == {name: str(limit.mib) for name, limit in memory_limits.LIMITS.items()}
