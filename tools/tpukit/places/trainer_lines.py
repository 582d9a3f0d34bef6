"""Parse step, loss and saved step from the lines that common trainers print. Pure.

MaxText, CLU, axlearn, torchtitan, Levanter, the Hugging Face Trainer, nanoGPT and everything that prints a step and a
loss in one line are recognized by default; a pattern of the job file reads all else. Lines are untrusted: parsing never
raises and takes bounded time per line (lines are cut, and no pattern here nests repeats).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tpukit.jobs.spec.patterns import LINE as OWN_LINE

LINE_MOST = 2000
"""Maximum number of characters read from a line."""
_INT_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Mention:
    """The progress in one line."""

    step: int | None = None
    loss: float | None = None  # NaN and infinity are values
    saved: int | None = None
    total: int | None = None  # the total number of steps that the program plans


_NUMBER = r"[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,4})?|[-+]?(?:nan|inf)(?![a-z])"
_COUNT = r"\d{1,3}(?:,\d{3}){1,5}|\d{1,18}"
_END = r"(?!\w|\.\d|,\d)"
"""End of a count, so that 0.3 seconds per step is not read as step 0."""
_SPACE = r"[ \t]{0,20}"
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_GLOG = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9}[ \t]{1,10}\d{1,20} [^\s:]{1,200}:\d{1,6}\] ")
_NOT_TRAINING = re.compile(r"(?<![a-z])(?:eval\w{0,12}|valid\w{0,12}|val|test\w{0,8}|running)(?![a-z])", re.IGNORECASE)
_LOSS = re.compile(
    rf"(?<!\w)(?:(?:train(?:ing)?|total|avg|mean)[_/ .-])?loss(?:/(?:train|mean|total))?['\"]?{_SPACE}[:=]?{_SPACE}"
    rf"['\"]?(?P<loss>{_NUMBER})",
    re.IGNORECASE,
)
_STEPS = (
    re.compile(
        rf"(?<![\w/])(?<!per )(?:(?:global|train(?:ing)?|optim(?:izer)?|current)[_ -]?)?(?:step|iter|iteration)['\"]?"
        rf"{_SPACE}[:=#]?{_SPACE}[(\[]?['\"]?(?P<step>{_COUNT}){_END}"
        rf"(?:{_SPACE}(?:/|of){_SPACE}(?P<total>{_COUNT}){_END})?",
        re.IGNORECASE,
    ),
    re.compile(rf"(?:^|\] )\[(?P<step>{_COUNT})\] "),  # CLU
    re.compile(rf"\|{_SPACE}(?P<step>{_COUNT})/(?P<total>{_COUNT}) \["),  # tqdm
    re.compile(r"Progress on:train (?P<step>\d{1,3})(?:\.\d)?it/(?P<total>\d{1,3})(?:\.\d)?it"),  # Levanter, below 1000
)
_BAR = re.compile(rf"^{_SPACE}\d{{1,3}}%\|[^|]{{0,200}}\|{_SPACE}(?P<step>{_COUNT})/(?P<total>{_COUNT}) \[")
_TRAINER_STATE = re.compile(r"\{'loss': ")  # the Hugging Face Trainer, which prints no step: its progress bar has it
_SAVED = re.compile(r"\b(?:saved|wrote|committed|finished (?:saving|writing)|save complete|finalized)\b", re.IGNORECASE)
_CHECKPOINT = re.compile(r"checkpoint|ckpt|\bstate\b", re.IGNORECASE)
_NOT_SAVED = re.compile(
    r"\b(?:not|no|nothing|never|fail\w{0,4}|cannot|could|error|will|skip\w{0,5}|restor\w{0,4}|load\w{0,4}|resum\w{0,4}"
    r"|best|delet\w{0,4}|remov\w{0,4})\b",
    re.IGNORECASE,
)
_SAVED_STEP = (
    re.compile(rf"(?<![\w/])(?:step|iter|iteration)[ _=:-]{{1,3}}(?P<saved>{_COUNT}){_END}", re.IGNORECASE),
    re.compile(rf"(?:checkpoints?|ckpts?)/(?:step[-_])?(?P<saved>{_COUNT})(?![\w.])", re.IGNORECASE),
    re.compile(
        r"(?<![a-z])(?:checkpoint|ckpt|step|global_step|iter)[-_ :=]{1,2}(?P<saved>\d{1,18})(?!\w)", re.IGNORECASE
    ),
)


class Reader:
    """A parser for one log, line by line."""

    def __init__(self, pattern: str = "") -> None:
        """Initialize. `pattern`: with groups named step, loss and saved, used instead of the built-in patterns.

        It was checked with the job file; a pattern of another version that this one cannot read is ignored.
        """
        try:
            self._pattern = re.compile(pattern) if pattern else None
        except re.error:
            self._pattern = None
        self._bar: Mention | None = None

    def read(self, line: str) -> Mention | None:
        """Return the progress in the line; None if there is none."""
        text = plain(line)
        if self._pattern is not None:
            return _mention(self._pattern.search(text[:OWN_LINE]))
        if "%|" in text and (bar := _BAR.search(text)):
            self._bar = _mention(bar)
        if self._bar and _TRAINER_STATE.search(text):
            loss = _LOSS.search(text)
            return Mention(self._bar.step, _loss(loss["loss"]) if loss else None, total=self._bar.total)
        return read(text)


def read(text: str) -> Mention | None:
    """Parse a line without colours for a training step or a save, as common trainers print them."""
    low = text.lower()
    if "loss" not in low and "checkpoint" not in low and "ckpt" not in low and "state" not in low:
        return None  # most lines: the patterns below cost fifty times as much
    prefix = _GLOG.match(text)
    body = text[prefix.end() :] if prefix else text  # a module of the program may be called test_model.py
    saved = _saved(body)
    loss = _LOSS.search(body)
    step = None
    if loss is not None and not _NOT_TRAINING.search(body):
        step = _mention(next((found for pattern in _STEPS if (found := pattern.search(body))), None))
    if step is None or loss is None:
        return None if saved is None else Mention(saved=saved)
    return Mention(step.step, _loss(loss["loss"]), saved, step.total)


def _saved(text: str) -> int | None:
    if not _SAVED.search(text) or not _CHECKPOINT.search(text) or _NOT_SAVED.search(text):
        return None
    found = next((found for pattern in _SAVED_STEP if (found := pattern.search(text))), None)
    return _count(found["saved"]) if found else None


def plain(line: str) -> str:
    """Return a line without colours, cut; of a progress bar that redraws itself in one line, its last state."""
    text = line.rstrip("\r\n")
    if len(text) > LINE_MOST:
        text = text[-LINE_MOST:] if "\r" in text[-LINE_MOST:] else text[:LINE_MOST]
    text = text.rpartition("\r")[2][:LINE_MOST]
    return _COLOUR.sub("", text) if "\x1b" in text else text


def last(lines: Iterable[str], pattern: str = "") -> Mention:
    """Return the newest step with its loss, and the highest saved step, of all lines together."""
    reader, known = Reader(pattern), Mention()
    for line in lines:
        if found := reader.read(line):
            known = merged(known, found)
    return known


def merged(known: Mention, new: Mention) -> Mention:
    saved = max((one for one in (known.saved, new.saved) if one is not None), default=None)
    if new.step is None:
        return Mention(known.step, known.loss, saved, known.total)
    return Mention(new.step, new.loss, saved, new.total or known.total)


def _mention(found: re.Match[str] | None) -> Mention | None:
    if found is None:
        return None
    groups = found.groupdict()
    mention = Mention(
        _count(groups.get("step")), _loss(groups.get("loss")), _count(groups.get("saved")), _count(groups.get("total"))
    )
    return None if mention == Mention() else mention


def _count(text: str | None) -> int | None:
    """Parse a count, which programs may also write as a float."""
    if not text or len(text) > 40:
        return None
    try:
        number = float(text.replace(",", "")) if not text.isascii() or not text.isdigit() else int(text)
    except ValueError:
        return None
    if isinstance(number, float):
        if not number.is_integer():  # also true for infinity and NaN
            return None
        number = int(number)
    return number if 0 <= number <= _INT_MOST else None


def _loss(text: str | None) -> float | None:
    if not text or len(text) > 60:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number
