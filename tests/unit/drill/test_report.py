"""Reports of a drill: a page, JUnit XML and JSON, for any output of the program."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

from support.drill_world import Program
from tpukit import __version__
from tpukit.cli import drill_table
from tpukit.core import html
from tpukit.drill import advice, costs, json_document, junit, page, plots
from tpukit.drill.advice import Cause
from tpukit.drill.comparing import Noise
from tpukit.drill.engine import Drill, Progress, Result
from tpukit.drill.findings import Finding
from tpukit.drill.judging import judge
from tpukit.drill.planning import Unbroken
from tpukit.drill.running import Run
from tpukit.drill.verdicts import Word
from tpukit.jobs.reasons import State

NASTY = "<script>alert('x')</script> & \x00\x1b[31m \ud800"


def drill(mistake="", message="completed on all hosts"):
    program = Program(mistake=mistake)
    broken = program.broken(25)
    run = Run("kill-0-0", State.COMPLETED, message, (), broken.trace, broken.saves, broken.struck, 0.0, 2.5)
    verdict = judge(program.unbroken(), replace(broken, ended=replace(broken.ended, message=message)))
    result = Result(replace(verdict, text=f"{verdict.text} {message}"), advice.causes(verdict), run)
    unbroken = Run("unbroken", State.COMPLETED, message, (), program.unbroken(), ())
    planned = Unbroken(1, 1, tuple(range(1, 61)), (10, 20, 30, 40, 50))
    return Drill("train", 0, unbroken, planned, (result,), (("hang", "budget"),), Noise(), (), costs.Costs(), 9.0)


class Balanced(HTMLParser):
    """An HTML parser that checks that tags are closed in order."""

    SINGLE = ("meta", "line", "circle", "polyline")

    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.SINGLE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.SINGLE:
            assert self.open.pop() == tag


def test_page_is_one_balanced_file_that_loads_nothing_and_runs_nothing_of_the_program():
    text = page.render(drill("data", NASTY), ["a save: 1 kB"])
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "script" not in parser.tags
    assert [word for word in ("src=", "http:", "https:", "@import", "url(") if word in text] == []
    assert "svg" in parser.tags
    assert 'name="viewport"' in text


def test_page_and_table_name_what_was_not_tried_beside_what_was():
    assert '<td>hang</td><td class="soft" colspan="5">not tried: budget</td>' in page.render(drill())
    table = drill_table._table(drill())
    assert [list(one.cells)[-1] for one in table.columns[:2]] == ["hang", "[dim]not tried[/]"]


def test_page_names_job_command_version_date_and_noise():
    one = replace(drill(), command="python train.py --steps=60", at=1_700_000_000.0)
    shown = page.render(one)
    for part in ("<h1>train: ", "python train.py --steps=60", f"tpukit {__version__}", "2023-11-14 22:13 UTC"):
        assert part in shown
    assert "unbroken runs are equal to the last digit" in shown
    assert "unbroken runs differ by up to 2e-07 of the loss" in page.render(replace(one, noise=Noise(2e-7)))


def test_plot_says_from_which_step_on_the_loss_is_nan():
    broken = Program().broken(45)
    spoilt = tuple(replace(one, loss=math.nan) if one.attempt and one.step >= 50 else one for one in broken.trace)
    shown = plots.loss_over_step(Program().unbroken(), spoilt, broken.struck)
    assert "attempt 1, NaN from step 50<" in shown
    assert "attempt 0<" in shown


def test_show_outside_a_terminal_wraps_no_line(capsys):
    long = " ".join(f"word{number}" for number in range(200))
    drill_table.show(drill("data", long))
    assert long in capsys.readouterr().out


def test_plot_has_no_colour_that_the_page_does_not_define_for_light_and_dark():
    names = set(re.findall(r"var\((--\w+)\)", page.render(drill("data"))))
    assert "--second" in names
    for name in names:
        assert html.STYLE.count(f"{name}: #") == 2, name


def test_plot_begins_shortly_before_what_was_made_again():
    shown = plots.loss_over_step(Program().unbroken(), Program().broken(45).trace, Program().broken(45).struck)
    assert ">32<" in shown  # attempt 1 started at step 41
    assert ">60<" in shown
    assert plots.loss_over_step((), (), ()) == ""


def test_plot_names_its_axes_and_its_lines_and_has_ticks_that_differ():
    program = Program()
    flat = tuple(replace(one, loss=2.0 + one.loss * 1e-6) for one in program.unbroken())
    for unbroken in (program.unbroken(), flat):
        shown = plots.loss_over_step(unbroken, (), program.broken(45).struck)
        texts = re.findall(r"<t(?:ext|span)[^>]*>([^<]+)<", shown)
        assert {"loss", "step", "unbroken", "lost"} <= set(texts)
        assert len(set(texts)) == len(texts)


def test_junit_is_xml_with_a_case_for_each_loss_and_each_that_was_left_out():
    suite = ET.fromstring(junit.render(drill("data", NASTY)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    failure = suite.find("testcase[@name='kill-0-0']/failure")
    assert failure.get("type") == "repeats batches"
    assert "data position not saved" in failure.get("message")
    assert ET.fromstring(junit.render(drill())).get("failures") == "0"


def test_json_has_every_number_of_a_verdict():
    shown = json.loads(json.dumps(json_document.to_json(drill("data"))))
    (loss,) = shown["losses"]
    assert (loss["lost_at"], loss["resumed_at"], loss["steps_lost"], loss["batches_shifted_by"]) == (25, 21, 5, 20)
    assert shown["verdict"] == "repeats batches"
    assert shown["not_tried"] == [{"loss": "hang", "why": "budget"}]


def test_say_tells_why_a_loss_was_not_exact_before_the_table_comes(capsys):
    for mistake, why in (("data", "came again"), ("", "")):
        (result,) = drill(mistake).results
        drill_table.say(Progress(1, 2, result.verdict.loss, result))
        said = capsys.readouterr().err
        assert result.verdict.word in said
        assert why in said
        assert (result.verdict.text in said) is bool(mistake)


def test_summary_says_the_verdict_first_and_prices_that_nobody_knows_as_unknown():
    one = replace(
        drill(), costs=costs.Costs(back_seconds=9.0, share_lost=0.01, losses_per_day=1, price_note="none known")
    )
    lines = drill_table.summary(one)
    assert lines[0].startswith("train: exact; 1 of 1 losses exact")
    assert any("price unknown: none known" in line for line in lines)


def test_findings_about_the_unbroken_run_are_in_every_report():
    found = Finding(Word.LOSES_MORE, "the last save, at step 60, was never finished", Cause.UNFINISHED)
    one = replace(drill(), findings=(found,))
    assert one.word is Word.LOSES_MORE
    suite = ET.fromstring(junit.render(one))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert "never finished" in suite.find("testcase[@name='unbroken']/failure").get("message")
    assert "never finished" in page.render(one)
    assert json_document.to_json(one)["findings"][0]["cause"] == "save unfinished at exit"
    assert any("never finished" in line for line in drill_table.summary(one))
