"""Names given by people, and the information in TPU names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tpukit.cli.who import reserved
from tpukit.core.errors import Invalid
from tpukit.sharing import settings, tpu_names
from tpukit.sharing.settings import UserSettings


@pytest.mark.parametrize(
    "name",
    [
        "run",
        "false",
        "v2-32-2",
        "小明",
        "kill",
        "rel",
        "k",
        "ls",
        "user",
        "vm",
        "help",
        "Ada",
        "7",
        "",
        "a b",
        "a=b",
        "-a",
        "a-",
    ],
)
def test_user_name_that_could_be_something_else_is_refused(name):
    with pytest.raises(Invalid):
        tpu_names.check_user(name, reserved())


@pytest.mark.parametrize("name", ["xibo", "lyy", "zhh", "ada-2", "a_b"])
def test_user_name_that_is_only_a_name_is_taken(name):
    assert tpu_names.check_user(name, reserved()) == name


@pytest.mark.parametrize(
    ("name", "type_", "spot", "short"),
    [
        ("kmh-tpuvm-v2-32-1", "v2-32", False, "v2-32-1"),
        ("kmh-tpuvm-v2-32-preemptible-1", "v2-32", True, "v2-32-p1"),
        ("kmh-tpuvm-v4-32-preemptible-yiyang2", "v4-32", True, "v4-32-pyiyang2"),
        ("v2-32-p2", "v2-32", True, "v2-32-p2"),
        ("v4-32-py2", "v4-32", True, "v4-32-py2"),
        ("v2-32-6", "v2-32", False, "v2-32-6"),
        ("v5litepod-16", "v5litepod-16", False, "v5litepod-16"),
        ("team-v6e-8-spot-3", "v6e-8", True, "v6e-8-p3"),
    ],
)
def test_name_of_a_tpu_says_type_and_how_it_is_bought(name, type_, spot, short):
    assert tpu_names.parse_tpu(name) == tpu_names.TpuName(type_, spot, short)


@given(some.text(max_size=20))
def test_parse_of_any_text_is_an_answer(text):
    parsed = tpu_names.parse_tpu(text)
    assert parsed is None or parsed.type in text


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("monitor_after_run", "False", False),
        ("monitor_verbose", "true", True),
        ("monitor_upd_time", "10", 10),
        ("time_zone", "cn", "cn"),
        ("time_zone", "Asia/Tokyo", "Asia/Tokyo"),
        ("extra_settings", '{"a": 1}', {"a": 1}),
    ],
)
def test_setting_is_read_as_what_it_is(key, text, value):
    assert getattr(settings.changed(UserSettings(), key, text), key) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(("monitor_after_run", "maybe"), ("monitor_upd_time", "0"), ("monitor_upd_time", "-1"), ("show_length", "x")),
        *(("time_zone", "Mars/Olympus"), ("time_zone", "../etc"), ("extra_settings", "[]"), ("nothing", "1")),
    ],
)
def test_setting_that_is_wrong_is_refused_with_its_name(key, text):
    with pytest.raises(Invalid, match=key):
        settings.changed(UserSettings(), key, text)


def test_settings_of_a_new_user_are_those_of_the_document():
    assert UserSettings() == UserSettings(
        *(True, 5, 800, True, True, False, 200, "us", {}),
    )
    assert (
        *("monitor_after_run", "monitor_upd_time", "monitor_length", "monitor_dir", "monitor_tpu"),
        *("monitor_verbose", "show_length", "time_zone", "extra_settings"),
    ) == settings.NAMES


def test_every_setting_has_a_meaning_for_people():
    assert tuple(settings.MEANINGS) == settings.NAMES
