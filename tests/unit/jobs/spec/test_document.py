"""YAML of job files: values, positions, and refused constructs."""

from __future__ import annotations

import math

import pytest

from tpukit.core.errors import Invalid
from tpukit.jobs.spec import located_yaml


def _message(text: str) -> str:
    with pytest.raises(Invalid) as error:
        located_yaml.parse(text, "f.yaml")
    return str(error.value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("007", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e-3", 0.001),
        ("3E8", 3e8),
        (".5", 0.5),
        ("-.inf", -math.inf),
        # values that YAML 1.1 reads differently
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
        ("٣", "٣"),
        ("0b1", "0b1"),
        ("e1", "e1"),
        (".", "."),
    ],
)
def test_scalar_follows_yaml_1_2(word, value):
    found = located_yaml.scalar(word)
    assert (type(found), found) == (type(value), value)
    if word:
        assert located_yaml.parse(f"key: {word}", "f")[0].plain() == {"key": value}


def test_scalar_not_a_number_is_a_float():
    assert math.isnan(located_yaml.scalar(".nan"))


@pytest.mark.parametrize("quoted", ["'7'", '"7"', "|-\n  7", ">-\n  7"])
def test_parse_quoted_number_is_text(quoted):
    assert located_yaml.parse(f"key: {quoted}", "f")[0].plain() == {"key": "7"}


def test_parse_remembers_the_line_of_every_key_and_item():
    root, doubles = located_yaml.parse("# top\na: 1\nb:\n  c: [1,\n    2]\n  d:\n  - x: 1\n\n  - y\n", "f.yaml")
    assert doubles == []
    lines = {("a",): 2, ("b",): 3, ("b", "c"): 4, ("b", "c", 1): 5, ("b", "d", 0, "x"): 7, ("b", "d", 1): 9}
    assert {path: root.place(path) for path in lines} == {path: f"f.yaml:{line}" for path, line in lines.items()}
    assert root.place(("b", "none", 3)) == "f.yaml:3"
    assert root.place(()) == "f.yaml:1"


def test_parse_key_twice_is_a_problem_and_the_rest_is_read():
    root, doubles = located_yaml.parse("a: 1\nb: {c: 1, c: 2}\na: 3\n", "f.yaml")
    assert root.plain() == {"a": 3, "b": {"c": 2}}
    assert [str(problem) for problem in doubles] == [
        "f.yaml:2: the key 'c' occurs twice\n  keep one of them; the other is at f.yaml:2",
        "f.yaml:3: the key 'a' occurs twice\n  keep one of them; the other is at f.yaml:1",
    ]


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
)
ANCHOR = "anchors and aliases (&name, *name) are not supported\n  write the value out"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, f"f.yaml:1: {ANCHOR}"),
        ("a: 1\nb: *a\n", f"f.yaml:2: {ANCHOR}"),
        ("&a b: 1\n", f"f.yaml:1: {ANCHOR}"),
        ("a: [1, &x {b: c}]\n", f"f.yaml:1: {ANCHOR}"),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            "f.yaml:1: tags such as tag:yaml.org,2002:python/object/apply:os.system are not supported\n"
            "  write the value without it",
        ),
        ("a: ! 7\n", "f.yaml:1: tags such as ! are not supported\n  write the value without it"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document starts here\n  write one document, without --- lines"),
        ("? [a, b]\n: c\n", "f.yaml:1: a key must be a word\n  write key: value"),
        ("a: " + "[" * 40 + "]" * 40, "f.yaml:1: this is nested more than 32 levels deep\n  use fewer levels"),
        ("a:\n\tb: 1\n", "f.yaml:2: this is not YAML: a tab stands where only spaces may\n  indent with spaces"),
        ("a: 1\nb: {{ x }}y\n", None),
        ("a: [1, 2\nb: 3\n", None),
        ("a: 'open\n", None),
        ("%YAML 9.9\n---\na: 1\n", None),
        ("a: `x`\n", None),
        ("a: \x07\n", "f.yaml:1: the text has a control character\n"
            "  remove it, or write it as an escape inside double quotes"),
        ("a: 1\nb: \x00\n", "f.yaml:2: the text has a control character\n"
            "  remove it, or write it as an escape inside double quotes"),
        ("a: 1\nb: 'x\u2028y'\n", "f.yaml:2: the text has a control character\n"
            "  remove it, or write it as an escape inside double quotes"),
        ("a: 1\nb: \ud800\n", "f.yaml:2: this is not UTF-8 text\n  write it in UTF-8"),
    ],
)  # fmt: skip
def test_parse_what_is_not_read_here_is_refused_with_its_line(text, message):
    found = _message(text)
    assert found.startswith("f.yaml:")
    assert len(found.splitlines()) == 2
    if message is not None:
        assert found == message


def test_parse_unquoted_colon_says_to_quote_it():
    found = _message("a: b: c\n")
    assert found.startswith("f.yaml:1: this is not YAML: mapping values are not allowed")
    assert found.endswith("\n  put a value that contains ': ' in quotes, or check the indentation")


def test_parse_open_bracket_names_the_line_where_it_starts():
    found = _message("a: 1\nb: [1, 2\nc: 3\n")
    assert "that starts at line 2)" in found


def test_parse_escaped_line_breaks_come_through():
    text = '"a\\nb\\x85c\\u2028d\\u2029e\\rf"'
    assert located_yaml.parse(f"key: {text}", "f")[0].plain() == {"key": "a\nb\x85c\u2028d\u2029e\rf"}


def test_parse_reads_thirty_two_levels():
    located_yaml.parse("a: " + "[" * 31 + "]" * 31, "f")


def test_parse_a_document_with_markers_is_one_document():
    assert located_yaml.parse("---\na: 1\n...\n", "f")[0].plain() == {"a": 1}
