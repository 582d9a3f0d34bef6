"""Find why a host ended in the last lines of its log: it failed by itself, or it lost a peer. Pure.

JAX ends every process when one of them is gone, and programs report refused and closed connections of their own. So
only messages that JAX, XLA, gloo and libtpu print, and no program, indicate a lost peer. The order matters as well: a
program that fails by itself raises first, and then JAX adds that the other hosts did not reach its shutdown barrier,
and aborts (exit code 134). A host that lost a peer prints JAX's message first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

WORDS_MOST = 200
"""Maximum number of characters quoted from a log."""


class Cause(StrEnum):
    UNKNOWN = "unknown"  # nothing in the log explains the end
    ITSELF = "itself"  # the program raised, aborted or crashed
    PEER = "peer"  # JAX, gloo or libtpu report that another host is gone
    CHIP = "chip"  # libtpu reports that its chips do not work


@dataclass(frozen=True, slots=True)
class Reading:
    cause: Cause
    words: str = ""  # the line that shows it
    rest: str = ""  # the log from there on


_PEER = re.compile(
    r"JAX distributed service detected fatal errors"
    r"|coordination_service\w*\.(?:cc|h)\b(?!.*recoverable task feature)|CoordinationService"
    r"|preemption_sync_manager\.cc"
    r"|(?:failed|unable|error)\b.{0,80}\bcoordination (?:service|agent)"
    r"|jax_worker/(?:replica:\d+/)?task:\d+"
    r"|gloo/transport/|gloo::(?:EnforceNotMet|IoException|TimeoutException)|\bGloo [\w-]+ failed"
    r"|Megascale hang detected|Megascale detects a hang(?! that is likely caused by (?:inconsistent|different|data))"
    r"|MegaScale(?:Transport|RuntimeError)|megascale\.runtime|megascale\b.*\b(?:UNAVAILABLE|DEADLINE_EXCEEDED)\b"
    r"|SliceBuilder grpc channel|slice_builder\w*\.cc",
)
_CHIP = re.compile(
    r"!!!! FATAL ERROR !!!! for \[/dev/(?:accel|vfio)|Received Error Interrupt! fatal: true"
    r"|likely caused by bad TPU\b|open\(/dev/(?:vfio/|accel)\d+\): Device or resource busy",
)
_ABORT = re.compile(
    r"\bCheck failed: |^F\d{4} \d\d:\d\d:\d\d|: F [\w/.+-]+:\d+\] |Assertion [`'].*' failed|\bassertion failed: "
    r"|^terminate called |^libc\+\+abi: terminating|^Fatal Python error: |^thread '.*' .*panicked at "
    r"|^(?:double free or corruption|free\(\): |malloc\(\): |corrupted (?:size|double)|munmap_chunk\(\): )"
    r"|^\*\*\* stack smashing detected|likely caused by (?:inconsistent TPU programs|different modules)",
)
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: |$)")
_JAX_ERROR = re.compile(r"^(?:[\w.]+\.)?(?:JaxRuntimeError|XlaRuntimeError)\b")
# Lines and stack traces of glog and absl, and messages of Python at exit.
_RUNTIME = re.compile(
    r"^[EFIW]\d{4} \d\d:\d\d:\d\d|^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*: [EFIW] |^\*\*\* |^ +@ +0x"
    r"|^Error in atexit|^Exception ignored|^Fatal Python error: "
)
_IGNORED = re.compile(r"^Exception ignored (?:in|on|while)\b|^Error in atexit\._run_exitfuncs")
_STACK = re.compile(r"^\s*@ +0x|^\*\*\* |^\s*$")
_GOES_ON = re.compile(r"\b(?:step|epoch|retry\w*|DEBUG|INFO|WARN(?:ING)?)\b", re.IGNORECASE)
_LAST_LINES = 30
_TOLD = re.compile(
    r"\b(?:received|caught|got|stopp(?:ed|ing)|exiting|leaving|terminated)\b.{0,60}"
    r"(?:\bSIGTERM\b|\btermination signal\b|\bsignal 15\b)"
    r"|\bSIGTERM\b.{0,20}\b(?:received|caught)\b",
    re.IGNORECASE,
)
_FINISHED = re.compile(r"\b(?:training|train|run)\b.{0,20}\b(?:complete|completed|finished|done)\b", re.IGNORECASE)
# wandb's lines at the end of a run. It also prints them after an exception, so they are not sufficient.
_WANDB = re.compile(r"^wandb: Run (?:history|summary):")
_MESSAGE_LINES = 3
"""Number of unindented lines that may still belong to the message of an exception."""


def read(lines: Sequence[str]) -> Reading:
    """Return the first thing in `lines` that can have ended the program.

    Skip Python's messages about errors in remaining threads and objects at exit: they follow the cause, and often
    success.
    """
    at, survived = 0, ""
    while at < len(lines):
        line = lines[at].rstrip()
        if _IGNORED.match(line):
            at = _behind_ignored(lines, at)
            continue
        if line == _TRACEBACK:
            end, exceptions = _traceback(lines, at)
            block = "\n".join(lines[at:end])
            words = exceptions[-1] if exceptions else ""
            if any(_PEER.search(one) or (_JAX_ERROR.match(one) and _PEER.search(block)) for one in exceptions):
                return _reading(Cause.PEER, words, lines, at)
            if _CHIP.search(block):
                return _reading(Cause.CHIP, words, lines, at)
            if words and _uncaught(lines[at:end], words):
                return _reading(Cause.ITSELF, words, lines, at)
            survived = "" if _went_on(lines[at:end], words) else words
            at = end
            continue
        for cause, pattern in ((Cause.CHIP, _CHIP), (Cause.PEER, _PEER), (Cause.ITSELF, _ABORT)):
            if pattern.search(line):
                what = lines[at + 1].strip() if lines[at + 1 : at + 2] and "what():" in lines[at + 1] else ""
                return _reading(cause, f"{line} {what}", lines, at)
        at += 1
    # An exception followed by lines that are no steps may be the cause, and says more than those lines.
    return Reading(Cause.UNKNOWN, survived[:WORDS_MOST] or last_words(lines), "\n".join(lines))


def told_to_leave(lines: Sequence[str]) -> bool:
    """Return whether the program prints that it ends because of a SIGTERM."""
    return any(_TOLD.search(line) for line in lines[-_LAST_LINES:])


def finished(lines: Sequence[str]) -> bool:
    """Return whether training is complete, by the program's lines, or by wandb's if there is no traceback."""
    if any(_FINISHED.search(line) for line in lines[-_LAST_LINES:]):
        return True
    return any(map(_WANDB.match, lines)) and not any(line.rstrip() == _TRACEBACK for line in lines)


def last_words(lines: Sequence[str]) -> str:
    """Return the last line outside stack traces and errors that Python ignored at exit."""
    plain: list[str] = []
    at = 0
    while at < len(lines):
        if _IGNORED.match(lines[at]):
            at = _behind_ignored(lines, at)
        else:
            plain.append(lines[at])
            at += 1
    return next((line.strip()[:WORDS_MOST] for line in reversed(plain or lines) if not _STACK.match(line)), "")


def _behind_ignored(lines: Sequence[str], at: int) -> int:
    """Return where the error that Python ignored at `at` ends, with its traceback."""
    at += 1
    while at < len(lines) and lines[at].startswith((" ", "\t")):
        at += 1
    if at < len(lines) and lines[at].rstrip() == _TRACEBACK:
        at += 1
        while at < len(lines) and not _EXCEPTION.match(lines[at]) and not _RUNTIME.match(lines[at]):
            at += 1
        if at < len(lines) and not _RUNTIME.match(lines[at]):
            at += 1
    return at


def _reading(cause: Cause, words: str, lines: Sequence[str], at: int) -> Reading:
    return Reading(cause, words.strip()[:WORDS_MOST], "\n".join(lines[at:]))


def _traceback(lines: Sequence[str], at: int) -> tuple[int, list[str]]:
    """Return where the traceback at `at` ends, with chained ones, and the exceptions."""
    exceptions: list[str] = []
    inside = True  # the frames, which an exception ends
    end = at + 1
    while end < len(lines) and not _RUNTIME.match(lines[end]):
        line = lines[end].rstrip()
        if line == _TRACEBACK:
            if not any("exception" in before for before in lines[max(at, end - 2) : end]):
                break  # another one, with its own cause
            inside = True
        elif inside and _EXCEPTION.match(line):
            exceptions.append(line)
            inside = False
        end += 1
    return end, exceptions


def _uncaught(block: Sequence[str], words: str) -> bool:
    """Return whether an exception was uncaught: after one that it logs and survives, a program prints more."""
    return len(_after(block, words)) <= _MESSAGE_LINES and not _went_on(block, words)


def _went_on(block: Sequence[str], words: str) -> bool:
    return not words or any(_GOES_ON.search(line) for line in _after(block, words))


def _after(block: Sequence[str], words: str) -> list[str]:
    """Return unindented lines after an exception, as a message of many lines may have."""
    start = next((index for index in range(len(block) - 1, -1, -1) if block[index].rstrip() == words), len(block))
    return [line for line in block[start + 1 :] if line.strip() and not line.startswith((" ", "\t"))]
