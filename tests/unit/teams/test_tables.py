"""Output of `tpu team` at common terminal widths."""

import os
import sys
from dataclasses import replace

import pytest

from tpukit.cli import team_tables
from tpukit.teams.queue_rows import JobRow
from tpukit.teams.registry import Change
from tpukit.teams.team import Request, Team

WHY = "needs 1 × v4-16, none free; speech/next-fyak5 (medium) and vision/mine-qhomc (medium) run there; 2 ahead"
ROWS = [
    JobRow("vision", "mine-qhomc", "runs", "vision", None, "medium", "v4-16", "2026-01-01T00:00:00Z", ""),
    JobRow("speech", "low-34qvy", "waits", "tpu", 3, "low", "2 × v4-16", "2026-01-01T00:00:00Z", WHY),
]


@pytest.fixture
def screen(monkeypatch, capsys):
    """Return a function that gives the printed lines of a call at a terminal width; width 0 is a file."""

    def lines(width, call, *arguments):
        monkeypatch.setattr(team_tables.shutil, "get_terminal_size", lambda: os.terminal_size((width, 24)))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: bool(width), raising=False)
        call(*arguments)
        return capsys.readouterr().out.replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()

    return lines


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 200])
def test_reason_is_whole_and_no_line_is_wider_than_the_screen(screen, width):
    shown = screen(width, team_tables.print_jobs, ROWS)
    if width >= 80:
        assert max(map(len, shown)) <= width
    assert "".join(WHY.split()) in "".join("".join(shown).split())


def test_reason_stands_below_its_row_where_there_is_no_room_beside_it(screen):
    heading, first, second, *below = screen(80, team_tables.print_jobs, ROWS)
    assert heading.split() == ["#", "team", "job", "state", "for", "priority", "tpu", "queue"]
    assert (first.split()[:3], second.split()[:3]) == (["vision", "mine-qhomc", "runs"], ["3", "speech", "low-34qvy"])
    assert below
    assert all(line.startswith("    ") for line in below)


def test_cost_of_an_eviction_is_shown_where_it_is_known(screen):
    rows = [replace(ROWS[0], eviction_usd=1234.5, unsaved_s=480.0), ROWS[1]]
    heading, first, second = screen(0, team_tables.print_jobs, rows)
    assert "if evicted" in heading
    assert "1,234.50 USD, 8m" in first
    assert "USD" not in second
    assert "if evicted" not in screen(0, team_tables.print_jobs, ROWS)[0]


def test_row_is_one_line_where_nobody_looks(screen):
    heading, _, row = screen(0, team_tables.print_jobs, ROWS)
    assert heading.endswith("why")
    assert row.endswith(WHY)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, Team("a"), ["team a is made", "  quota: shared"]),
        (Team("a"), Team("a"), ["team a is already as requested"]),
        (
            Team("a", {"v4-2x2x2": 1}, {}),
            Team("a", {"v4-2x2x2": 2}, None, ("user:b",)),
            [
                "team a is changed",
                "  quota: 2 × v4-16 (was 1 × v4-16)",
                "  may borrow: everything unassigned (was nothing)",
                "  members: user:b (was none)",
            ],
        ),
    ],
)
def test_change_says_what_is_new_and_what_was(capsys, before, after, said):
    team_tables.print_change(
        Change(Request(after.name, {}), before, after, (), (), (), replaced=False, dropped=False), dry_run=False
    )
    assert capsys.readouterr().err.splitlines() == said


def test_table_that_is_too_wide_loses_columns_and_cuts_no_name():
    names = "a-team-with-a-long-name", "a-job-whose-name-takes-all-of-forty-letters-x"
    rows = [("#", "team", "job", "state", "why"), ("1", *names, "waits", "no slices")]
    assert team_tables.fitted(rows, 0, text=True, drop=("#",)) == rows
    narrow = team_tables.fitted(rows, 78, text=True, drop=("#",))
    assert narrow[1] == (*names, "waits", "no slices")
