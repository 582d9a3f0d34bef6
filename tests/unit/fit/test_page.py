"""Chart and page of a comparison."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.cli import fit_table
from tpukit.core import html
from tpukit.fit import chart, page
from tpukit.fit.check import Report
from tpukit.fit.estimate import Estimate
from tpukit.fit.findings import Finding
from tpukit.fit.shapes import Shape
from tpukit.fit.whole_run import Length, Row, rows

NAMES = ["v5litepod-16", "v5litepod-64", "v6e-16", "v6e-64", "v5p-32", "v4-32"]


def reports(**more: Any) -> dict[Shape, Report]:
    found = {}
    for name in NAMES:
        slice_ = catalogue.find(name)
        seconds = 5000 / slice_.chips / slice_.tflops_bf16
        guess = Estimate(
            1e15, 0, 1e9, 1e6, 0, seconds, 0.1, 0.1, 0.0, seconds, "compute", seconds, 0.5, 0.5, 8192, 1, 1
        )
        usd = slice_.chips * slice_.tflops_bf16 / 90
        body = {"job": "mine", "slice": name, "slices": 1, "chips": slice_.chips, "verdict": "fits"}
        found[Shape(name, 1, slice_.chips)] = Report(**{**body, "estimate": guess, "usd_per_hour": usd, **more})
    return found


def refused(text: str = "step needs 20 GiB") -> dict[Shape, Report]:
    found = (Finding("activations", text),)
    return {Shape("v5litepod-8", 1, 8): Report("mine", "v5litepod-8", 1, 8, "does not fit", findings=found)}


def test_chart_has_a_named_point_for_each_shape_and_a_line_for_each_generation() -> None:
    drawn = chart.hours_against_dollars(rows(reports(), Length()))
    assert drawn.count("<circle") == len(NAMES)
    assert drawn.count("<polyline") == 4
    for name in NAMES:
        assert f"<title>1 x {name}: " in drawn
    assert ">v6e-64<" in drawn
    assert "hours against dollars" in drawn
    for name in set(re.findall(r"var\((--\w+)\)", drawn)):
        assert html.STYLE.count(f"{name}: #") == 2, f"{name} has a colour for light and for dark screens"


@given(st.lists(st.tuples(st.floats(1e-4, 1e5), st.floats(1e-3, 1e8)), min_size=1, max_size=12))
def test_every_point_and_tick_of_a_chart_is_inside_of_it(figures: list[tuple[float, float]]) -> None:
    shape, (report, *_) = Shape("v6e-8", 1, 8), reports().values()
    drawn = chart.hours_against_dollars([Row(shape, report, hours, usd) for hours, usd in figures])
    for axis, most in (("x", chart.WIDTH), ("y", chart.HEIGHT)):
        places = [float(one) for one in re.findall(rf'\bc?{axis}[12]?="(-?[\d.]+)"', drawn)]
        assert places
        assert 0 <= min(places) <= max(places) <= most
    assert 2 <= drawn.count('text-anchor="middle"') <= 25


def test_chart_without_a_price_is_left_out() -> None:
    assert chart.hours_against_dollars(rows(reports(usd_per_hour=None), Length())) == ""
    assert chart.hours_against_dollars(rows(refused(), Length())) == ""


def test_page_names_what_fits_what_does_not_and_what_was_not_compiled() -> None:
    small, larger = Shape("v5litepod-4", 1, 4), Shape("v5litepod-8", 1, 8)
    found = rows({**reports(), **refused("needs <20> GiB")}, Length(steps=20_000))
    text = page.render("mine", found, {small: larger}, Length(steps=20_000))
    assert "6 of 7 compiled shapes fit; the run has 20,000 steps" in text
    assert "<li>1 x v5litepod-8: does not fit: needs &lt;20&gt; GiB</li>" in text
    assert "1 x v5litepod-4: smaller than 1 x v5litepod-8, which does not fit" in text
    assert page.BATCHES not in text
    assert "<script" not in text
    assert _unclosed(text) == []


def test_table_has_the_cheapest_first_and_says_what_was_left_out(capsys: Any) -> None:
    small, larger = Shape("v5litepod-4", 1, 4), Shape("v5litepod-8", 1, 8)
    found = rows({**refused(), **reports()}, Length())
    fit_table.compare(found, {small: larger}, Length())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "slices",
        "chips",
        "verdict",
        "peak",
        "a",
        "chip",
        "roofline",
        "bound",
        "cycles",
        "MFU",
        "hours",
        "USD",
    ]
    assert [line.split()[2] for line in lines[1:8]] == [one.shape.tpu for one in found]
    assert lines[7].split()[2] == "v5litepod-8"
    assert "1 x v5litepod-8: activations: step needs 20 GiB" in lines
    assert "1 x v5litepod-4: not compiled, smaller than 1 x v5litepod-8, which does not fit" in lines
    assert any(line.startswith("The run has 1,000 steps.") for line in lines)


def _unclosed(text: str) -> list[str]:
    """Return tags of the page that do not nest."""

    class Reader(HTMLParser):
        opened: list[str]

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.opened += [] if tag == "meta" else [tag]

        def handle_startendtag(self, tag: str, attrs: Any) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert self.opened.pop() == tag

    reader = Reader()
    reader.opened = []
    reader.feed(text)
    return reader.opened
