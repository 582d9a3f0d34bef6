"""The JSON Schema that editors complete job files with."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tpukit import catalogue
from tpukit.core.errors import Invalid
from tpukit.jobs.spec import JobSpec, json_schema, loads

SCHEMA = json.loads(json.dumps(json_schema()))
SMALL = {"name": "hello", "tpu": "v4-8", "command": ["python"]}


def _accepts(document: object) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


def test_schema_is_a_valid_draft_2020_12_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("field", JobSpec.fields)
def test_schema_field_has_a_description_and_examples_that_pass(field):
    described = SCHEMA["properties"][field]
    assert described["description"]
    assert described["examples"]
    for example in described["examples"]:
        assert _accepts(SMALL | {field: example})
        loads(json.dumps(SMALL | {field: example}))


@pytest.mark.parametrize(
    "change",
    [
        {"comand": []},
        {"tpu": "v4-9"},
        {"tpu": {"type": "v4-8", "topology": "2x2x1"}},
        {"slices": 10000},
        {"slices": "2"},
        {"command": []},
        {"command": "python"},
        {"name": "Hello"},
        {"name": "a" * 33},
        {"max": {"runtime": 5}},
        {"max": {"runtme": "5h"}},
        {"capacity": "cheap"},
        {"rule": "retry"},
        {"env": {"A-B": "c"}},
        {"env": {"A": 1}},
        {"mounts": [{"bucket": "abc", "path": "data"}]},
        {"tags": ["a b"]},
        {"image": "A B"},
        {"workdir": "s3://b"},
    ],
)
def test_schema_refuses_what_the_loader_refuses(change):
    assert not _accepts(SMALL | change)
    with pytest.raises(Invalid):
        loads(json.dumps(SMALL | change))


@pytest.mark.parametrize("key", ["name", "tpu", "command"])
def test_schema_required_key_missing_is_refused(key):
    assert not _accepts({name: value for name, value in SMALL.items() if name != key})


def test_schema_completes_every_name_of_every_slice():
    names = [name for s in catalogue.slices() for name in s.spellings]
    assert all(_accepts(SMALL | {"tpu": name}) for name in (names[0], names[-1], "v5e-16", "v5litepod-16"))
    (choices,) = (kind for kind in SCHEMA["$defs"]["Tpu"]["anyOf"] if "enum" in kind)
    assert choices["enum"] == list(dict.fromkeys(names))


def test_schema_accepts_what_to_json_writes():
    spec = loads(json.dumps(SMALL | {"capacity": {"reservation": "mine"}, "config": {"lr": 1}}))
    assert _accepts(spec.to_json())
