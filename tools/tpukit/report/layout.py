"""A table that fits the terminal: columns are shortened or left out before any cell is cut.

What is in a cell may come from a program or from a record of another version, so a cell is text and nothing else: no
markup, no control characters, no line breaks.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP = "  "
_NARROWEST = 24
"""Columns that a text needs to be read beside the others; with less it goes below its row."""


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    cells: Sequence[str]
    short: tuple[str, Sequence[str]] | None = None  # heading and cells in their place, where the table is too wide
    drop: int = 0  # when the table is too wide, the column with the lowest number is left out first; 0: never
    styles: Sequence[str] = field(default=())

    def shortened(self) -> Column:
        return self if self.short is None else Column(*self.short, None, self.drop, self.styles)

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.heading, *self.cells)))


def plain(text: object) -> str:
    """On one line, without anything that a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in str(text))


class FittedTable:
    """Columns, and a text at the end of each row that is folded where there is room, and put below its row where there
    is not. Where nobody looks at the width (a file, grep), a row is one line."""

    def __init__(self, columns: Sequence[Column], *, heading: str = "", texts: Sequence[str] = ()) -> None:
        self._columns = columns
        self._heading, self._texts = heading, texts
        self.row_count = len(columns[0].cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        columns = self._fitting(width)
        margin = _total(columns) + len(_GAP)
        room = width - margin
        yield self._line(columns, None, self._heading if room >= _NARROWEST else "")
        for row in range(self.row_count):
            text = self._texts[row] if self._texts else ""
            if room >= _NARROWEST:
                first, *rest = _wrap(text, room) or [""]
                yield self._line(columns, row, first)
                yield from (Text(" " * margin + part) for part in rest)
            else:
                yield self._line(columns, row, "")
                for part in _wrap(text, max(1, width - 4)):
                    yield Text(f"    {part}")

    def _fitting(self, width: int) -> Sequence[Column]:
        if _total(self._columns) <= width:
            return self._columns
        columns = [column.shortened() for column in self._columns]
        for column in sorted((one for one in columns if one.drop), key=lambda one: one.drop):
            if _total(columns) <= width:
                break
            columns.remove(column)
        return columns

    def _line(self, columns: Sequence[Column], row: int | None, text: str) -> Text:
        line = Text(overflow="fold")
        for column in columns:
            cell = column.heading if row is None else column.cells[row]
            style = "dim" if row is None else column.styles[row] if column.styles else ""
            line.append(cell, style)
            line.append(" " * (column.width - cell_len(cell)) + _GAP)
        line.append(text, "dim" if row is None else "")
        line.rstrip()
        return line


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)  # names of hosts have hyphens, and are copied as one word


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)
