"""Commands of the job manager as documented, each with its output or effect."""

from __future__ import annotations

import json

import pytest

from support.manager_desk import set_up
from tpukit.cli import context, questions
from tpukit.cli.follow import Follower
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.sharing import inventory, tpu_aliases, users, windows
from tpukit.sharing.settings import UserSettings


def user(name: str = "xibo") -> users.User:
    return users.get(context.store(), name)


def numbers() -> list[int]:
    return [window.number for window in windows.of_user(context.store(), "xibo")]


def vm(name: str = "g-v4-8-1") -> inventory.Vm:
    found = inventory.get(context.store(), name)
    assert found is not None
    return found


def test_add_user_without_a_name_asks_for_it(desk):
    said = desk("add-user", answers="ada\n").output
    assert "Name: ada" in said and "ada is a user" in said
    assert user("ada").settings == UserSettings()


@pytest.mark.parametrize("name", ["run", "false", "v2-32-2"])
def test_add_user_with_the_name_of_something_else_is_refused(desk, name):
    desk(f"add-user {name}", code=2)
    assert name not in context.store().keys(users.USERS)


def test_directories_are_set_listed_swapped_and_deleted(desk, tmp_path, monkeypatch):
    desk("add-user xibo")
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        desk(f"set-cur {number} username")
    assert user().directories == {str(number): str(tmp_path / str(number)) for number in (1, 2)}
    listed = desk("ls username").stdout.splitlines()
    assert [line.split() for line in listed] == [[str(number), str(tmp_path / str(number))] for number in (1, 2)]
    desk("swap-dir 1 2 username")
    assert user().directories == {"1": str(tmp_path / "2"), "2": str(tmp_path / "1")}
    desk("del-dir 2 username")
    assert user().directories == {"1": str(tmp_path / "2")}


def test_run_takes_the_job_file_of_the_chosen_directory_and_the_first_one_by_default(desk, tmp_path, monkeypatch):
    set_up(desk)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "job.yaml").write_text('name: other\ntpu: v4-8\ncommand: ["true"]\n')
    monkeypatch.chdir(tmp_path / "other")
    desk("set-cur 2 username")
    desk("run tpu_name username")
    desk.end()
    desk("run v2-32-6 xibo dir=2")
    assert [desk.job(f"xibo:{number}").plan["spec"]["name"] for number in (1, 2)] == ["train", "other"]


def test_tpu_is_meant_by_an_alias_by_its_full_name_and_by_the_end_of_it(desk):
    set_up(desk)
    for meant in ("v2-32-6", "g-v4-8-1", "v4-8-1"):
        desk(f"run {meant} xibo")
        desk.end()
    assert {window.tpu for window in windows.of_user(context.store(), "xibo")} == {"g-v4-8-1"}
    assert len(numbers()) == 3


def test_tpu_aliases_are_added_listed_and_refused_where_they_mean_something_else(desk):
    set_up(desk)
    desk("-ta alias FULL_TPU_NAME")
    assert tpu_aliases.listed(context.store())["mine"] == "g-v4-8-9"
    assert ["mine", "g-v4-8-9"] in [line.split() for line in desk("-lta").stdout.splitlines()]
    for taken in ("tag", "config", "s", "xibo"):
        desk(f"-ta {taken} FULL_TPU_NAME", code=1 if taken == "xibo" else 2)
    assert "xibo" not in tpu_aliases.listed(context.store())


@pytest.mark.parametrize(("value", "option", "follows"), [("True", "", 1), ("True", " -q", 0), ("False", "", 0)])
def test_run_opens_the_monitor_unless_an_option_or_the_setting_forbids_it(desk, monkeypatch, value, option, follows):
    set_up(desk)
    followed = []
    monkeypatch.setattr(Follower, "start", lambda self: None)
    monkeypatch.setattr(Follower, "follow", lambda self: followed.append(self) or 0)
    desk(f"set-settings monitor_after_run {value} username")
    desk(f"run v2-32-6 xibo{option}")
    assert len(followed) == follows


def test_monitor_and_check_show_every_window_with_what_letters_and_settings_ask_for(desk):
    set_up(desk)
    for tag in ("one", "two"):
        desk(f"run v2-32-6 xibo tag={tag}")
        desk.end()
    for line in ("monitor username", "check username"):
        said = desk(line).output
        assert said.splitlines()[0].split() == ["w", "d", "tpu", "state", "age", "tags", "message"]
        assert "one" in said and "two" in said and said.count("g-v4-8-1") == 2
    assert desk("monitor xibo -dsv").output.splitlines()[0].split() == ["d", "state", "age", "tags", "message"]
    desk("set-settings monitor_tpu False username")
    assert "g-v4-8-1" not in desk("monitor username").output


def test_notes_beside_a_tpu_are_asked_for_or_given_with_underscores(desk):
    set_up(desk)
    assert "Notes: " in desk("run v2-32-6 xibo -ssn", answers="night run\n").output
    assert vm().notes == "night run"
    desk.end()
    desk("run v2-32-6 xibo ssn=your_notes")
    assert vm().notes == "your notes"


def found(desk, types: str) -> set[str]:
    return {row["name"] for row in json.loads(desk(f"find {types} --json").stdout)}


def test_find_shows_tpus_of_types_and_generations_by_how_they_are_bought(desk):
    set_up(desk)
    names = {"g-v4-8-1", "g-v4-8-spot-1", "g-v3-8-1", "g-v2-8-1"}
    for name in names:
        desk(f"apply {name}")
    assert found(desk, "v2") == {"g-v2-8-1"} and found(desk, "v3-8") == {"g-v3-8-1"}
    assert found(desk, "v234") == found(desk, "v*") == names
    assert found(desk, "v34 -n") == {"g-v4-8-1", "g-v3-8-1"}
    assert found(desk, "v34 -p") == {"g-v4-8-spot-1"}


def test_release_with_a_user_frees_only_what_that_user_holds(desk):
    set_up(desk)
    desk("run v2-32-6 xibo ssn=busy")
    assert "held by xibo" in desk.error("release tpu_name lyy")
    assert vm().user == "xibo"
    desk.end()
    desk("release tpu_name username")
    assert (vm().user, vm().notes) == ("", "")


def test_tpu_of_a_job_that_has_ended_is_used_without_a_question(desk):
    set_up(desk)
    desk("run v2-32-6 xibo")
    desk.end(State.FAILED)
    desk("run v2-32-6 lyy", answers="")
    assert vm().user == "lyy"


def test_kill_window_stops_the_job_and_its_row_says_so(desk):
    set_up(desk)
    users.set_last_window(context.store(), "xibo", 100, 1.0)
    desk("run v2-32-6 xibo")
    desk("kill-window 101 username")
    assert desk.job("xibo:101").state is State.CANCELLED
    assert "cancelled" in desk("check username").output


@pytest.mark.parametrize("line", ["clear-all username", "clear username", "clean username"])
def test_clear_drops_finished_failed_and_killed_windows_and_leaves_active_ones(desk, line):
    set_up(desk)
    for state in (State.COMPLETED, State.FAILED, State.CANCELLED):
        desk("run v2-32-6 xibo")
        desk.end(state)
    desk("run v2-32-6 xibo")
    desk(line)
    assert numbers() == [4]


def test_tpu_is_created_described_restarted_and_recreated(desk):
    set_up(desk)
    desk("vm delete g-v4-8-1 --yes")
    assert "g-v4-8-1 READY" in desk("apply tpu_name").output
    assert desk("check-status tpu_name").stdout.strip() == "READY"
    described = dict(line.split(maxsplit=1) for line in desk("describe tpu_name").output.splitlines()[2:5])
    assert described == {"type": "v4-8", "zone": "us-central2-b", "state": "READY"}
    assert "host 0" in desk("describe tpu_name").output
    assert "g-v4-8-1 READY" in desk("restart tpu_name", answers="y\n").output
    before = desk.cloud.made["g-v4-8-1"].id
    desk("reapply tpu_name", answers="n\n", code=1)
    assert desk.cloud.made["g-v4-8-1"].id == before
    desk("reapply tpu_name", answers="y\n")
    assert desk.cloud.made["g-v4-8-1"].id != before


def test_mount_disk_mounts_the_shared_disk_of_a_tpu(desk):
    set_up(desk)
    assert "10.0.0.2:/share mounted at /mnt/share" in desk("mount-disk tpu_name").output


def test_seven_aliases_of_settings_are_there_and_own_ones_are_added_listed_and_deleted(desk):
    set_up(desk)
    listed = [line.split() for line in desk("-sa username").stdout.splitlines()]
    assert [alias for alias, _ in listed] == ["b1", "b2", "bs", "ckpt", "ep", "lr", "wd"]
    desk("-a steps config.training.steps xibo")
    assert ["steps", "config.training.steps"] in [line.split() for line in desk("-sa username").stdout.splitlines()]
    desk("run v2-32-6 xibo steps=7")
    assert desk.job("xibo:1").plan["spec"]["config"] == {"training": {"steps": 7}}
    desk("del-config-alias steps username")
    assert "steps" not in desk("-sa username").stdout


@pytest.mark.parametrize("name", ["lr", "config.training.learning_rate"])
def test_run_passes_a_setting_by_its_short_and_by_its_full_name(desk, name):
    set_up(desk)
    desk(f"run v2-32-6 xibo {name}=0.01")
    assert desk.job("xibo:1").plan["spec"]["config"] == {"training": {"learning_rate": 0.01}}


def test_job_is_tagged_when_it_is_sent_and_later(desk):
    set_up(desk)
    desk("run v2-32-6 xibo tag=your_tag")
    desk("add-tag 1 tag_name username")
    assert desk.job("xibo:1").tags == ("your_tag", "tag_name")


def test_job_is_resumed_on_another_tpu_as_a_child_of_its_window(desk):
    set_up(desk)
    desk("apply g-v4-8-2")
    desk("-ta v2-32-7 g-v4-8-2")
    desk("run v2-32-6 xibo")
    desk.end(State.FAILED)
    desk("resume windows=1 tpu=v2-32-7 username")
    child = windows.get(context.store(), "xibo:2")
    assert (child.parent, child.tpu) == (1, "g-v4-8-2")


@pytest.mark.parametrize("rule", ["resume", "rerun", "reapply", "pass", "pre"])
def test_rule_of_a_job_is_the_one_that_was_given(desk, rule):
    set_up(desk)
    desk(f"run v2-32-6 xibo rule={rule}")
    assert desk.job("xibo:1").plan["spec"]["rule"] == rule


def test_rule_by_default_is_pre_on_spot_capacity_and_pass_elsewhere(desk):
    set_up(desk)
    desk("apply g-v4-8-spot-1")
    desk("run v2-32-6 xibo")
    desk("run v4-8-p1 xibo")
    assert [desk.job(f"xibo:{number}").plan["spec"]["rule"] for number in (1, 2)] == ["pass", "pre"]


def test_rules_are_shown_as_the_table_that_decides(desk):
    rows = [line.split() for line in desk("check-rules").stdout.splitlines()[1:6]]
    assert rows == [
        ["pass", "nothing", "nothing"],
        ["resume", "nothing", "resume"],
        ["rerun", "reapply", "rerun"],
        ["reapply", "reapply", "reapply"],
        ["pre", "reapply", "resume"],
    ]


def test_ack_writes_each_active_job_which_wakes_its_driver(desk):
    set_up(desk)
    desk("run v2-32-6 xibo")
    before = context.store().get(JOBS, desk.job("xibo:1").id).revision
    assert "1 active job, 0 driven" in desk("ack").output
    assert context.store().get(JOBS, desk.job("xibo:1").id).revision != before
    assert "asked the driver to look at the job" in desk("log xibo").output


def test_settings_are_shown_with_their_meaning_changed_and_reset(desk):
    set_up(desk)
    desk("set-settings monitor_length 500 username")
    desk("set-settings time_zone cn username")
    shown = {line.split()[0]: line for line in desk("get-settings username").stdout.splitlines()}
    assert set(shown) == set(UserSettings.__struct_fields__)
    assert "500" in shown["monitor_length"] and shown["monitor_length"].rstrip().endswith("state is unknown")
    assert user().settings.time_zone == "cn"
    desk("set-settings time_zone Mars/Olympus username", code=2)
    desk("reset-settings username")
    assert user().settings == UserSettings()


def test_window_numbers_go_up_and_one_set_back_steps_over_windows_that_are_there(desk):
    set_up(desk)
    for _ in range(3):
        desk("run v2-32-6 xibo -q")
        desk.end()
    desk("clear xibo")
    assert numbers() == []
    desk("run v2-32-6 xibo -q")
    desk.end()
    assert numbers() == [4]
    desk("reset-window-num 2 username")
    for _ in range(2):
        desk("run v2-32-6 xibo -q")
        desk.end()
    assert sorted(numbers()) == [3, 4, 5]


def test_introduction_and_help_name_each_command_in_both_spellings(desk):
    said = desk("tldr").output
    for line in ("tpu set-cur 1", "tpu run v2-32-6", "tpu monitor", "tpu clean", "tpu solve v2-32-6", "tpu -a lr"):
        assert line in said
    explained = desk("-h command").output
    assert "tpu kill | kill-job | -k | -kj" in explained and "tpu job stop" in explained


def test_scripts_on_hosts_report_the_log_and_the_end_of_a_job(desk):
    set_up(desk)
    users.set_last_window(context.store(), "xibo", 2, 1.0)
    desk("run v2-32-6 xibo")
    desk("log xibo")
    desk("upd-log xibo:3 /logs/run /staging/code v2-32-6 20250420_011026")
    desk("finish-job xibo:3")
    said = desk("log xibo").output
    assert "window 3: log /logs/run, code /staging/code" in said and "its script reports that it is done" in said


@pytest.mark.parametrize(("answer", "recreated"), [("n", False), ("y", True)])
def test_run_on_a_preempted_tpu_asks_and_recreates_it_only_after_yes(desk, monkeypatch, answer, recreated):
    set_up(desk)
    desk("apply g-v4-8-spot-1")
    desk.cloud.preempt("g-v4-8-spot-1")
    monkeypatch.setattr(questions, "possible", lambda: True)
    said = desk("run v4-8-p1 xibo", code=int(not recreated), answers=f"{answer}\n").output
    assert "Recreate it?" in said
    assert (desk("check-status v4-8-p1").stdout.strip() == "READY") == recreated
    assert numbers() == ([1] if recreated else [])
