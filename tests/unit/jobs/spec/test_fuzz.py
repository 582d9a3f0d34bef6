"""Arbitrary text makes the loader fail only with Invalid, and values pass through unchanged."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tpukit.core.errors import Invalid
from tpukit.jobs.spec import JobSpec, loads

SMALL = {"name": "hello", "tpu": "v4-8", "command": ["python"]}
STEADY = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FIELDS = st.sampled_from([*JobSpec.fields, "lr", "unknown"])
METACHARACTERS = [
    "{{ name }}",
    "{% for x in y %}",
    "${HOME}",
    "$(id)",
    "`id`",
    "a'b\"c",
    "a\nb: c",
    "a\r\n---\nb",
    "; rm -rf /",
    "&& true",
    "| cat",
    "*",
    "~",
    "\\",
    "%s%n",
    "snow ☃ 𝄞 é",
    "\u202eright",
    "\x1b[31m",
    "line\x85end",
    "\0",
    "\ud800",
    "#",
    " lead",
    "",
    "null",
    "true",
    "1e3",
    "<script>",
    "../..",
]
HUGE = "a" * 300_000
WORDS = st.text() | st.sampled_from(METACHARACTERS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | WORDS, inner, max_size=3),
    max_leaves=8,
)


def _load(text: str, *sets: str) -> JobSpec | None:
    try:
        return loads(text, sets=sets)
    except Invalid as error:
        assert error.problems
        for problem in error.problems:
            assert problem.where
            assert problem.what
            assert problem.hint
            assert len(str(problem).splitlines()) == 2, problem
        return None


@STEADY
@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#%@`,?~ \n\t\0é\ud800<=0.1")))
def test_loads_any_text_is_a_spec_or_invalid(text):
    _load(text)


@STEADY
@given(st.dictionaries(FIELDS, VALUES, max_size=5), st.booleans())
def test_loads_any_document_is_a_spec_or_invalid(document, block):
    try:
        text = yaml.safe_dump({**SMALL, **document}, default_flow_style=not block, allow_unicode=True)
    except UnicodeEncodeError:
        return
    if (spec := _load(text)) is not None:
        assert JobSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@STEADY
@given(st.lists(st.builds("{}{}{}".format, FIELDS | WORDS, st.sampled_from(["=", ".x=", ""]), WORDS), max_size=3))
def test_set_any_item_is_a_spec_or_invalid(items):
    _load(json.dumps(SMALL), *items)


@STEADY
@given(VALUES)
def test_from_json_any_value_is_a_spec_or_invalid(value):
    for field in JobSpec.fields:
        try:
            JobSpec.from_json({**SMALL, field: value})
        except Invalid as error:
            assert error.problems


@STEADY
@given(WORDS)
def test_loads_any_argument_comes_through_verbatim_or_is_refused(text):
    document = {**SMALL, "command": ["python", text], "env": {"A": text}, "config": {"a": text}}
    spec = _load(json.dumps(document, ensure_ascii=False))
    if spec is None:
        assert any(character in text for character in "\0\x7f\x85\u2028\u2029\ufeff") or not text.isprintable()
    else:
        assert (spec.command[1], spec.env["A"], spec.config["a"]) == (text, text, text)


WAYS = {
    "command": (lambda text: {"command": ["python", text]}, lambda spec: spec.command[1]),
    "env": (lambda text: {"env": {"A": text}}, lambda spec: spec.env["A"]),
    "config": (lambda text: {"config": {"a": [text]}}, lambda spec: spec.config["a"][0]),
    "name": (lambda text: {"name": text}, lambda spec: spec.name),
    "tpu": (lambda text: {"tpu": text}, lambda spec: spec.tpu.type),
    "image": (lambda text: {"image": text}, lambda spec: spec.image),
    "team": (lambda text: {"team": text}, lambda spec: spec.team),
    "priority": (lambda text: {"priority": text}, lambda spec: spec.priority),
    "code": (lambda text: {"code": text}, lambda spec: spec.code),
    "workdir": (lambda text: {"workdir": text}, lambda spec: spec.workdir),
    "bucket workdir": (lambda text: {"workdir": f"gs://bucket/a{text}"}, lambda spec: spec.workdir.split("/a", 1)[1]),
    "capacity": (lambda text: {"capacity": {"reservation": text}}, lambda spec: spec.capacity.reservation),
    "tags": (lambda text: {"tags": [text]}, lambda spec: spec.tags[0]),
    "bucket": (lambda text: {"mounts": [{"bucket": text, "path": "/a"}]}, lambda spec: spec.mounts[0].bucket),
    "path": (lambda text: {"mounts": [{"bucket": "abc", "path": text}]}, lambda spec: spec.mounts[0].path),
}  # fmt: skip
VERBATIM = {"command", "env", "config"}


@pytest.mark.parametrize("field", WAYS)
def test_metacharacters_come_through_verbatim_or_are_refused(field):
    put, get = WAYS[field]
    for text in [*METACHARACTERS, HUGE]:
        spec = _load(json.dumps({**SMALL, **put(text)}, ensure_ascii=False))
        if spec is not None:
            assert get(spec) == (text.rstrip("/") if "workdir" in field else text)
        elif field in VERBATIM:
            assert text in ("\0", "\ud800", "line\x85end") or (text == HUGE and field != "config"), text[:20]
