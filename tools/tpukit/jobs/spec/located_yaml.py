"""YAML as plain data that remembers where each value was written.

Reads the part of YAML that job files need and refuses the rest by name: anchors and aliases (which can make a small
file huge), tags, several documents. Plain words become values by the rules of YAML 1.2, as in editors: `no` and `12:30`
are text and `1e-3` is a number, where YAML 1.1 makes them false, 750 and text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from tpukit.core.errors import Invalid, Problem

LARGEST = 1 << 20  # bytes of a file
DEEPEST = 32  # levels of nesting

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,300}|0x[0-9a-fA-F]{1,250}|0o[0-7]{1,300}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ODD_BREAK = re.compile("[\x85\u2028\u2029]")  # YAML 1.1 breaks lines at them; 1.2 and editors do not
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(slots=True)
class Node:
    """A value and the place where it was written, such as job.yaml:3."""

    value: Any  # None, bool, int, float, str, list[Node] or dict[str, Node]
    where: str

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def place(self, path: Sequence[str | int]) -> str:
        """Return where the value at `path`, or the nearest value around it, was written."""
        node = self
        for step in path:
            if isinstance(node.value, dict) and step in node.value:
                node = node.value[str(step)]
            elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
            else:
                break
        return node.where


def read(path: Path, kind: str = "job") -> str:
    """Return the text of a small YAML file. `kind` names it in hints: a job file, job.yaml."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise Invalid(Problem(str(path), "the file does not exist", _neighbour(path, kind))) from None
    except IsADirectoryError:
        hint = _neighbour(path / f"{kind}.yaml", kind)
        raise Invalid(Problem(str(path), "this is a folder, not a file", hint)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Invalid(Problem(str(path), f"the file cannot be read: {reason}", "name another file")) from error
    if len(content) > LARGEST:
        raise Invalid(
            Problem(str(path), "the file is larger than 1 MiB", "move data into other files, and refer to them")
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Invalid(Problem(f"{path}:{line}", "this is not UTF-8 text", "save the file as UTF-8")) from error


def parse(text: str, name: str, *, lines: bool = True) -> tuple[Node, list[Problem]]:
    """Return the one document in `text`, and problems with duplicate keys.

    Places are `name` with a line, or `name` alone without `lines`.

    Raises:
        Invalid: The text is not in the supported part of YAML.
    """
    return _Reader(text, name, lines).document()


def scalar(word: str) -> bool | int | float | str | None:
    """Return the value of an unquoted word, by the core schema of YAML 1.2."""
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word, {"0x": 16, "0o": 8}.get(word[:2], 10))
    if _FLOAT.fullmatch(word):
        return float(word)
    if _NOT_FINITE.fullmatch(word):
        return float(word.replace(".", ""))
    return word


class _Reader:
    def __init__(self, text: str, name: str, lines: bool) -> None:
        self._text = text
        self._name = name
        self._lines = lines
        self._doubles: list[Problem] = []
        self._events: Iterator[Any] = iter(())

    def document(self) -> tuple[Node, list[Problem]]:
        try:
            self._text.encode()
            if odd := _ODD_BREAK.search(self._text):
                raise Invalid(self._control(odd.start()))
            self._events = iter(yaml.parse(self._text, Loader=_LOADER))
            next(self._events)  # start of the stream
            if isinstance(next(self._events), yaml.StreamEndEvent):
                return Node(None, self._place(0)), []
            root = self._node(next(self._events), self._place(0), 0)
            next(self._events)  # end of the document
            after = next(self._events)
        except UnicodeEncodeError as error:
            place = self._place(self._text.count("\n", 0, error.start))
            raise Invalid(Problem(place, "this is not UTF-8 text", "write it in UTF-8")) from error
        except yaml.YAMLError as error:
            raise Invalid(self._syntax(error)) from error
        if not isinstance(after, yaml.StreamEndEvent):
            self._refuse(after, "a second document starts here", "write one document, without --- lines")
        return root, self._doubles

    def _node(self, event: Any, where: str, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            self._refuse(event, "anchors and aliases (&name, *name) are not supported", "write the value out")
        if event.tag:
            self._refuse(event, f"tags such as {event.tag} are not supported", "write the value without it")
        if depth > DEEPEST:
            self._refuse(event, f"this is nested more than {DEEPEST} levels deep", "use fewer levels")
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self._mapping(depth), where)
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(self._sequence(depth), where)
        return Node(scalar(event.value) if event.implicit[0] else event.value, where)

    def _sequence(self, depth: int) -> list[Node]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, self._where(event), depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Node]:
        items: dict[str, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            where = self._where(event)
            key = event.value if isinstance(event, yaml.ScalarEvent) else None
            if key is None:
                self._refuse(event, "a key must be a word", "write key: value")
            self._node(event, where, depth)  # checks its anchor and tag
            node = self._node(next(self._events), where, depth + 1)
            if key in items:
                hint = f"keep one of them; the other is at {items[key].where}"
                self._doubles.append(Problem(where, f"the key {key!r} occurs twice", hint))
            items[key] = node
        return items

    def _where(self, event: Any) -> str:
        return self._place(event.start_mark.line)

    def _place(self, line: int) -> str:
        return f"{self._name}:{line + 1}" if self._lines else self._name

    def _refuse(self, event: Any, what: str, hint: str) -> NoReturn:
        raise Invalid(Problem(self._where(event), what, hint))

    def _syntax(self, error: yaml.YAMLError) -> Problem:
        mark = getattr(error, "problem_mark", None)
        if mark is None:  # a character that YAML does not allow
            return self._control(getattr(error, "position", 0))
        lines = self._text.split("\n")
        line = lines[mark.line] if mark.line < len(lines) else ""
        what = f"this is not YAML: {getattr(error, 'problem', None) or 'the file ends too early'}"
        start = getattr(error, "context_mark", None)
        if start is not None and start.line != mark.line and self._lines:
            what += f" ({error.context} that starts at line {start.line + 1})"  # type: ignore[attr-defined]
        if line[mark.column : mark.column + 1] == "\t" or line.lstrip(" ").startswith("\t"):
            what, hint = "this is not YAML: a tab stands where only spaces may", "indent with spaces"
        elif "mapping values" in what:
            hint = "put a value that contains ': ' in quotes, or check the indentation"
        else:
            hint = "check the quotes, brackets and indentation here, and put text with special characters in quotes"
        return Problem(self._place(mark.line), what, hint)

    def _control(self, position: int) -> Problem:
        place = self._place(self._text.count("\n", 0, position))
        hint = "remove it, or write it as an escape inside double quotes"
        return Problem(place, "the text has a control character", hint)


def _neighbour(path: Path, kind: str) -> str:
    """Return a suggestion for a path that does not exist."""
    if path.is_file():
        return f"write {path}"
    import difflib

    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml"))
    except (OSError, ValueError):
        return f"the folder {path.parent} does not exist either"
    of_kind = [name for name in names if _is_of_kind(path.with_name(name), kind)]
    near = difflib.get_close_matches(path.name, of_kind, n=1, cutoff=0.4) or of_kind[:1]
    return f"write {path.with_name(near[0])}" if near else f"write the path of a {kind} file"


_BEGINS = {"job": r"^(tpu|command)\s*:", "fleet": r"^(dataset|zones)\s*:", "cluster": r"^(project_id|cluster_name)\s*:"}


def _is_of_kind(path: Path, kind: str) -> bool:
    """Report whether a file is named after its kind, or has a field that files of this kind have."""
    if kind not in _BEGINS or path.stem == kind:
        return True
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return re.search(_BEGINS[kind], file.read(65536), re.MULTILINE) is not None
    except OSError:
        return False
