"""HTML from templates: everything is escaped, and a name missing from the context is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpukit.core.quantities import counted
from tpukit.goodput.causes import Cause
from tpukit.jobs import report
from tpukit.teams.forecast.words import in_words

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).with_name("templates")
_CLASSES = {cause: f"c-{cause.name.lower()}" for cause in Cause}


def render(name: str, **context: Any) -> str:
    return environment().get_template(name).render(context)


@cache
def environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "plain": plain,
        "counted": counted,
        "duration": lambda seconds: report.duration(float(seconds)),
        "moment": lambda at: report.clock_time(float(at)),
        "starts": lambda start, now: "" if start is None else in_words(start, float(now)),
        "usd": lambda amount: "unknown" if amount is None else f"{amount:,.2f}",
        "share": lambda share: "–" if share is None else f"{100 * share:.1f} %",
        "css": lambda cause: _CLASSES[cause],
    }
    return made


def plain(text: object) -> str:
    """Return text without control characters and without characters that change the direction of what follows."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in str(text))
