"""Commands that a test types, read from its source: strings in the test, in its callees and in its module's tables."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
WORD = re.compile(r"^[\w:./~@,={}*+<>|-]+$")


class Module:
    """The named parts of a test module, and the strings within each."""

    def __init__(self, path: Path) -> None:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self._parts: dict[str, list[ast.AST]] = {}
        self._used: set[Path] = set()
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._parts.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name):
                            self._parts.setdefault(name.id, []).append(node)
            elif isinstance(node, ast.ImportFrom):
                self._used |= {
                    file for file in (TESTS / f"{(node.module or '').replace('.', '/')}.py",) if file.exists()
                }

    def has(self, name: str) -> bool:
        return name in self._parts

    def lines(self, name: str) -> set[tuple[str, ...]]:
        """Return the words of each string in a part, or of the separate words that it passes to one call."""
        seen, todo, found = set(), [(self, name)], set()
        while todo:
            module, one = todo.pop()
            for node in module._parts.get(one, ()):
                found |= _texts(node)
                for used in ast.walk(node):
                    names = [used.id] if isinstance(used, ast.Name) else []
                    names += [used.arg] if isinstance(used, ast.arg) else []
                    for other in names:
                        homes = [at for at in (module, *map(module_of, module._used)) if at.has(other)]
                        todo += [(home, other) for home in homes[:1] if (home, other) not in seen]
                        seen |= {(home, other) for home in homes[:1]}
        return found


@cache
def module_of(path: Path) -> Module:
    return Module(path)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "WORD" for part in node.values)
    return "WORD"


def _texts(root: ast.AST) -> set[tuple[str, ...]]:
    found = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            found |= {_words(line) for line in _text(node).splitlines()}
        elif isinstance(node, ast.Call | ast.Tuple | ast.List):
            parts = node.args if isinstance(node, ast.Call) else node.elts
            parts = [part.value if isinstance(part, ast.Starred) else part for part in parts]
            found.add(tuple(word for part in parts for word in _words(_text(part))))
    return found


def _words(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError:
        return tuple(line.split())


@cache
def lines_of(test: str) -> set[tuple[str, ...]]:
    """Return the lines that the test `path::name` types; imported names are looked up in their own module."""
    path, _, name = test.partition("::")
    return module_of(TESTS / path).lines(name)
