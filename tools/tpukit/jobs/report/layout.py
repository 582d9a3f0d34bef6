"""Tables that fit the terminal: columns are shortened or left out before any cell is cut.

Cells may come from a program or from a record of another version, so they are plain text: no markup, no control
characters, no line breaks.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP = "  "
_NARROWEST = 24
"""Columns that a text needs beside its row; with less it goes below."""


@dataclass(frozen=True)
class TableField:
    heading: str
    cells: Sequence[str]
    short: tuple[str, Sequence[str]] | None = None  # heading and cells to use instead in a narrow table
    drop: int = 0  # in a narrow table, the column with the lowest number is left out first; 0: never
    styles: Sequence[str] = ()

    def shortened(self) -> TableField:
        return self if self.short is None else TableField(*self.short, None, self.drop, self.styles)

    @cached_property
    def width(self) -> int:
        """Width of the widest cell, computed once."""
        return max(map(cell_len, (self.heading, *self.cells)))


def plain(text: object) -> str:
    """Return text on one line, without characters that a terminal interprets."""
    return "".join(char if char.isprintable() else " " for char in str(text))


class FittedTable:
    """A table with an optional text at the end of each row.

    The text is folded where there is room, and put below its row otherwise. In a file or pipe, a row is one line.
    """

    def __init__(self, fields: Sequence[TableField], *, heading: str = "", texts: Sequence[str] = ()) -> None:
        self._fields = fields
        self._heading, self._texts = heading, texts
        self.row_count = len(fields[0].cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        fields = self._fitting(width)
        margin = _total(fields) + len(_GAP)
        room = width - margin
        yield self._line(fields, None, self._heading if room >= _NARROWEST else "")
        for row in range(self.row_count):
            text = self._texts[row] if self._texts else ""
            if room >= _NARROWEST:
                first, *rest = _wrap(text, room) or [""]
                yield self._line(fields, row, first)
                yield from (Text(" " * margin + part) for part in rest)
            else:
                yield self._line(fields, row, "")
                for part in _wrap(text, max(1, width - 4)):
                    yield Text(f"    {part}")

    def rows(self, width: int) -> list[Text]:
        """Return the heading and each row on one line each, for a list to choose from.

        Texts are cut at the margin, and left out where there is no room for them.
        """
        fields = self._fitting(width)
        room = width - _total(fields) - len(_GAP)
        fits = room >= _NARROWEST
        lines = [self._line(fields, None, self._heading if fits else "")]
        lines += [
            self._line(fields, row, self._texts[row] if fits and self._texts else "") for row in range(self.row_count)
        ]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines

    def _fitting(self, width: int) -> Sequence[TableField]:
        if _total(self._fields) <= width:
            return self._fields
        fields = [field.shortened() for field in self._fields]
        for field in sorted((one for one in fields if one.drop), key=lambda one: one.drop):
            if _total(fields) <= width:
                break
            fields.remove(field)
        return fields

    def _line(self, fields: Sequence[TableField], row: int | None, text: str) -> Text:
        line = Text(overflow="fold")
        for field in fields:
            cell = field.heading if row is None else field.cells[row]
            style = "dim" if row is None else field.styles[row] if field.styles else ""
            line.append(cell, style)
            line.append(" " * (field.width - cell_len(cell)) + _GAP)
        line.append(text, "dim" if row is None else "")
        line.rstrip()
        return line


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)  # host names have hyphens, and are copied as one word


def _total(fields: Sequence[TableField]) -> int:
    return sum(field.width for field in fields) + len(_GAP) * (len(fields) - 1)
