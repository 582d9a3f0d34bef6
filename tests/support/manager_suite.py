"""Tests of the job manager's users, windows and TPU aliases, for every store backend."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tpukit.core.errors import Conflict, Invalid, NotFound
from tpukit.kernel.store import Event
from tpukit.sharing import inventory, tpu_aliases, users, windows
from tpukit.sharing.inventory import Vm
from tpukit.sharing.settings import UserSettings

RESERVED = frozenset({"run", "kill"})


@pytest.fixture
def ada(store):
    users.add(store, "ada", RESERVED, 1.0)
    return "ada"


def test_add_user_gives_defaults_and_a_second_of_that_name_conflicts(store, ada, home):
    user = users.get(home.open(), ada)
    assert user.settings == UserSettings() and user.directories == {}
    assert sorted(user.aliases) == ["b1", "b2", "bs", "ckpt", "ep", "lr", "wd"]
    with pytest.raises(Conflict, match="user ada already"):
        users.add(store, ada, RESERVED, 2.0)
    with pytest.raises(NotFound, match="no user bob"):
        users.get(store, "bob")


def test_working_directories_are_set_swapped_and_forgotten(store, ada):
    users.set_directory(store, ada, 1, "/one", 2.0)
    users.set_directory(store, ada, 2, "/two", 3.0)
    assert users.swap_directories(store, ada, 1, 2, 4.0).directories == {"1": "/two", "2": "/one"}
    assert users.delete_directory(store, ada, 1, 5.0).directories == {"2": "/one"}
    for wrong in (
        lambda: users.delete_directory(store, ada, 1, 6.0),
        lambda: users.swap_directories(store, ada, 1, 2, 6),
    ):
        with pytest.raises(NotFound, match="no working directory 1"):
            wrong()
    assert users.get(store, ada).directories == {"2": "/one"}
    with pytest.raises(Invalid):
        users.set_directory(store, ada, 0, "/zero", 6.0)


def test_setting_aliases_lead_elsewhere_and_are_deleted(store, ada):
    assert users.set_alias(store, ada, "lr", "config.lr", RESERVED, 2.0).aliases["lr"] == "config.lr"
    assert "wd" not in users.delete_alias(store, ada, "wd", 3.0).aliases
    with pytest.raises(NotFound, match="no alias wd"):
        users.delete_alias(store, ada, "wd", 4.0)
    for alias, setting in (("kill", "config.x"), ("x", "lr"), ("x", "config."), ("x", "config.a b")):
        with pytest.raises(Invalid):
            users.set_alias(store, ada, alias, setting, RESERVED, 5.0)


def test_settings_are_changed_by_name_and_reset(store, ada):
    users.set_setting(store, ada, "monitor_after_run", "False", 2.0)
    changed = users.set_setting(store, ada, "time_zone", "Europe/Berlin", 3.0).settings
    assert (changed.monitor_after_run, changed.time_zone) == (False, "Europe/Berlin")
    assert users.reset_settings(store, ada, 4.0).settings == UserSettings()


def test_news_are_what_came_since_they_were_asked_for(store, ada):
    users.set_directory(store, ada, 1, "/one", 2.0)
    texts = [event.text for event in users.news(store, ada, [Event(3.0, "job"), Event(0.5, "old")], 4.0)]
    assert texts == ["working directory 1 is /one", "job"]
    users.note(store, ada, "later", 5.0)
    assert [event.text for event in users.news(store, ada, [], 6.0)] == ["later"]
    assert len(users.news(store, ada, [], 7.0, unread=False)) == 3


def test_windows_made_at_once_get_numbers_of_their_own(store, home, ada):
    stores = [home.open() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda index: windows.make(stores[index % 4], ada, f"job-{index}", 2.0).number, range(12)))
    assert sorted(made) == list(range(1, 13))
    assert {window.job for window in windows.of_user(store, ada)} == {f"job-{index}" for index in range(12)}


def test_window_number_set_back_steps_over_windows_that_are_there(store, ada):
    for index in range(3):
        windows.make(store, ada, f"job-{index}", float(index))
    windows.drop(store, "ada:2")
    windows.drop(store, "ada:2")
    users.set_last_window(store, ada, 0, 5.0)
    assert [windows.make(store, ada, "new", 6.0).number for _ in range(2)] == [2, 4]
    with pytest.raises(NotFound, match="ada has no window 9"):
        windows.get(store, "ada:9")


def test_windows_of_one_user_are_not_those_of_another(store, ada):
    users.add(store, "bob", RESERVED, 1.0)
    windows.make(store, ada, "a", 2.0)
    windows.make(store, "bob", "b", 3.0)
    assert [window.name for window in windows.of_user(store, ada)] == ["ada:1"]
    with pytest.raises(NotFound):
        windows.of_user(store, "nobody")


def test_children_are_all_that_go_on_from_a_window(store, ada):
    one = windows.make(store, ada, "a", 1.0)
    two = windows.make(store, ada, "b", 2.0, parent=one.number)
    three = windows.make(store, ada, "c", 3.0, parent=two.number)
    listed = windows.of_user(store, ada)
    assert windows.children(listed, one) == [two, three]
    assert windows.children(listed, three) == []


def test_tpu_aliases_lead_to_tpus_and_never_hide_a_user(store, ada):
    tpu_aliases.add(store, "v2-32-6", "kmh-tpuvm-v2-32-6", RESERVED, 1.0)
    tpu_aliases.add(store, "v2-32-6", "kmh-tpuvm-v2-32-7", RESERVED, 2.0)
    assert tpu_aliases.listed(store) == {"v2-32-6": "kmh-tpuvm-v2-32-7"}
    with pytest.raises(Conflict, match="name of a user"):
        tpu_aliases.add(store, ada, "kmh-tpuvm-v2-32-6", RESERVED, 3.0)
    for wrong in ("config", "s", "tag", "run", "username"):
        with pytest.raises(Invalid):
            tpu_aliases.add(store, wrong, "kmh-tpuvm-v2-32-6", RESERVED, 3.0)
    tpu_aliases.delete(store, "v2-32-6")
    with pytest.raises(NotFound):
        tpu_aliases.delete(store, "v2-32-6")


def vm(name="team-v4-8-1", **fields):
    return Vm(**{"name": name, "zone": "us-central2-b", "type": "v4-8", "created": 1.0, **fields})


def test_tpu_given_to_many_jobs_at_once_is_held_by_one(store, home):
    inventory.register(store, vm(), 1.0)
    stores = [home.open() for _ in range(4)]

    def take(index: int) -> bool:
        try:
            inventory.hold(stores[index % 4], "team-v4-8-1", f"u{index}", f"job-{index}", 2.0, lambda job: True)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(take, range(8))) == 1


def test_tpu_of_an_ended_job_is_free_and_one_being_sent_is_not(store):
    inventory.register(store, vm(), 1.0)
    inventory.hold(store, "team-v4-8-1", "ada", "a", 2.0, lambda job: None)
    with pytest.raises(Conflict, match="held by ada for a"):
        inventory.hold(store, "team-v4-8-1", "bob", "b", 3.0, lambda job: None)  # ada's job is about to be recorded
    assert inventory.hold(store, "team-v4-8-1", "bob", "b", 4.0, lambda job: False).user == "bob"
    # The process that sent that job died before it was recorded.
    later = 4.0 + inventory.SENDING_SECONDS
    assert inventory.hold(store, "team-v4-8-1", "ada", "c", later, lambda job: None).job == "c"


def test_release_with_a_user_frees_only_what_is_theirs(store):
    inventory.register(store, vm(), 1.0)
    inventory.hold(store, "team-v4-8-1", "ada", "a", 2.0, lambda job: True)
    inventory.note(store, "team-v4-8-1", "big run", 3.0)
    with pytest.raises(Conflict, match="not by bob"):
        inventory.release(store, "team-v4-8-1", 4.0, user="bob")
    freed = inventory.release(store, "team-v4-8-1", 4.0, user="ada")
    assert (freed.user, freed.job, freed.notes) == ("", "", "")
    with pytest.raises(NotFound, match="not in the inventory"):
        inventory.release(store, "nothing", 4.0)


def test_register_again_moves_the_tpu_and_leaves_who_holds_it(store):
    inventory.register(store, vm(), 1.0)
    inventory.hold(store, "team-v4-8-1", "ada", "a", 2.0, lambda job: True)
    moved = inventory.register(store, vm(zone="us-east5-a"), 3.0)
    assert (moved.zone, moved.user, moved.created) == ("us-east5-a", "ada", 1.0)
