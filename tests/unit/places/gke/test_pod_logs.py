"""Logs read in pieces: each line once and in order, despite errors; progress is evidence with a time."""

from __future__ import annotations

import fcntl
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_cluster import FakeCluster
from support.gke_world import planned, pod
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Transient
from tpukit.jobs.controller.liveness import Liveness
from tpukit.places.gke import followed_logs, log_lines, pod_log
from tpukit.places.gke.followed_logs import Running
from tpukit.places.gke.hosts import views
from tpukit.places.gke.log_cache import LogCache
from tpukit.places.gke.log_lines import NewLines, Position
from tpukit.places.gke.pod_log import PodLog, Target
from tpukit.places.gke.pod_logs import FORGET_SECONDS, LONGEST_PAUSE, PodLogs

texts = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12)
moments = st.lists(st.integers(0, 3_000_000_000), max_size=14).map(sorted)


class Kubelet:
    """A kubelet that prints prepared lines, and cuts connections on request."""

    def __init__(self, lines=(), cuts=()):
        self.lines, self.cuts = list(lines), list(cuts)
        self.asked = 0

    def logs(self, pod, namespace, *, container, timestamps, since, limit_bytes, seconds):
        self.asked += 1
        cut = self.cuts.pop(0) if self.cuts else None
        left = limit_bytes
        for number, line in enumerate(one for one in self.lines if one[:19] >= since[:19]):
            if cut is not None and number >= cut:
                raise Transient("the connection was lost")
            if left <= 0:
                return
            content = line.encode()[:left].decode(errors="replace")
            left -= len(line.encode()) + 1
            yield content


def stamped(moment, text):
    """Prefix a line with its time, as hosts do."""
    return f"2026-01-01T00:00:{moment // 1_000_000_000:02}.{moment % 1_000_000_000:09}Z {text}"


def target(cluster, cache=None, name="train-1-slice-0-0-abcde"):
    return Target(cluster, "research", name, f"uid-{name}", "host", name.rpartition("-")[0], cache)


@given(
    moments, st.lists(texts, min_size=14, max_size=14), st.lists(st.integers(0, 6), max_size=20), st.integers(60, 200)
)
def test_pod_log_cut_off_anywhere_has_each_line_once_in_order(at, words, cuts, piece):
    printed = [stamped(moment, text) for moment, text in zip(at, words, strict=False)]
    kubelet = Kubelet(printed, cuts)
    log = PodLog(target(kubelet))
    log._bytes = piece
    seen = []
    for _ in range(200):
        try:
            lines, more = log.read()
        except Transient:
            continue
        seen += lines
        if not more and not kubelet.cuts:
            break
    assert seen == printed


@given(st.lists(st.tuples(st.integers(0, 5), texts), max_size=10), st.integers(0, 10))
def test_new_lines_several_of_one_moment_are_told_apart_by_their_number(printed, split):
    lines = [stamped(moment, text) for moment, text in sorted(printed, key=lambda pair: pair[0])]
    first = NewLines(Position())
    taken = [line for line in lines[:split] if first.takes(line)]
    second = NewLines(first.position)
    assert taken + [line for line in lines if second.takes(line)] == lines


def test_pod_log_that_was_rotated_goes_on_behind_what_was_read():
    kubelet = Kubelet([stamped(number, f"line {number}") for number in range(3)])
    log = PodLog(target(kubelet))
    log.read()
    kubelet.lines = [stamped(number, f"line {number}") for number in (2, 3)]
    assert list(log.rest()) == [stamped(3, "line 3")]


def test_pod_log_a_second_with_more_lines_than_a_piece_is_read_all_the_same(monkeypatch):
    monkeypatch.setattr(pod_log, "PIECE_BYTES", 100)
    printed = [stamped(number, "x" * 20) for number in range(50)]
    assert list(PodLog(target(Kubelet(printed))).rest()) == printed


def test_pod_log_words_of_the_kubelet_without_a_time_are_no_lines():
    kubelet = Kubelet(["unable to retrieve container logs for containerd://1", stamped(1, "hello")])
    assert list(PodLog(target(kubelet)).rest()) == [stamped(1, "hello")]


@given(st.lists(texts, max_size=10), st.data())
def test_log_cache_of_several_writers_killed_anywhere_has_each_line_once(tmp_path_factory, words, data):
    lines = [stamped(number, text) for number, text in enumerate(words)]
    cache = LogCache(tmp_path_factory.mktemp("host") / "log")
    for _ in range(data.draw(st.integers(0, 3))):
        cache.append(lines[: data.draw(st.integers(0, len(lines)))], Position())
        if cache.file.exists():
            with cache.file.open("ab") as log:  # a writer killed in the middle of a line
                log.write(data.draw(st.sampled_from([b"", b"2026-01-01T00:00:00.5Z hal", b"x"])))
    assert cache.append(lines, Position())
    assert list(cache.lines()) == lines


def test_log_cache_says_where_lines_are_missing(tmp_path):
    cache = LogCache(tmp_path / "log")
    cache.append([stamped(1, "one")], Position())
    reader = NewLines(Position())
    assert reader.takes(stamped(2_000_000_000, "two"))
    cache.append([stamped(3_000_000_000, "three")], reader.position)
    shown = list(log_lines.for_people(cache.lines()))
    assert shown == ["one", "(earlier lines are not stored on this machine)", "three"]


def progress(step):
    return f'tpukit-progress {{"step": {step}, "saved": {step - 1}, "time": 1800000000.0}}'


@pytest.fixture
def watching(tmp_path):
    """Return a clock, a kubelet and the logs of one followed host."""
    clock, kubelet = ManualClock(), Kubelet()
    logs = PodLogs(clock, workers=0)
    logs.follow({"job/0": [target(kubelet, tmp_path / "log")]})
    return clock, kubelet, logs


def idle(logs, liveness):
    plan = planned()
    ((said, heard),) = logs.progress("job/0").values()
    shown = views(plan, {}, {plan.host_names[0]: (said, heard)})
    return liveness.count("job", 0, shown)[0].idle


def test_progress_goes_on_after_a_stream_that_ended_and_a_connection_that_was_lost(watching):
    clock, kubelet, logs = watching
    for step in range(1, 9):
        kubelet.lines.append(stamped(step, progress(step)))
        kubelet.cuts = [0] if step in (3, 4) else []
        clock.sleep(20.0)
        logs.poll()
    ((said, heard),) = logs.progress("job/0").values()
    assert (said.step, said.saved, heard) == (8, 7, clock.monotonic())


def test_progress_of_a_program_without_reports_is_read_from_its_lines(watching):
    _, kubelet, logs = watching
    kubelet.lines += [stamped(1, "step 3 loss 2.5"), stamped(2, "saved checkpoint at step 2"), stamped(3, "noise")]
    logs.poll()
    ((said, _),) = logs.progress("job/0").values()
    assert (said.step, said.loss, said.saved) == (3, 2.5, 2)


def test_progress_that_is_reported_wins_over_lines(watching):
    _, kubelet, logs = watching
    kubelet.lines += [stamped(1, "step 90 loss 2.5"), stamped(2, progress(4)), stamped(3, "step 91 loss 2.5")]
    logs.poll()
    ((said, _),) = logs.progress("job/0").values()
    assert (said.step, said.saved) == (4, 3)


def test_progress_by_the_pattern_of_the_job(watching):
    _, kubelet, logs = watching
    own = replace(target(kubelet, name="train-1-slice-0-1-fghij"), pattern=r"it=(?P<step>\d+)")
    kubelet.lines.append(stamped(1, "it=7"))
    logs.follow({"job/1": [own]})
    logs.poll()
    ((said, _),) = logs.progress("job/1").values()
    assert said.step == 7


def test_host_that_cannot_be_read_for_an_hour_is_not_idle(watching):
    clock, kubelet, logs = watching
    liveness = Liveness()
    kubelet.lines.append(stamped(1, progress(1)))
    logs.poll()
    before = idle(logs, liveness)
    kubelet.cuts = [0] * 1000
    for _ in range(360):
        clock.sleep(10.0)
        logs.poll()
        assert idle(logs, liveness) <= before + 1.0
    assert kubelet.asked < 3600 / LONGEST_PAUSE + 12


def test_host_that_is_read_and_does_not_move_is_idle(watching):
    clock, kubelet, logs = watching
    liveness = Liveness()
    kubelet.lines.append(stamped(1, progress(1)))
    for _ in range(31):
        logs.poll()
        waited = idle(logs, liveness)
        clock.sleep(2.0)
    assert waited >= 60.0
    assert logs.idle("job/0") >= 60.0


def test_progress_is_read_while_another_process_holds_the_cache_and_only_not_written(watching, tmp_path):
    clock, kubelet, logs = watching
    kubelet.lines.append(stamped(1, progress(1)))
    with (tmp_path / "log").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        logs.poll()
    ((said, heard),) = logs.progress("job/0").values()
    assert (said.step, heard) == (1, clock.monotonic())
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("said", ["nonsense", "[]", '{"step": 1e400}', "[" * 100_000, '{"step": "x"}'])
def test_progress_that_is_no_progress_changes_nothing(watching, said):
    _, kubelet, logs = watching
    kubelet.lines += [stamped(1, progress(4)), stamped(2, f"tpukit-progress {said}")]
    logs.poll()
    ((known, _),) = logs.progress("job/0").values()
    assert known.saved in (3, -1)


def test_requests_stay_within_the_budget_however_many_hosts_there_are():
    clock, kubelet = ManualClock(), Kubelet()
    logs = PodLogs(clock, workers=0)
    logs.follow({"job/0": [target(kubelet, name=f"train-1-slice-0-{number}-x") for number in range(400)]})
    logs.poll()
    kubelet.asked = 0
    for _ in range(100):
        clock.sleep(1.0)
        logs.poll()
    assert kubelet.asked <= 100 * 20 + 400


def test_attempts_that_nobody_asks_about_are_read_no_more(watching):
    clock, kubelet, logs = watching
    clock.sleep(FORGET_SECONDS + 1)
    logs.follow({})
    kubelet.asked = 0
    clock.sleep(100.0)
    logs.poll()
    assert (kubelet.asked, logs.progress("job/0")) == (0, {})


def test_threads_read_by_themselves_and_end_when_closed():
    from support.waiting import until

    clock = ManualClock()
    cluster = FakeCluster(clock)
    cluster._add("Pod", pod())
    cluster.say(cluster.objects["Pod"]["research", "train-1-slice-0-0-abcde"], progress(5))
    logs = PodLogs(clock, workers=2)
    logs.follow({"job/0": [Target.of(cluster, cluster.objects["Pod"]["research", "train-1-slice-0-0-abcde"])]})
    until(lambda: any(said.step == 5 for said, _ in logs.progress("job/0").values()))
    logs.close()
    until(lambda: not any(thread.is_alive() for thread in logs._threads))


def running(count, job="a", idle=0.0):
    pods = [pod(f"{job}-slice-0-{number}-x") for number in range(count)]
    return Running(pods, f"{job}-slice-0-0", idle, stall=100.0)


def test_chosen_all_hosts_while_there_are_few_else_the_first_of_each_job():
    few = followed_logs.chosen({"a": running(32), "b": running(32)})
    assert [len(pods) for pods in few.values()] == [32, 32]
    many = followed_logs.chosen({"a": running(33, "a"), "b": running(32, "b")})
    assert [[one["metadata"]["name"] for one in pods] for pods in many.values()] == [
        ["a-slice-0-0-x"],
        ["b-slice-0-0-x"],
    ]


def test_chosen_job_that_seems_to_hang_has_all_its_hosts_read():
    chosen = followed_logs.chosen({"a": running(64, idle=51.0), "b": running(64, "b", idle=49.0)})
    assert [len(pods) for pods in chosen.values()] == [64, 1]


def test_chosen_nothing_runs_nothing_is_read():
    assert followed_logs.chosen({"a": running(0), "b": running(65, "b")})["a"] == []


def test_progress_that_this_machine_has_read_before_is_known_at_once(watching, tmp_path):
    clock, kubelet, logs = watching
    kubelet.lines += [stamped(1, progress(4)), stamped(2, "ValueError: it broke")]
    logs.poll()
    another = PodLogs(clock, workers=0)
    another.follow({"job/0": [target(kubelet, tmp_path / "log")]})
    ((said, heard),) = another.progress("job/0").values()
    assert (said.step, heard) == (4, 0.0)
    assert another.tails("job/0") == {"train-1-slice-0-0": ["ValueError: it broke"]}
    kubelet.asked = 0
    another.poll()
    assert kubelet.asked == 1
