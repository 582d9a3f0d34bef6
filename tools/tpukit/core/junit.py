"""Results as JUnit XML for CI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr


@dataclass(frozen=True, slots=True)
class Case:
    """One test case. It passed unless `failure` or `skipped` is given."""

    name: str
    seconds: float | None = None
    failure: tuple[str, str] | None = None  # type and message
    skipped: str = ""  # why nothing was tested


def render(suite: str, cases: Sequence[Case], seconds: float) -> str:
    failed, skipped = sum(1 for one in cases if one.failure), sum(1 for one in cases if one.skipped)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuite name={_quoted(suite)} tests={_quoted(len(cases))} failures={_quoted(failed)} "
        f"skipped={_quoted(skipped)} time={_quoted(f'{seconds:.3f}')}>",
    ]
    for case in cases:
        time = "" if case.seconds is None else f" time={_quoted(f'{case.seconds:.3f}')}"
        begin = f"  <testcase classname={_quoted(suite)} name={_quoted(case.name)}{time}"
        if case.failure:
            kind, message = case.failure
            inside = f"    <failure type={_quoted(kind)} message={_quoted(message)}/>"
        elif case.skipped:
            inside = f"    <skipped message={_quoted(case.skipped)}/>"
        else:
            lines.append(f"{begin}/>")
            continue
        lines += [f"{begin}>", inside, "  </testcase>"]
    return "\n".join([*lines, "</testsuite>", ""])


def _quoted(value: object) -> str:
    """Quote a value for XML. A message may quote a program, so remove what XML does not allow."""
    text = "".join(
        letter for letter in str(value) if letter in "\t\n" or ("\x20" <= letter < "\ud800") or letter > "\ue000"
    )
    return quoteattr(text)
