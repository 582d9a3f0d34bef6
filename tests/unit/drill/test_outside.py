"""Checkpoints outside the drill's workdir are detected, and no other verdict is given."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from support.drill_world import Program
from support.waiting import until
from tpukit.drill import advice
from tpukit.drill.advice import Cause
from tpukit.drill.judging import judge
from tpukit.drill.outside import Outside
from tpukit.drill.sites import Host
from tpukit.drill.verdicts import Word

WRITES = """
import sys
files = [open(path, mode) for path, mode in zip(sys.argv[2:], sys.argv[1].split(","))]
print("open", flush=True)
input()
"""


def test_look_names_the_folders_of_files_that_are_open_for_writing_outside(tmp_path):
    inside, elsewhere, read = tmp_path / "work", tmp_path / "elsewhere", tmp_path / "read"
    one = elsewhere / "ckpt-50.tmp"
    for folder in (inside, one, read):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    argv = [sys.executable, "-S", "-c", WRITES, "w,a,r", *(str(folder / "file") for folder in (inside, one, read))]
    outside = Outside([inside])
    with subprocess.Popen(["sh", "-c", '"$@"', "sh", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout.readline() == b"open\n"
        outside.look([Host(0, 0, 0, 0, (tmp_path / "host" / "log",), (shell.pid,))])
        shell.communicate(b"\n")
    assert outside.folders == (str(elsewhere),)


def test_look_at_a_process_that_is_gone_finds_nothing():
    with subprocess.Popen(["true"]) as gone:
        pass
    until(lambda: not Path(f"/proc/{gone.pid}").exists())
    outside = Outside([])
    outside.look([Host(0, 0, 0, 0, (), (gone.pid,))])
    assert outside.folders == ()


def test_judge_fresh_run_that_begins_where_another_ended_cannot_be_told():
    program = Program()
    broken = program.broken(45)
    late = replace(broken, trace=tuple(one for one in broken.trace if one.step > 20))
    verdict = judge(program.unbroken(), late)
    assert verdict.word is Word.CANNOT_TELL
    assert "a fresh run began at step 21" in verdict.text
    assert advice.causes(verdict) == (Cause.OUTSIDE,)


def test_judge_fresh_run_with_nothing_left_to_do_cannot_be_told():
    program = Program()
    verdict = judge(program.unbroken(), replace(program.broken(45), trace=(), struck=()))
    assert (verdict.word, advice.causes(verdict)) == (Word.CANNOT_TELL, (Cause.OUTSIDE,))


def test_judge_resume_without_any_save_in_the_workdir_cannot_be_told_and_names_the_folder():
    program = Program()
    broken = program.broken(25)
    unseen = replace(broken, saves=(), struck=(replace(broken.struck[0], saved=-1),))
    verdict = judge(program.unbroken(), replace(unseen, outside=("/data/checkpoints",)))
    assert verdict.word is Word.CANNOT_TELL
    assert "/data/checkpoints" in verdict.text
    assert advice.causes(verdict) == (Cause.OUTSIDE,)
    assert judge(program.unbroken(), unseen).word is Word.EXACT  # saves that only append to a file cannot be seen
