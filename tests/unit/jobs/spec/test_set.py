"""`--set` and aliases: every way to reach a field from the command line."""

from __future__ import annotations

import pytest

from tpukit.core.errors import Invalid
from tpukit.jobs.spec import ALIASES, JobSpec, loads, overrides

TEXT = """\
name: hello
tpu: v4-8
command: [python, hello.py]
config: {lr: 0.1, model: {depth: 2}}
env: {A: b}
capacity: spot
max: {restarts: 3}
"""


def _set(*sets: str, aliases: dict[str, str] | None = None) -> JobSpec:
    return loads(TEXT, sets=sets, aliases=aliases)


def _wrong(*sets: str) -> str:
    with pytest.raises(Invalid) as error:
        _set(*sets)
    return str(error.value)


@pytest.mark.parametrize(
    ("item", "field", "value"),
    [
        ("name=other", "name", "other"),
        ("slices=4", "slices", 4),
        ("command=[python, -c, 'a, b']", "command", ("python", "-c", "a, b")),
        ("tags=[a,b]", "tags", ("a", "b")),
        ("tensorboard=true", "tensorboard", True),
        ("team=007", "team", "007"),
        ("image=a:1", "image", "a:1"),
        ("workdir=gs://bucket/a=b", "workdir", "gs://bucket/a=b"),
        ("capacity=on-demand", "capacity", "on-demand"),
        ("env={}", "env", {}),
        ("env.B=1", "env", {"A": "b", "B": "1"}),
        ("env.B=", "env", {"A": "b", "B": ""}),
        ("env.A=x: [1] #", "env", {"A": "x: [1] #"}),
        ("config={bs: 2}", "config", {"training": {"batch_size": 2}}),
        ("tags=", "tags", ()),
    ],
)
def test_set_any_field_takes_the_value(item, field, value):
    assert getattr(_set(item), field) == value


def test_set_nested_field_leaves_its_neighbours():
    spec = _set("max.runtime=2h", "config.model.width=8")
    assert (spec.max.runtime, spec.max.restarts) == (7200, 3)
    assert spec.config == {"training": {"learning_rate": 0.1}, "model": {"depth": 2, "width": 8}}


def test_set_mapping_over_a_word_replaces_it():
    assert _set("capacity.reservation=mine").capacity.reservation == "mine"
    assert _set("tpu.generation=v4", "tpu.topology=2x2x2").slice.name == "v4-16"


def test_set_same_field_twice_takes_the_last():
    assert _set("slices=2", "slices=3").slices == 3


@pytest.mark.parametrize("alias", ALIASES)
def test_set_alias_reaches_the_same_setting_by_every_name(alias):
    full = ALIASES[alias]
    _, training, setting = full.split(".")
    for name in (alias, full, f"config.{alias}"):
        assert _set(f"{name}=0.5").config[training][setting] == 0.5
    for key in (alias, f"training.{setting}", full, f"training: {{{setting}: 0.5}}, other"):
        spec = loads(f"name: a\ntpu: v4-8\ncommand: [x]\nconfig: {{{key}: 0.5}}\n")
        assert spec.config[training][setting] == 0.5


def test_set_overrides_an_alias_in_the_file():
    assert _set("config.training.learning_rate=1e-4").config["training"] == {"learning_rate": 1e-4}


def test_set_alias_of_the_person_works_beside_the_built_in_ones():
    aliases = {"wu": "config.training.warmup", "lr": "config.optimizer.rate"}
    spec = _set("wu=10", "lr=3", "bs=8", aliases=aliases)
    assert spec.config["training"] == {"warmup": 10, "batch_size": 8}
    assert spec.config["optimizer"] == {"rate": 3}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", 1),
        ("1e-3", 0.001),
        ("true", True),
        ("null", None),
        ("text", "text"),
        ("'1'", "1"),
        ("[1, a, {b: 2}]", [1, "a", {"b": 2}]),
        ("a: b # c", "a: b # c"),
        ("*x", "*x"),
        ("&x", "&x"),
        ("{{ jinja }}", None),
        ("$(ls) ${HOME} `id` ; rm", "$(ls) ${HOME} `id` ; rm"),
        ("a=b=c", "a=b=c"),
    ],
)
def test_set_setting_reads_words_as_yaml_does(value, expected):
    if value == "{{ jinja }}":
        assert "--set config.x: a key must be a word" in _wrong(f"config.x={value}")
    else:
        assert _set(f"config.x={value}").config["x"] == expected


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("slices", "--set slices: the value is missing\n  write --set slices=VALUE"),
        ("=3", "--set : this is not the name of a field\n  write, for example, --set max.runtime=2h"),
        ("a b=3", "--set a b: this is not the name of a field\n  write, for example, --set max.runtime=2h"),
        ("max..a=3", "--set max..a: this is not the name of a field\n  write, for example, --set max.runtime=2h"),
        ("slcies=3", "--set slcies: there is no key 'slcies'\n  write slices"),
        ("max.runtme=1h", "--set max.runtme: there is no key 'runtme' in max\n  write runtime"),
        ("slices=x", "--set slices: 'x' is not a whole number\n  write --set slices=2"),
        ("slices=10000", "--set slices: 10000 is too many\n  write 256 or less"),
        ("tpu=v4-9", "--set tpu: there is no TPU named 'v4-9'\n  write v4-8 or v4-16; `tpu catalogue` lists them all"),
        ("command=python x.py", "--set command: 'python x.py' is not a list\n  write --set command=[python, x.py]"),
        ("tags=[*a]", "--set tags: anchors and aliases (&name, *name) are not supported\n  write the value out"),
        ("lr=.inf", "--set lr: config.training.learning_rate: inf is not a finite number\n"
            "  write a number, or leave it out"),
        ("name=", "--set name: '' is not allowed\n  use at most 32 of a-z, 0-9 and -, a letter first and no - last"),
        ("env.TPUKIT_X=1", "--set env.TPUKIT_X: this name is reserved\n"
            "  leave it out; tpukit sets this variable for each host"),
    ],
)  # fmt: skip
def test_set_wrong_item_names_the_flag(item, message):
    assert _wrong(item) == message


def test_set_open_bracket_is_not_yaml():
    assert _wrong("tags=[a").startswith("--set tags: this is not YAML: ")


def test_set_can_give_all_of_an_empty_file():
    assert loads("", sets=["name=a", "tpu=v4-8", "command=[x]"]).name == "a"


def test_set_text_fields_are_those_of_the_spec_that_are_text():
    text = {name for name, field in JobSpec.schema()["properties"].items() if _is_text(field)}
    assert text == overrides.TEXT


def _is_text(field: dict) -> bool:
    kinds = field.get("anyOf", [field])
    return any(kind.get("type") == "string" and "enum" not in kind for kind in kinds)
