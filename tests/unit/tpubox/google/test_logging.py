"""Cloud Logging of the emulator: the output of pods, also after they are gone, in Google's form."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.google_world import PROJECT, World, pool
from tpubox.box.emulator import logs
from tpubox.google.logging import entries as log_entries
from tpubox.google.logging import filter as log_filter
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.settings import Hooks, number_of
from tpubox.kubelet.archive import Archive

LIST = "logging/v2/entries:list"
BEGAN = 1_700_000_000.0


def stamp(seconds: float) -> str:
    return f"{datetime.fromtimestamp(BEGAN + seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"


class Agent:
    """A node agent's folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pod(
        self,
        name: str,
        *lines: tuple[float, str],
        node: str = "gke-sandbox-tpu-0000",
        labels: dict[str, str] | None = None,
        run: int = 0,
    ) -> Path:
        folder = self.folder / "pods" / f"research_{name}_uid-{name}"
        home = folder / "main" / str(run)
        home.mkdir(parents=True)
        metadata = {"name": name, "namespace": "research", "uid": f"uid-{name}", "labels": labels or {}}
        (folder / "pod.json").write_text(json.dumps({"metadata": metadata, "spec": {"nodeName": node}}))
        (folder / "node.json").write_text(json.dumps({"topology.kubernetes.io/zone": "us-central2-b"}))
        text = "".join(f"{stamp(at)} stdout F {line}\n" for at, line in lines)
        (home / "log").write_text(text)
        return folder


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "agent")


@pytest.fixture
def world(tmp_path: Path, agent: Agent) -> Iterator[World]:
    with World(tmp_path / "google", Hooks(logs=lambda: logs(agent.folder)), projects=(PROJECT, "other")) as made:
        yield made


def asked(condition: str = "", **more: Any) -> dict[str, Any]:
    return {"resourceNames": [f"projects/{PROJECT}"], "filter": condition, **more}


def entries(world: World, condition: str = "", **more: Any) -> list[dict[str, Any]]:
    """Return the entries of all pages."""
    body, every = asked(condition, **more), []
    while True:
        answer = world.ask("POST", LIST, body)
        every += answer.get("entries", [])
        if "nextPageToken" not in answer:
            return every
        body = {**body, "pageToken": answer["nextPageToken"]}


def texts(world: World, condition: str = "", **more: Any) -> list[str]:
    return [entry["textPayload"] for entry in entries(world, condition, **more)]


def test_entry_of_a_line_has_the_shape_that_gke_gives_it(world, agent):
    labels = {"jobset.sigs.k8s.io/jobset-name": "j", "batch.kubernetes.io/job-completion-index": "1"}
    agent.pod("j-slice-0-1-abcde", (0.5, "began"), labels=labels)
    (entry,) = entries(world)
    assert entry["resource"] == {
        "type": "k8s_container",
        "labels": {
            "project_id": PROJECT,
            "location": "us-central2-b",
            "cluster_name": "sandbox",
            "namespace_name": "research",
            "pod_name": "j-slice-0-1-abcde",
            "container_name": "main",
        },
    }
    assert entry["labels"]["k8s-pod/jobset_sigs_k8s_io/jobset-name"] == "j"
    assert entry["labels"]["k8s-pod/batch_kubernetes_io/job-completion-index"] == "1"
    assert (entry["logName"], entry["severity"]) == (f"projects/{PROJECT}/logs/stdout", "INFO")
    assert (entry["timestamp"], entry["textPayload"]) == (stamp(0.5), "began")
    assert entry["insertId"]


def test_pods_of_a_gke_pool_say_their_cluster_after_the_pool_is_gone(world, agent):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    world.pass_time(1)
    (made,) = world.cloud.state.all("pool").values()
    agent.pod("p", (0, "x"), node=next(iter(made["_nodes"])))
    world.ask("DELETE", f"{pools}/tpu-0")
    world.pass_time(1)
    labels = entries(world)[0]["resource"]["labels"]
    assert (labels["location"], labels["cluster_name"]) == ("us-central2", "one")


def test_cluster_without_logs_of_workloads_stores_no_line_of_its_pods(world, agent):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    world.pass_time(1)
    (made,) = world.cloud.state.all("pool").values()
    agent.pod("p", (0, "x"), node=next(iter(made["_nodes"])))
    assert [entry["textPayload"] for entry in entries(world)] == ["x"]
    update = {"desiredLoggingConfig": {"componentConfig": {"enableComponents": ["SYSTEM_COMPONENTS"]}}}
    world.ask("PUT", pools.rpartition("/")[0], {"update": update})
    world.pass_time(1)
    assert entries(world) == []


@pytest.mark.parametrize(
    ("line", "payload"),
    [
        ("plain", {"textPayload": "plain", "severity": "INFO"}),
        ("[1, 2]", {"textPayload": "[1, 2]", "severity": "INFO"}),
        ('{"half": ', {"textPayload": '{"half": ', "severity": "INFO"}),
        ('{"step": 1, "loss": 2.5}', {"jsonPayload": {"loss": 2.5, "step": 1}, "severity": "INFO"}),
        ('{"severity": "error", "step": 1}', {"jsonPayload": {"step": 1}, "severity": "ERROR"}),
        ('{"severity": "WARNING", "message": "hot"}', {"textPayload": "hot", "severity": "WARNING"}),
        ("", {"textPayload": "", "severity": "INFO"}),
    ],
)
def test_line_that_is_a_json_object_is_taken_apart(world, agent, line, payload):
    agent.pod("p", (0, line))
    (entry,) = entries(world)
    assert {key: entry[key] for key in ("textPayload", "jsonPayload", "severity") if key in entry} == payload


def test_hosts_are_merged_by_time_and_pages_lose_and_double_nothing(world, agent):
    agent.pod("a", *((2.0 * n, f"a{n}") for n in range(40)))
    agent.pod("b", *((2.0 * (n // 2), f"b{n}") for n in range(40)))  # two lines per timestamp
    once = entries(world, pageSize=1000)
    assert [entry["timestamp"] for entry in once] == sorted(entry["timestamp"] for entry in once)
    assert sorted(entry["textPayload"] for entry in once) == sorted(f"{p}{n}" for p in "ab" for n in range(40))
    assert [text for text in texts(world) if text.startswith("b")] == [f"b{n}" for n in range(40)]
    for size in (1, 7, 50):
        assert entries(world, pageSize=size) == once
        assert entries(world, pageSize=size, orderBy="timestamp desc") == once[::-1]


def test_page_without_entries_can_have_a_token_to_go_on_with(world, agent, monkeypatch):
    monkeypatch.setattr(log_entries, "SEARCHED_LINES", 10)
    agent.pod("p", *((float(n), f"line {n}") for n in range(35)))
    first = world.ask("POST", LIST, asked('textPayload="line 34"'))
    assert first["entries"] == []
    assert texts(world, 'textPayload="line 34"') == ["line 34"]


def test_lines_of_a_pod_that_is_gone_are_still_there(world, agent):
    folder = agent.pod("p", (0, "one"), (1, "two"))
    before = entries(world)
    archive = Archive(agent.folder / "archive")
    archive.take(folder)
    assert not list(folder.glob("*/*/log"))
    assert entries(world) == before


def test_archive_that_is_full_forgets_the_oldest_pods(agent):
    archive = Archive(agent.folder / "archive", limit=1200)
    for number, name in enumerate(("old", "middle", "young")):
        archive.take(agent.pod(name, (number, "x" * 300)))
        os.utime(agent.folder / "archive" / f"research_{name}_uid-{name}", (number, number))
    assert [log.pod for log in logs(agent.folder)] == ["middle", "young"]


def test_lines_of_rotated_files_are_all_found_in_order_and_keep_their_ids_when_files_move(world, agent):
    folder = agent.pod("p", (0, "one"), (1, "two"))
    run = folder / "main" / "0"
    (run / "log.1").write_text(f"{stamp(2)} stdout F three\n")
    (run / "log.2").write_text(f"{stamp(3)} stdout F four\n{stamp(4)} stdout F five\n")
    everything = ["one", "two", "three", "four", "five"]
    before = entries(world)
    assert [entry["textPayload"] for entry in before] == everything
    archive = Archive(agent.folder / "archive")
    archive.take(folder, but=2)
    assert not (run / "log").exists()
    assert entries(world) == before
    archive.take(folder)
    assert entries(world) == before
    assert texts(world, pageSize=2, orderBy="timestamp desc") == everything[::-1]
    assert texts(world, f'timestamp>="{stamp(2)}"') == everything[2:]


def test_file_of_a_volume_is_no_log(world, agent):
    folder = agent.pod("p", (0, "printed"))
    volume = folder / "volumes" / "0"
    volume.mkdir(parents=True)
    (volume / "log").write_text(f"{stamp(0)} stdout F of the user\n")
    Archive(agent.folder / "archive").take(folder)
    assert texts(world) == ["printed"]


def test_long_line_in_parts_is_one_entry_wherever_reading_begins(world, agent):
    folder = agent.pod("p", (0, "first"))
    with (folder / "main" / "0" / "log").open("a") as log:
        log.write(f"{stamp(1)} stdout P {'x' * 16384}\n{stamp(2)} stdout F end\n{stamp(3)} stdout F last\n")
        log.write(f"{stamp(4)} stdout P without end\n")
    assert texts(world) == ["first", "x" * 16384 + "end", "last", "without end"]
    assert texts(world, f'timestamp>="{stamp(2)}"') == ["last", "without end"]
    assert texts(world, pageSize=1, orderBy="timestamp desc") == texts(world)[::-1]


def test_line_that_is_being_printed_comes_when_it_is_complete(world, agent):
    folder = agent.pod("p", (0, "first"))
    with (folder / "main" / "0" / "log").open("a") as log:
        log.write(f"{stamp(1)} stdout F hal")
        log.flush()
        assert texts(world) == ["first"]
        log.write("f\n")
    assert texts(world) == ["first", "half"]


def test_lines_arrive_late_where_that_is_set(tmp_path, agent):
    agent.pod("p", (0, "early"), (8, "late"))
    hooks = Hooks(logs=lambda: logs(agent.folder))
    with World(tmp_path / "slow", hooks, seconds={"LOG_ENTRY": 5.0}) as world:
        world.pass_time(10)
        assert texts(world) == ["early"]
        world.pass_time(3)
        assert texts(world) == ["early", "late"]
        assert entries(world)[0]["receiveTimestamp"] == stamp(5)


@pytest.mark.parametrize("text", ["2023-11-14T22:13:21Z", "2023-11-14T23:13:21.0+01:00", "2023-11-14T22:13:21.0+0000"])
def test_time_of_a_filter_can_be_written_as_clients_do(world, agent, text):
    agent.pod("p", (0, "before"), (1, "then"))  # BEGAN is 2023-11-14T22:13:20Z
    assert texts(world, f'timestamp>="{text}"') == ["then"]


def test_times_of_a_filter_bound_what_is_read(world, agent):
    agent.pod("p", *((n / 10, str(n)) for n in range(500)))
    wanted = f'timestamp>="{stamp(20)}" AND timestamp<"{stamp(21)}"'
    assert texts(world, wanted) == [str(n) for n in range(200, 210)]
    assert texts(world, wanted, orderBy="timestamp desc") == [str(n) for n in range(209, 199, -1)]


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("", "abc"),
        ('resource.type="k8s_container"', "abc"),
        ('resource.type="gce_instance"', ""),
        ('resource.labels.pod_name="host-1-x"', "b"),
        ('resource.labels.pod_name="HOST-1-X"', "b"),
        ("resource.labels.pod_name:host-1", "b"),
        ('resource.labels.pod_name!="host-1-x"', "ac"),
        ('labels."k8s-pod/app_io/name"="one"', "ab"),
        ("labels.k8s-pod/app_io/name=one", "ab"),
        ('labels."k8s-pod/app_io/name"!="one"', ""),  # a missing label fails every comparison
        ('NOT labels."k8s-pod/app_io/name"="one"', "c"),
        ('-labels."k8s-pod/app_io/name"="one"', "c"),
        ('labels."k8s-pod/app_io/name":*', "ab"),
        ("severity>=ERROR", "b"),
        ('severity="info"', "ac"),
        ("textPayload:fail", "a"),
        ("jsonPayload.step>=10", "b"),
        ("jsonPayload.inner.deep=true", "b"),
        ('textPayload="failed" OR jsonPayload.step=12', "ab"),
        # OR binds before AND, unlike in most languages.
        ("severity=INFO AND textPayload:fail OR textPayload:fine", "ac"),
        ("severity=INFO textPayload:fine", "c"),
        ("severity=INFO -- only these\ntextPayload:fine", "c"),
        ('severity=INFO AND NOT (textPayload:fail OR textPayload="x")', "c"),
        ('resource.labels.pod_name=("host-0-x" OR "host-2-x")', "ac"),
        (f'logName="projects/{PROJECT}/logs/stdout"', "abc"),
        (f'logName="projects/{PROJECT}/logs/stderr"', ""),
        ('textPayload="say \\"fine\\""', ""),
        ('textPayload=~"^f[^ ]+e"', "ac"),
        ('textPayload=~"^F"', ""),
        ('textPayload!~"^fail"', "bc"),
        ('labels."k8s-pod/app_io/name"!~"two"', "ab"),
    ],
)
def test_filter_chooses(world, agent, condition, matches):
    agent.pod("host-0-x", (0, "failed"), labels={"app.io/name": "one"})
    structured = '{"severity": "ERROR", "step": 12, "inner": {"deep": true}}'
    agent.pod("host-1-x", (1, structured), labels={"app.io/name": "one"})
    agent.pod("host-2-x", (2, "fine"))
    names = [entry["resource"]["labels"]["pod_name"] for entry in entries(world, condition)]
    assert names == [{"a": "host-0-x", "b": "host-1-x", "c": "host-2-x"}[letter] for letter in matches]


@pytest.mark.parametrize(
    "condition",
    [
        "error",
        '"error"',
        "textPayload=~'x'",
        "textPayload=~x",
        'textPayload=~"("',
        'textPayload=~"(?!x)y"',
        'severity=~"ERR"',
        "nowhere=1",
        "resource=1",
        "labels=1",
        "severity=LOUD",
        "severity:ERROR",
        'timestamp>="yesterday"',
        'timestamp>="2026-13-01T00:00:00Z"',
        "timestamp:2026",
        "severity=INFO AND",
        "AND severity=INFO",
        "severity=INFO OR",
        "(severity=INFO",
        "severity=INFO)",
        "severity=",
        "=INFO",
        'textPayload="open',
        'log_id("stdout")',
        "NOT",
        "a(b" * 10,
        "(" * 500 + "severity=INFO" + ")" * 500,
        "severity=INFO " * 2000,
    ],
)
def test_filter_that_is_wrong_or_not_known_is_refused(world, condition):
    assert world.refusal("POST", LIST, asked(condition))[:2] == (400, "INVALID_ARGUMENT")


@given(st.text(alphabet='ab ="()-:\\.ANDORTseverity<>!~\n', max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_filter_or_refused(text):
    try:
        log_filter.parse(text).holds({"severity": "INFO", "textPayload": "x"})
    except Refused as refused:
        assert refused.code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"resourceNames": []}, 400),
        ({"resourceNames": ["folders/1"]}, 400),
        ({"resourceNames": [f"projects/{PROJECT}/locations/global/buckets/b/views/v"]}, 400),
        ({"resourceNames": [f"projects/{PROJECT}"] * 101}, 400),
        ({"resourceNames": ["projects/theirs"]}, 403),
        (asked(orderBy="insertId"), 400),
        (asked(pageSize=-1), 400),
        (asked(pageSize=1001), 400),
        (asked(pageToken="made up"), 400),
        (asked(limit=5), 400),
    ],
)
def test_request_that_google_refuses_is_refused(world, body, status):
    assert world.refusal("POST", LIST, body)[0] == status


def test_token_of_another_question_is_refused(world, agent):
    agent.pod("p", (0, "one"), (1, "two"))
    token = world.ask("POST", LIST, asked(pageSize=1))["nextPageToken"]
    assert world.refusal("POST", LIST, asked("severity=INFO", pageToken=token))[0] == 400


def test_project_sees_its_own_lines_by_id_or_number_and_none_where_the_api_is_off(world, agent):
    agent.pod("p", (0, "x"))
    assert len(world.ask("POST", LIST, {"resourceNames": [f"projects/{number_of(PROJECT)}"]})["entries"]) == 1
    assert world.ask("POST", LIST, {"resourceNames": ["projects/other"]}) == {}
    service = f"service_usage/v1/projects/{PROJECT}/services/logging.googleapis.com:disable"
    world.ask("POST", service, {})
    assert world.refusal("POST", LIST, asked())[:2] == (403, "PERMISSION_DENIED")


WRITE = "logging/v2/entries:write"
GLOBAL = {"type": "global", "labels": {"project_id": PROJECT}}


def written(*every: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"logName": f"projects/{PROJECT}/logs/training", "resource": GLOBAL, "entries": list(every), **more}


def test_entries_that_a_program_wrote_are_listed_among_those_of_pods_in_their_order(world, agent):
    agent.pod("p", (0, "printed"))
    labels = {"run": "a", "host": "0"}
    late = {"textPayload": "late", "timestamp": stamp(5).replace("Z", "+00:00"), "labels": {"host": "1"}}
    early = {"jsonPayload": {"step": 1}, "timestamp": stamp(-5), "severity": "ERROR", "insertId": "mine"}
    assert world.ask("POST", WRITE, written(late, early, labels=labels)) == {}
    world.ask("POST", WRITE, written(early))  # repeated as after a lost answer
    first, middle, last = entries(world)
    assert (first["jsonPayload"], first["severity"], first["insertId"]) == ({"step": 1}, "ERROR", "mine")
    assert middle["textPayload"] == "printed"
    assert (last["timestamp"], last["labels"], last["severity"]) == (stamp(5), {"run": "a", "host": "1"}, "DEFAULT")
    assert [one["textPayload"] for one in entries(world, 'labels.host="1"')] == ["late"]
    assert entries(world, orderBy="timestamp desc")[0] == last
    assert not world.ask("POST", LIST, asked() | {"resourceNames": ["projects/other"]})


def test_entry_written_by_the_number_of_its_project_is_found_by_its_id(world):
    log = f"projects/{number_of(PROJECT)}/logs/training"
    world.ask("POST", WRITE, written({"textPayload": "x"}, logName=log))
    assert [one["logName"] for one in entries(world)] == [f"projects/{PROJECT}/logs/training"]


def test_entry_of_a_dry_run_or_of_the_day_after_tomorrow_is_taken_and_not_shown(world):
    world.ask("POST", WRITE, written({"textPayload": "x"}, dryRun=True))
    ahead = datetime.fromtimestamp(world.clock.now() + 2 * 86400, UTC).isoformat()
    world.ask("POST", WRITE, written({"textPayload": "x", "timestamp": ahead}))
    assert entries(world) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (written(), "entries is required"),
        (written({"textPayload": "x"}, logName="training"), "Log name 'training' is not valid"),
        (written({"textPayload": "x"}, resource={}), "monitored resource"),
        (written({"textPayload": "x", "jsonPayload": {}}), "only one payload"),
        (written({"textPayload": "x" * 300_000}), "exceeds maximum size of 256.0K"),
        (written({"textPayload": "x", "timestamp": "yesterday"}), "timestamp"),
        (written({"textPayload": "x", "severity": "LOUD"}), "LOUD"),
        (written({"text": "x"}), 'Unknown name "text"'),
    ],
)
def test_entry_that_google_would_not_take_is_refused_and_none_of_its_request_is_written(world, body, said):
    body = {**body, "entries": [*([{"textPayload": "good"}] if body["entries"] else []), *body["entries"]]}
    status, word, text = world.refusal("POST", WRITE, body)
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert said in text
    assert entries(world) == []


def test_account_writes_entries_by_one_role_and_reads_them_by_another(world):
    member = f"serviceAccount:trainer@{PROJECT}.iam.gserviceaccount.com"
    for role, path, other in (
        ("roles/logging.logWriter", WRITE, LIST),
        ("roles/logging.viewer", LIST, WRITE),
    ):
        policy = {"bindings": [{"role": role, "members": [member]}]}
        world.cloud.state.put("policy", f"projects/{PROJECT}", policy)
        bodies = {WRITE: written({"textPayload": "x"}), LIST: asked()}
        world.ask("POST", path, bodies[path], principal=member)
        assert world.refusal("POST", other, bodies[other], principal=member)[:2] == (403, "PERMISSION_DENIED")
    needed = [one["permissions"] for one in world.cloud.requests(path="entries")]
    create, listed = ["logging.logEntries.create"], ["logging.logEntries.list"]
    assert needed == [create, listed, listed, create]
