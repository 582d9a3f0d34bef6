"""Verdicts as JUnit XML for CI: one test case for each loss."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from tpukit.drill.advice import TEXT
from tpukit.drill.engine import Drill, Result
from tpukit.drill.verdicts import Word


def render(drill: Drill) -> str:
    failed = sum(1 for one in drill.results if one.verdict.word is not Word.EXACT) + len(drill.findings)
    count, skipped = len(drill.results) + len(drill.left_out) + len(drill.findings), len(drill.left_out)
    suite = f"tpu drill {drill.job}"
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuite name={_quoted(suite)} tests={_quoted(count)} failures={_quoted(failed)} "
        f"skipped={_quoted(skipped)} time={_quoted(f'{drill.seconds:.3f}')}>",
    ]
    for found in drill.findings:
        message = f"{found.word}: {found.text}; {found.cause}: {TEXT[found.cause]}"
        lines += [f"  <testcase classname={_quoted(suite)} name={_quoted('unbroken')}>"]
        lines += [f"    <failure type={_quoted(found.word)} message={_quoted(message)}/>", "  </testcase>"]
    for one in drill.results:
        lines += _case(suite, one)
    for name, why in drill.left_out:
        lines += [f"  <testcase classname={_quoted(suite)} name={_quoted(name)}>"]
        lines += [f"    <skipped message={_quoted(why)}/>", "  </testcase>"]
    return "\n".join([*lines, "</testsuite>", ""])


def _case(suite: str, result: Result) -> list[str]:
    verdict = result.verdict
    name, time = _quoted(verdict.loss.name), _quoted(f"{result.run.seconds:.3f}")
    begin = f"  <testcase classname={_quoted(suite)} name={name} time={time}"
    if verdict.word is Word.EXACT:
        return [f"{begin}/>"]
    causes = [f"{cause}: {TEXT[cause]}" for cause in result.causes]
    message = "; ".join([f"{verdict.word}: {verdict.text}", *causes])
    return [f"{begin}>", f"    <failure type={_quoted(verdict.word)} message={_quoted(message)}/>", "  </testcase>"]


def _quoted(value: object) -> str:
    """Quote a value for XML. A message may quote a program, so remove what XML does not allow."""
    text = "".join(
        letter for letter in str(value) if letter in "\t\n" or ("\x20" <= letter < "\ud800") or letter > "\ue000"
    )
    return quoteattr(text)
