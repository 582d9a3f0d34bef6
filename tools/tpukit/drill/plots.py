"""Plot loss over step as SVG: the unbroken run in grey below, each attempt of the broken run in its own colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tpukit.drill.losses import Struck
from tpukit.drill.trace import Trace

WIDTH, HEIGHT = 520, 240
LEFT, RIGHT, TOP, BOTTOM = 72, 10, 28, 46
_COLOURS = ("var(--first)", "var(--second)", "var(--third)", "var(--fourth)")
"""Colours of the attempts. The page has others for a dark screen."""
_MOST_POINTS = 2000


def loss_over_step(unbroken: Trace, broken: Trace, struck: Sequence[Struck]) -> str:
    """Plot the first host that reports losses. Return an empty string if there is nothing to draw."""
    host = min((one.host for one in unbroken if one.loss is not None), default=None)
    reference = _points(unbroken, host, None)
    attempts = sorted({one.attempt for one in broken})
    series = [(attempt, _points(broken, host, attempt)) for attempt in attempts]
    begin = _begin(reference, [points for _, points in series])
    reference = [point for point in reference if point[0] >= begin]
    series = [(attempt, [point for point in points if point[0] >= begin]) for attempt, points in series]
    everything = [*reference, *(point for _, points in series for point in points)]
    if not everything:
        return ""
    frame = _Frame(everything)
    parts = [*frame.axes(), _line(frame, reference, "var(--unbroken)", 4.0)]
    labels = ['<tspan fill="var(--soft)">unbroken</tspan>']
    for number, (attempt, points) in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(_line(frame, points, colour, 1.6))
        gone = _first_without_number(broken, host, attempt)
        nan = "" if gone is None else f", NaN from step {gone}"
        labels.append(f'<tspan dx="12" fill="{colour}">attempt {attempt}{nan}</tspan>')
    for one in (one for one in struck if one.step >= begin):
        x = frame.x(one.step)
        where = f'x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
        parts.append(f'<line {where} stroke="var(--bad)" stroke-dasharray="4 3"/>')
    labels += ['<tspan dx="12" fill="var(--bad)">lost</tspan>'] if struck else []
    parts.append(f'<text x="{LEFT}" y="15" font-size="13">{"".join(labels)}</text>')
    about = 'role="img" aria-label="loss over step, unbroken and broken" font-family="system-ui, sans-serif"'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {about}>{"".join(parts)}</svg>'


def _begin(reference: Sequence[tuple[int, float]], attempts: Sequence[Sequence[tuple[int, float]]]) -> int:
    """Return a step shortly before the first repeated one. Earlier steps are equal, and would set the scale."""
    steps = [step for step, _ in reference]
    resumed = [points[0][0] for points in attempts[1:] if points]
    if not steps or not resumed:
        return 0
    return max(steps[0], min(resumed) - (steps[-1] - steps[0]) // 6)


class _Frame:
    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        self._steps = min(step for step, _ in points), max(step for step, _ in points)
        low, high = min(loss for _, loss in points), max(loss for _, loss in points)
        margin = 0.04 * (high - low) or max(abs(high), 1e-9) * 0.05
        self._losses = low - margin, high + margin

    def x(self, step: float) -> float:
        low, high = self._steps
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - low) / max(1, high - low)

    def y(self, loss: float) -> float:
        low, high = self._losses
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    def axes(self) -> list[str]:
        parts = []
        low, high = self._losses
        # Enough digits to tell the lines apart.
        digits = min(8, max(3, 2 + math.ceil(math.log10(max(abs(low), abs(high)) / (high - low)))))
        for share in (0.1, 0.5, 0.9):
            loss = low + share * (high - low)
            y = self.y(loss)
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
            parts.append(_text(LEFT - 6, y + 4, f"{loss:.{digits}g}", "end"))
        for step in sorted({self._steps[0], sum(self._steps) // 2, self._steps[1]}):
            anchor = "end" if step == self._steps[1] and self._steps[0] != step else "middle"
            parts.append(_text(self.x(step), HEIGHT - 26, str(step), anchor))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        beside = _text(14, middle, "loss", "middle").replace("<text ", f'<text transform="rotate(-90 14 {middle})" ')
        return [*parts, beside, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "step", "middle")]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="var(--soft)" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _line(frame: _Frame, points: Sequence[tuple[int, float]], colour: str, width: float) -> str:
    if not points:
        return ""
    if len(points) == 1:
        step, loss = points[0]
        return f'<circle cx="{frame.x(step):.1f}" cy="{frame.y(loss):.1f}" r="{width}" fill="{colour}"/>'
    path = " ".join(f"{frame.x(step):.1f},{frame.y(loss):.1f}" for step, loss in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def _first_without_number(trace: Trace, host: int | None, attempt: int) -> int | None:
    """Return the first step whose loss is NaN or infinite."""
    steps = [
        one.step
        for one in trace
        if one.host == host and one.attempt == attempt and one.loss is not None and not math.isfinite(one.loss)
    ]
    return min(steps, default=None)


def _points(trace: Trace, host: int | None, attempt: int | None) -> list[tuple[int, float]]:
    found = {
        one.step: one.loss
        for one in trace
        if one.host == host and attempt in (None, one.attempt) and one.loss is not None and math.isfinite(one.loss)
    }
    points = sorted(found.items())
    every = max(1, len(points) // _MOST_POINTS)
    return points[::every]
