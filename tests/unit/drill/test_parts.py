"""A save is what all hosts write for one step, and a loss strikes its data: shards, markers, names without a step."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.waiting import until
from tpukit.core.clock import SystemClock
from tpukit.drill import parts, saves
from tpukit.drill.following import Following
from tpukit.drill.limits import Limits
from tpukit.drill.losses import Damage, Loss, What, When
from tpukit.drill.parts import Parts
from tpukit.drill.saves import QUIET, File, Moment, Saves
from tpukit.drill.sites import Host, LocalSite
from tpukit.drill.striking import Strike
from unit.drill.test_saves import Workdir

MARKER = "checkpoints/{}/COMMITTED"


def sharded(steps, every, hosts, *, apart=10, name="checkpoints/{}/host-{}", marker=MARKER):
    """Write each host's shard `apart` hundredths of a second after the previous one, and the marker last."""
    workdir = Workdir()
    for step in range(1, steps + 1):
        workdir.tick(step)
        if step % every == 0:
            for host in range(hosts):
                path = name.format(step, host) if name.count("{}") == 2 else name.format(host)
                workdir.write(path, 100_000)
                for _ in range(apart):
                    workdir.tick(step)
            if marker:
                workdir.write(marker.format(step), 4)
                workdir.tick(step)
        for _ in range(50):
            workdir.tick(step)
    ignore = saves.not_saves(workdir.moments, steps)
    consists = saves.learnt(workdir.moments, ignore)
    return saves.seen(workdir.moments, ignore, consists), consists


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 70), st.integers(4, 10), st.sampled_from(["", MARKER, "latest"]))
def test_seen_shards_of_any_number_of_hosts_are_one_save_with_its_marker(hosts, every, marker):
    found, consists = sharded(4 * every, every, hosts, apart=5, marker=marker)
    assert [(save.step, save.done) for save in found] == [(every * n, True) for n in range(1, 5)]
    expected = {f"checkpoints/#/host-{host}" for host in range(hosts)}
    assert expected <= consists.every
    assert len(consists.markers) == bool(marker)


def test_seen_shards_without_a_step_in_their_names_are_one_save():
    found, consists = sharded(40, 10, 3, name="state/host-{}.npz", marker="state/latest")
    assert [save.step for save in found] == [10, 20, 30, 40]
    assert consists.every == {"state/host-0.npz", "state/host-1.npz", "state/host-2.npz", "state/latest"}
    assert consists.markers == {"state/latest"}


def test_seen_two_files_that_take_turns_are_two_saves():
    workdir = Workdir()
    for step in range(1, 61):
        if step % 10 == 0:
            workdir.write(f"state-{'ab'[step // 10 % 2]}.npz", 1000)
        for _ in range(10):
            workdir.tick(step)
    consists = saves.learnt(workdir.moments, frozenset())
    assert [save.step for save in saves.seen(workdir.moments, frozenset(), consists)] == [10, 20, 30, 40, 50, 60]


def test_observe_save_without_the_shard_of_one_host_is_not_done_before_it_comes():
    _, consists = sharded(40, 10, 2)
    watched, workdir = Saves(frozenset(), consists), Workdir()
    workdir.write("checkpoints/50/host-0", 100_000)
    watched.observe(Moment(1.0, 50, dict(workdir.files)))
    watched.observe(Moment(1.0 + 5 * QUIET, 50, dict(workdir.files)))
    assert watched.current is not None
    assert watched.last is None
    workdir.write("checkpoints/50/host-1", 100_000)
    workdir.write("checkpoints/50/COMMITTED", 4)
    watched.observe(Moment(1.3, 50, dict(workdir.files)))
    watched.observe(Moment(1.3 + 2 * QUIET, 50, dict(workdir.files)))
    assert (watched.last.step, watched.last.done, len(watched.last.paths)) == (50, True, 3)


@pytest.mark.parametrize("size", [100_000, 50_000])
def test_end_of_the_attempt_directly_after_a_save_leaves_it_done_and_one_in_part_unfinished(size):
    _, consists = sharded(40, 10, 2)
    watched, workdir = Saves(frozenset(), consists), Workdir()
    workdir.write("checkpoints/50/host-0", 100_000)
    workdir.write("checkpoints/50/host-1", size)
    workdir.write("checkpoints/50/COMMITTED", 4)
    watched.observe(Moment(1.0, 50, dict(workdir.files)))
    watched.end()
    assert [(save.step, save.done) for save in watched.history] == [(50, size == 100_000)]


def test_observe_files_whose_names_begin_with_part_or_new_are_not_unfinished():
    found, consists = sharded(40, 10, 3, name="checkpoints/{}/part-{}.npz", marker="checkpoints/{}/new_index")
    assert [(save.step, save.done) for save in found] == [(10, True), (20, True), (30, True), (40, True)]
    assert len(consists.every) == 4
    for path in ("10/state.part", "10.new/state", "state-10.partial", "tmp-10", "10.tmp-4/state", "x.incomplete"):
        assert parts.UNFINISHED.search(path), path


def test_observe_file_that_is_there_in_part_is_a_save_in_progress_however_long_it_pauses():
    _, consists = sharded(40, 10, 1, marker="")
    watched, workdir = Saves(frozenset(), consists), Workdir()
    workdir.write("checkpoints/50/host-0", 50_000)
    watched.observe(Moment(1.0, 50, dict(workdir.files)))
    watched.observe(Moment(1.0 + 9 * QUIET, 50, dict(workdir.files)))
    assert watched.is_writing
    workdir.append("checkpoints/50/host-0", 50_000)
    watched.observe(Moment(1.5, 50, dict(workdir.files)))
    watched.observe(Moment(1.5 + 2 * QUIET, 50, dict(workdir.files)))
    assert (watched.last.step, watched.last.done) == (50, True)


def test_observe_save_that_was_pruned_as_soon_as_it_was_there_is_done():
    _, consists = sharded(40, 10, 2)
    watched, workdir = Saves(frozenset(), consists), Workdir()
    for host in range(2):
        workdir.write(f"checkpoints/50.tmp/host-{host}", 100_000)
    watched.observe(Moment(1.0, 50, dict(workdir.files)))
    workdir.files.clear()
    watched.observe(Moment(1.1, 50, {}))
    watched.observe(Moment(1.1 + 2 * QUIET, 51, {}))
    assert (watched.last.step, watched.last.done) == (50, True)


def test_observe_late_shard_of_a_save_belongs_to_it_though_another_host_has_begun_the_next():
    consists = Parts(frozenset({"checkpoints/#/host-0", "checkpoints/#/host-1"}), frozenset(), 1.0)
    watched, workdir = Saves(frozenset(), consists), Workdir()
    for at, path in enumerate(["10/host-0", "20/host-0", "10/host-1", "20/host-1"]):
        workdir.write(f"checkpoints/{path}", 100_000)
        watched.observe(Moment(1.0 + at, 20, dict(workdir.files)))
    watched.observe(Moment(9.0, 20, dict(workdir.files)))
    assert [(save.step, save.done) for save in watched.history] == [(10, True), (20, True)]


def test_observe_save_of_another_kind_is_done_after_a_while():
    _, consists = sharded(40, 10, 2)
    watched, workdir = Saves(frozenset(), consists), Workdir()
    workdir.write("checkpoints/50/weights-only", 100_000)
    watched.observe(Moment(1.0, 50, dict(workdir.files)))
    watched.observe(Moment(1.1 + consists.patience, 50, dict(workdir.files)))
    assert watched.last.step == 50


def test_name_is_the_same_for_every_step_and_digest_and_while_it_is_unfinished():
    for step, path in (
        (8, "ckpt/8/ocdbt.process_0/d/0123456789abcdef0123"),
        (16, "ckpt/16/ocdbt.process_0/d/fedcba98765432100000"),
        (24, "ckpt/24.orbax-checkpoint-tmp-77/ocdbt.process_0/d/00000000000000000000"),
    ):
        assert parts.name(path, step) == "ckpt/#/ocdbt.process_0/d/*"


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def strike(tmp_path, process, when, damage=Damage.NONE):
    clock = SystemClock()
    site = LocalSite(tmp_path, clock)
    folders = site.folders("run")
    log = tmp_path / "log"
    log.write_text("step 50 loss 1.5\n")
    every, markers = {"checkpoints/#/host-0", "checkpoints/#/COMMITTED"}, {MARKER.format("#")}
    consists = Parts(frozenset(every), frozenset(markers), 1.0, {"checkpoints/#/host-0": 2000})
    following = Following(folders, consists=consists)
    loss = Loss("save", What.KILL, ((0, 0),), when, 6, damage=damage)
    made = Strike(loss, site, clock, folders.workdir_path, Limits(grace=1.0))
    folder = folders.workdir_path / "checkpoints" / "50"
    folder.mkdir(parents=True)

    def look():
        host = Host(0, 0, 0, 0, (log,), (process.pid,))
        following.poll([host], clock.now())
        made.consider(0, {(0, 0): host}, following, clock.now())

    return made, folder, look


def test_strike_during_a_save_waits_for_its_data_where_a_marker_comes_first(tmp_path, process):
    made, folder, look = strike(tmp_path, process, When.SAVE_BEGINS)
    (folder / "COMMITTED").write_text("no")
    look()
    assert made.struck == []
    (folder / "host-0").write_bytes(b"x" * 1000)
    look()
    assert [one.saving for one in made.struck] == [50]


def test_damage_hits_data_and_never_a_marker(tmp_path, process):
    made, folder, look = strike(tmp_path, process, When.SAVED, Damage.TRUNCATE)
    (folder / "host-0").write_bytes(b"x")  # a shard of this step may be smaller than the marker
    (folder / "COMMITTED").write_text("yes")
    assert until(lambda: look() or made.struck)
    assert made.damaged == "checkpoints/50/host-0"


def test_not_saves_files_of_many_hosts_are_no_more_saves_than_one_file():
    moments, files = [], {}
    for step in range(1, 31):
        files["latest"] = File(step, 4, step) if step % 10 == 0 else files.get("latest", File(0, 4, 0))
        if step % 10 == 0:
            files |= {f"checkpoints/{step}/host-{host}": File(1000 * step + host, 9000, step) for host in range(64)}
        moments.append(Moment(float(step), step, dict(files)))
    assert saves.not_saves(moments, 30) == frozenset()
