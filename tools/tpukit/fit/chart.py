"""Plot hours against dollars as SVG: one point a shape, a line for each generation. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from tpukit import catalogue
from tpukit.core import quantities
from tpukit.fit.whole_run import Row

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 14, 46
_COLOURS = ("var(--first)", "var(--second)", "var(--third)", "var(--fourth)", "var(--bad)", "var(--soft)", "var(--ink)")
_LETTER = 6.6
"""Width of a letter of the labels."""

Point = tuple[float, float, Row]
Box = tuple[float, float, float, float]


def hours_against_dollars(rows: Sequence[Row]) -> str:
    """Plot the shapes whose hours and dollars are known. Return an empty string if there are none."""
    known = [(one.hours, one.usd, one) for one in rows if one.hours and one.usd]
    if not known:
        return ""
    across, up = (
        _Axis([one[0] for one in known], LEFT, WIDTH - RIGHT),
        _Axis([one[1] for one in known], HEIGHT - BOTTOM, TOP),
    )
    points = [(across.at(hours), up.at(usd), row) for hours, usd, row in known]
    parts = [*_grid(across, up), *_lines(points), *_dots(points), *_labels(points)]
    about = 'role="img" aria-label="hours against dollars of the whole run" font-family="system-ui, sans-serif"'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {about}>{"".join(parts)}</svg>'


class _Axis:
    """A logarithmic axis whose ends are ticks."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        low, high = min(values), max(values)
        ticks = list(_ticks(low / 1.05, high * 1.05))
        self.ticks = ticks if len(ticks) <= 9 else [one for one in ticks if _is_power(one)]
        self._low, self._high = math.log(min(low, ticks[0])), math.log(max(high, ticks[-1]))
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        return self._begin + (self._end - self._begin) * (math.log(value) - self._low) / (self._high - self._low)


def _ticks(low: float, high: float) -> Iterator[float]:
    """Yield 1, 2, 5, 10, ... from the one below `low` to the one above `high`."""
    power = math.floor(math.log10(low))
    steps = [factor * 10.0**exponent for exponent in range(power, power + 20) for factor in (1, 2, 5)]
    first = max(index for index, one in enumerate(steps) if one <= low)
    for one in steps[first:]:
        yield one
        if one >= high:
            return


def _is_power(value: float) -> bool:
    return abs(math.log10(value) - round(math.log10(value))) < 1e-9


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    for one in across.ticks:
        x = across.at(one)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="var(--line)"/>'
        yield _text(x, HEIGHT - BOTTOM + 18, _hours(one), "middle")
    for one in up.ticks:
        y = up.at(one)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        yield _text(LEFT - 6, y + 4, f"${one:,g}", "end")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "time of the whole run", "middle")


def _lines(points: Sequence[Point]) -> Iterator[str]:
    """Yield a line for each generation and number of slices, from the smallest shape to the largest."""
    series: dict[tuple[str, int], list[Point]] = {}
    for one in sorted(points, key=lambda point: point[2].shape.chips):
        series.setdefault((_generation(one[2]), one[2].shape.slices), []).append(one)
    for (generation, _), found in series.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in found)
        yield f'<polyline points="{path}" fill="none" stroke="{_colour(generation)}" stroke-opacity="0.45"/>'


def _dots(points: Sequence[Point]) -> Iterator[str]:
    for x, y, row in points:
        colour = _colour(_generation(row))
        fill = colour if row.best else "var(--paper)"
        about = f"{row.shape}: {_hours(row.hours or 0)}, ${row.usd:,.2f}, {quantities.counted(row.shape.chips, 'chip')}"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}" stroke-width="1.8">'
            f"<title>{escape(about)}</title></circle>"
        )


def _labels(points: Sequence[Point]) -> Iterator[str]:
    """Yield names beside their points, the best shapes first; a name that would cover something is left out."""
    taken: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y, _ in points]
    for x, y, row in sorted(points, key=lambda point: (not point[2].best, point[2].shape.chips)):
        name = _name(row)
        width = _LETTER * len(name)
        for left, base in ((x + 9, y + 4), (x - 9 - width, y + 4), (x - width / 2, y - 10), (x - width / 2, y + 19)):
            box = (left, base - 10, left + width, base + 2)
            if left >= LEFT and left + width <= WIDTH and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield f'<text x="{left:.1f}" y="{base:.1f}" font-size="12" fill="var(--ink)">{escape(name)}</text>'
                break


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _name(row: Row) -> str:
    slice_ = catalogue.find(row.shape.tpu)
    short = min(slice_.spellings, key=len)
    return f"{row.shape.slices} x {short}" if row.shape.slices > 1 else short


def _generation(row: Row) -> str:
    return catalogue.find(row.shape.tpu).generation


def _colour(generation: str) -> str:
    known = list(dict.fromkeys(one.generation for one in reversed(catalogue.slices())))
    return _COLOURS[known.index(generation) % len(_COLOURS)]


def _hours(hours: float) -> str:
    """Return a time in the largest unit that gives a number from 1."""
    for size, unit in ((1.0, "h"), (1 / 60, "min")):
        if hours >= size * 0.999:
            return f"{hours / size:,.3g} {unit}"
    return f"{hours * 3600:,.3g} s"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="var(--soft)" text-anchor="{anchor}">{escape(text)}</text>'
    )
