"""The report as one self-contained HTML file: no script, no font, no external image."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from tpukit import __version__
from tpukit.core import html
from tpukit.drill import plots
from tpukit.drill.advice import TEXT
from tpukit.drill.engine import Drill, Result
from tpukit.drill.verdicts import Word


def render(drill: Drill, notes: Sequence[str] = ()) -> str:
    """Render the page. `notes` has the lines about costs that the terminal prints."""
    good = drill.word is Word.EXACT
    head = f'<h1>{escape(drill.job)}: <span class="{"good" if good else "bad"}">{_word(drill.word)}</span></h1>'
    exact = sum(1 for one in drill.results if one.verdict.word is Word.EXACT)
    about = (
        f'<p class="soft">{exact} of {len(drill.results)} losses exact; {len(drill.planned.steps)} steps, '
        f"{len(drill.planned.saves)} saves before the last step, seed {drill.seed}</p>"
        f'<p class="soft">{escape(drill.command)}</p><p class="soft">tpukit {escape(__version__)}, {_date(drill.at)}; '
        f"{_noise(drill)}</p>"
    )
    advice = "".join(f"<li>{escape(cause)}: {escape(TEXT[cause])}</li>" for cause in drill.causes)
    body = [
        head,
        about,
        f"<h2>What to do</h2><ul>{advice}</ul>" if advice else "",
        _findings(drill),
        _table(drill),
        f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else "",
        *(_section(drill, one) for one in drill.results),
    ]
    return html.page(f"tpu drill {drill.job}", body)


def _table(drill: Drill) -> str:
    rows = []
    for one in drill.results:
        verdict = one.verdict
        style = "good" if verdict.word is Word.EXACT else "bad"
        back = f"{verdict.back_seconds:.1f} s" if verdict.back_seconds is not None else "–"
        rows.append(
            f'<tr><td><a href="#{escape(verdict.loss.name)}">{escape(verdict.loss.name)}</a></td>'
            f'<td class="{style}">{_word(verdict.word)}</td>'
            f'<td class="number wide">{_count(verdict.lost_at)}</td>'
            f'<td class="number wide">{_count(verdict.resumed_at)}</td>'
            f'<td class="number">{_count(verdict.steps_lost)}</td><td class="number">{back}</td></tr>'
        )
    rows += [
        f'<tr><td>{escape(name)}</td><td class="soft" colspan="5">not tried: {escape(why)}</td></tr>'
        for name, why in drill.left_out
    ]
    heads = '<th>loss</th><th>verdict</th><th class="number wide">lost at</th><th class="number wide">went on at</th>'
    heads += '<th class="number">steps lost</th><th class="number">back after</th>'
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _findings(drill: Drill) -> str:
    return "".join(
        f'<p>The unbroken run: <span class="bad">{_word(one.word)}</span>: {escape(one.text)}. '
        f"Likely: {escape(one.cause)}: {escape(TEXT[one.cause])}</p>"
        for one in drill.findings
    )


def _section(drill: Drill, result: Result) -> str:
    verdict = result.verdict
    style = "good" if verdict.word is Word.EXACT else "bad"
    advice = "".join(f"<li>likely: {escape(cause)}: {escape(TEXT[cause])}</li>" for cause in result.causes)
    return (
        f'<h2 id="{escape(verdict.loss.name)}">{escape(verdict.loss.name)}: '
        f'<span class="{style}">{_word(verdict.word)}</span></h2>'
        f'<p class="soft">{escape(str(verdict.loss))}</p><p>{escape(verdict.text)}</p>'
        + (f"<ul>{advice}</ul>" if advice else "")
        + _tails(result)
        + plots.loss_over_step(drill.unbroken.trace, result.run.trace, result.run.struck)
    )


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _noise(drill: Drill) -> str:
    if not drill.noise.most:
        return "unbroken runs are equal to the last digit"
    return f"unbroken runs differ by up to {drill.noise.most:.1g} of the loss"


def _tails(result: Result) -> str:
    return "".join(
        f"<p>The end of the log of host {escape(host)}:</p><pre>{escape(tail)}</pre>"
        for host, tail in result.run.tails.items()
    )


def _word(word: Word | None) -> str:
    return escape(word or "nothing was tried")


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)
