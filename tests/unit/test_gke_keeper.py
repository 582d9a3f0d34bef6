"""What is kept of hosts: their lines once and in order, their progress, how they ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.places.gke import keeper
from tpukit.places.gke.files import Files, sender
from tpukit.places.gke.keeper import Keeper
from tpukit.places.progress import Progress, read
from unit.gke_world import planned, pod

some_lines = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12), max_size=12)


def stamped(lines, first=0):
    """As hosts give them: a time before each, without the zeros at its end."""
    for number, line in enumerate(lines, start=first):
        fraction = f"{number:09}".rstrip("0")
        yield f"2026-01-01T00:00:00{'.' if fraction else ''}{fraction}Z {line}"


def copied(folder, lines, first=0):
    with (folder / "log").open("ab") as log:
        keeper.copy(stamped(lines, first), log, folder)


@given(some_lines, st.data())
def test_copy_cut_off_anywhere_and_begun_anew_has_each_line_once(tmp_path_factory, lines, data):
    folder = tmp_path_factory.mktemp("host")
    for _ in range(data.draw(st.integers(0, 3))):
        copied(folder, lines[: data.draw(st.integers(0, len(lines)))])
        with (folder / "log").open("ab") as log:  # a writer that was killed in the middle of a line
            log.write(data.draw(st.sampled_from([b"", b"2026-01-01T00:00:00.5Z hal", b"x"])))
    copied(folder, lines)
    assert keeper.read(folder, 0, whole=True)[0] == lines


def test_copy_host_that_has_forgotten_the_beginning_of_its_log_goes_on_behind_what_is_kept(tmp_path):
    copied(tmp_path, ["one", "two", "three"])
    copied(tmp_path, ["three", "four"], first=2)
    assert keeper.read(tmp_path, 0, whole=True)[0] == ["one", "two", "three", "four"]


def test_copy_progress_lines_tell_how_far_the_host_is_and_are_not_shown(tmp_path):
    copied(tmp_path, ["began", 'tpukit-progress {"step": 7, "saved": 5, "time": 3.5}', "tpukit-progress nonsense"])
    assert read(tmp_path / "progress") == Progress(step=7, saved=5, moved=3.5)
    assert keeper.read(tmp_path, 0, whole=False)[0] == ["began"]
    assert keeper.tail(tmp_path) == ["began"]


def test_read_follows_whole_lines_only(tmp_path):
    (tmp_path / "log").write_bytes(b"one\ntw")
    lines, position = keeper.read(tmp_path, 0, whole=True)
    assert lines == ["one"]
    (tmp_path / "log").write_bytes(b"one\ntwo\n")
    assert keeper.read(tmp_path, position, whole=True) == (["two"], 8)


def test_read_nothing_kept_is_no_lines(tmp_path):
    assert keeper.read(tmp_path, 0, whole=False) == ([], 0)


def test_remember_pod_of_the_next_attempt_of_the_same_name_is_a_new_one(tmp_path):
    keep = Keeper()
    keep.remember(tmp_path, pod(deletionTimestamp="2026-01-01T00:00:00Z"), None)
    assert keeper.recall(tmp_path).deleted
    fresh = pod()
    fresh["metadata"]["uid"] = "other"
    assert not keep.remember(tmp_path, fresh, None).deleted


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"uid": 1, "nonsense": 2}'])
def test_recall_file_that_something_broke_is_as_good_as_none(tmp_path, content):
    (tmp_path / "pod").write_bytes(content)
    assert keeper.recall(tmp_path) is None


def test_files_hosts_of_an_attempt_that_is_over_do_not_run(tmp_path):
    plan = planned()
    files = Files(plan, tmp_path)
    Keeper().remember(files.host(plan.host_names[0]), pod(), None)
    assert [host.state for host in files.hosts()] == ["running", "waiting", "waiting", "waiting"]
    assert [host.state for host in files.hosts(over=True)] == ["ended"] * 4


def test_sender_is_the_same_for_all_who_ask_and_another_in_another_home(tmp_path):
    assert sender(tmp_path / "a") == sender(tmp_path / "a") != sender(tmp_path / "b")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["sender"]
