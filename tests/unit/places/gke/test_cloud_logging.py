"""Logs of attempts that no driver followed, read back from Cloud Logging through the emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpubox.google.logging import filter as log_filter
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import Hooks, Log, Settings
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, Invalid, NotFound, Transient
from tpukit.places.gke import cloud_logging, logging_api
from tpukit.places.gke.cloud_logging import Printed, Wanted, Where, condition, read
from tpukit.places.gke.logging_api import ENDPOINT, TOKEN

PROJECT = "tpu-project"
WHERE = Where(PROJECT)
BEGAN = 1_700_000_000.0
JOBSET = "jobset.sigs.k8s.io"


class Pods:
    """Files with the output of pods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs: list[Log] = []

    def add(
        self,
        name: str,
        lines: list[tuple[float, str]],
        *,
        jobset: str = "train",
        restart: int = 0,
        namespace: str = "research",
        container: str = "main",
    ) -> None:
        path = self.folder / f"{len(self.logs)}.log"
        path.write_text("".join(f"{stamp(at)} stdout F {text}\n" for at, text in lines))
        labels = {f"{JOBSET}/jobset-name": jobset, f"{JOBSET}/restart-attempt": str(restart)}
        self.logs.append(Log(namespace, name, container, f"id-{len(self.logs)}", labels, "node-0", "zone", (path,)))


def stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(BEGAN + at, UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"


@pytest.fixture
def pods(tmp_path: Path) -> Pods:
    return Pods(tmp_path)


@pytest.fixture
def google(tmp_path: Path, pods: Pods, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    hooks = Hooks(logs=lambda: pods.logs)
    with Emulator(tmp_path / "google", Settings(projects=(PROJECT,)), hooks=hooks) as made:
        for name, value in made.environment().items():
            if name in (ENDPOINT, TOKEN):
                monkeypatch.setenv(name, value)
        yield made


def texts(**wanted: Any) -> list[str]:
    return [line.text for line in read(WHERE, Wanted("research", "train", **wanted), ManualClock())]


def requests(google: Emulator) -> int:
    return len(google.cloud.requests(path="entries:list"))


def test_lines_of_all_hosts_come_in_the_order_of_time_with_host_and_moment(google, pods):
    pods.add("train-slice-0-0-abcde", [(0.0, "a0"), (2.5, "a1")])
    pods.add("train-slice-1-0-fghij", [(1.0, "b0"), (3.0, "b1")])
    assert list(read(WHERE, Wanted("research", "train"))) == [
        Printed("train-slice-0-0", BEGAN, "a0"),
        Printed("train-slice-1-0", BEGAN + 1, "b0"),
        Printed("train-slice-0-0", BEGAN + 2.5, "a1"),
        Printed("train-slice-1-0", BEGAN + 3, "b1"),
    ]


def test_one_attempt_one_host_and_one_window_can_be_chosen(google, pods):
    pods.add("train-slice-0-0-aaaaa", [(0.0, "first")])
    pods.add("train-slice-0-0-bbbbb", [(10.0, "second")], restart=1)
    pods.add("train-slice-0-01-ccccc", [(10.0, "neighbour")], restart=1)
    pods.add("train-slice-0-0-ddddd", [(10.0, "theirs")], restart=1, jobset="train-2")
    pods.add("train-slice-0-0-eeeee", [(10.0, "elsewhere")], restart=1, namespace="other")
    pods.add("train-slice-0-0-fffff", [(10.0, "sidecar")], restart=1, container="gcsfuse")
    assert texts(restart=0) == ["first"]
    assert texts(restart=1, container="main") == ["second", "neighbour"]
    assert texts(restart=1, container="main", host="train-slice-0-0") == ["second"]
    assert texts(pods=["train-slice-0-0-aaaaa", "train-slice-0-01-ccccc"]) == ["first", "neighbour"]
    assert texts(since=BEGAN + 5, container="main") == ["second", "neighbour"]
    assert texts(until=BEGAN) == ["first"]


def test_many_pods_can_be_named(google, pods):
    for number in range(150):
        pods.add(f"train-slice-0-{number}-abcde", [(float(number), str(number))])
    names = [f"train-slice-0-{number}-abcde" for number in range(20, 150)]
    assert texts(pods=names) == [str(number) for number in range(20, 150)]


def test_long_logs_come_page_by_page_as_they_are_read(google, pods):
    pods.add("train-slice-0-0-abcde", [(n / 1000, str(n)) for n in range(2500)])
    lines = read(WHERE, Wanted("research", "train"))
    assert [next(lines).text for _ in range(1000)] == [str(n) for n in range(1000)]
    assert requests(google) == 1
    assert [line.text for line in lines] == [str(n) for n in range(1000, 2500)]
    assert requests(google) == 3


def test_lines_of_one_moment_stay_in_order_across_pages(google, pods, monkeypatch):
    monkeypatch.setattr(cloud_logging, "PAGE", 3)
    pods.add("train-slice-0-0-abcde", [(0.0, str(n)) for n in range(20)])
    assert texts() == [str(n) for n in range(20)]


def test_entry_that_is_answered_twice_is_one_line(google, pods):
    pods.add("train-slice-0-0-abcde", [(0.0, "once"), (0.0, "too")])
    pods.logs.append(pods.logs[0])
    assert texts() == ["once", "too"]


def test_answer_without_entries_that_is_not_the_last_is_not_the_end(google, pods):
    pods.add("train-slice-0-0-abcde", [(0.0, "only")])
    google.cloud.faults.set(Fault("partial", match="research", times=2))
    assert texts() == ["only"]
    assert requests(google) == 3


@pytest.mark.parametrize(
    "line",
    ["plain", "", "  indented", 'tpukit-progress {"step": 3}', "{not json", '{"a": 1, "b": [true, null]}', "ünïcode ✓"],
)
def test_line_is_read_back_as_it_was_printed(google, pods, line):
    pods.add("train-slice-0-0-abcde", [(0.0, line)])
    assert texts() == [line]


def test_json_line_is_read_back_with_the_same_values(google, pods):
    pods.add("train-slice-0-0-abcde", [(0.0, '{"step": 3, "loss": {"z": 1.5, "a": 2}}')])
    assert json.loads(texts()[0]) == {"step": 3, "loss": {"z": 1.5, "a": 2}}


def test_passing_trouble_in_the_middle_costs_no_lines(google, pods, monkeypatch):
    monkeypatch.setattr(cloud_logging, "PAGE", 2)
    pods.add("train-slice-0-0-abcde", [(float(n), str(n)) for n in range(6)])
    lines = read(WHERE, Wanted("research", "train"), ManualClock())
    first = [next(lines).text, next(lines).text]
    google.cloud.faults.set(Fault("refuse", match="entries:list", status=503, times=2))
    assert first + [line.text for line in lines] == [str(n) for n in range(6)]


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (401, Denied, "not signed in"),
        (403, Denied, "roles/logging.viewer"),
        (404, NotFound, "not found in Cloud Logging"),
        (400, Invalid, "refuses the request"),
        (429, Transient, "busy"),
        (500, Transient, "busy"),
    ],
)
def test_refusals_are_told_apart(google, status, error, says):
    google.cloud.faults.set(Fault("refuse", match="entries:list", status=status, message="so it is"))
    with pytest.raises(error, match=says) as raised:
        texts()
    assert "so it is" in str(raised.value)


def test_service_that_cannot_be_reached_is_passing_trouble(monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1/v2/")
    monkeypatch.setenv(TOKEN, "x")
    with pytest.raises(Transient, match="does not respond"):
        texts()


def test_token_is_not_sent_over_a_plain_connection_to_another_machine(monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://logs.example.com/v2/")
    monkeypatch.setenv(TOKEN, "secret")
    with pytest.raises(Denied, match="no token"):
        texts()


def test_token_that_the_service_does_not_know_is_denied(google, pods, monkeypatch):
    monkeypatch.setenv(TOKEN, "stale")
    with pytest.raises(Denied, match="not signed in"):
        texts()


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a machine without credentials and with an empty PATH folder, and return that folder."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    for name in (TOKEN, ENDPOINT, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    return programs


def install_gcloud(programs: Path, script: str) -> None:
    program = programs / "gcloud"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_who_has_only_gcloud_is_known_by_it(nobody):
    install_gcloud(nobody, '[ "$*" = "auth print-access-token --quiet" ] && echo ya29.token')
    assert logging_api.identity("https://logging.googleapis.com") == {"Authorization": "Bearer ya29.token"}


def test_who_is_known_by_nothing_is_told_what_to_do(nobody):
    with pytest.raises(Denied, match="install gcloud"):
        texts()
    install_gcloud(nobody, "echo 'You do not currently have an active account' >&2; exit 1")
    with pytest.raises(Denied, match="active account"):
        texts()


def test_context_of_gcloud_says_project_location_and_cluster():
    assert Where.of("gke_my-project-1_us-central2_training_eu") == Where("my-project-1", "us-central2", "training_eu")
    assert Where.of("gke_example.com:p-1_us-central2-b_one", "other") == Where(
        "example.com:p-1", "us-central2-b", "one"
    )


def test_project_of_the_settings_is_taken_for_other_contexts_and_nothing_is_guessed():
    assert Where.of("sandbox-default", "my-project-1") == Where("my-project-1")
    with pytest.raises(NotFound, match="project: my-project-1"):
        Where.of("kind-kind")


def test_cluster_of_the_context_is_asked_for():
    text = condition(Where("p", "us-central2", "one"), Wanted("research", "train"))
    assert 'resource.labels.cluster_name="one"' in text
    assert 'resource.labels.location="us-central2"' in text


NAMES = st.text(max_size=20)
TIMES = st.none() | st.floats(0, 4e9)


@given(NAMES, NAMES, NAMES, st.none() | st.integers(0, 99), st.lists(NAMES, max_size=3), TIMES, TIMES)
def test_condition_is_understood_whatever_the_names_are(namespace, jobset, host, restart, pods, since, until):
    wanted = Wanted(namespace, jobset, restart, pods, host, since=since, until=until)
    log_filter.parse(condition(WHERE, wanted))


@given(st.floats(0, 4e9))
def test_window_of_one_moment_includes_what_was_printed_then(at):
    text = condition(WHERE, Wanted("n", "j", since=at, until=at))
    first, last = log_filter.bounds(log_filter.parse(text))
    moment = datetime.fromtimestamp(at, UTC)
    assert first <= f"{moment:%Y-%m-%dT%H:%M:%S.%f}999Z"
    assert f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z" <= last
