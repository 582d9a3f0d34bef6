"""`tpu job` for jobs on GKE: its requests to the cluster, and its output for running and ended jobs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from support.gke_driving import Driving, place_on
from tpukit.cli import command, context
from tpukit.core.errors import Invalid
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from unit.teams import test_waiting as test_teams_waiting


@pytest.fixture
def driving(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    monkeypatch.setenv("TPUKIT_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    driving = Driving(tmp_path)
    monkeypatch.setattr(context, "store", lambda: driving.store)
    monkeypatch.setattr(context, "places", lambda: {"gke": driving.place})
    monkeypatch.setattr(context, "CLOCK", driving.clock)
    yield driving
    driving.close()


def tpu(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


def shown(job_id: str) -> dict:
    return json.loads(tpu("job", "show", job_id, "--json"))


def report(driving: Driving, job_id: str, **progress) -> None:
    for pod in driving.cluster.pods(job_id):
        said = json.dumps({**progress, "time": driving.clock.now()})
        driving.cluster.say(pod, f"tpukit-progress {said}")


def release(driving: Driving) -> None:
    for lease in driving.store.leases():
        driving.store.release(lease)


def test_show_of_a_running_job_asks_for_each_kind_once(driving):
    job_id = driving.send()
    driving.run(job_id)
    release(driving)
    driving.cluster.asked.clear()
    assert shown(job_id)["state"] == "running"
    assert {name: count for name, count in driving.cluster.asked.items() if name.startswith("list")} == {
        "list JobSet": 1,
        "list Workload": 1,
        "list Job": 1,
        "list Pod": 1,
    }


def test_list_json_has_the_tpu_and_the_slices(driving):
    driving.send()
    (job,) = json.loads(tpu("job", "list", "--json"))
    assert (job["tpu"], job["slices"]) == ("v4-16", 2)


@pytest.mark.parametrize("how", ["completed", "failed", "stopped"])
def test_show_of_an_ended_job_has_the_last_step_loss_and_save_of_its_hosts(driving, how):
    job_id = driving.send(max={"restarts": 0})
    driving.run(job_id)
    report(driving, job_id, step=40, loss=1.5, saved=30)
    driving.tick(3)
    if how == "completed":
        driving.cluster.complete(job_id)
    elif how == "failed":
        driving.cluster.fail(job_id, "userError")
    else:
        driving.stop(job_id)
        driving.tick(2)
        driving.cluster.leave(job_id)
    driving.until(job_id, State.COMPLETED, State.FAILED, State.CANCELLED)
    driving.new_driver()  # only the record is left
    host = shown(job_id)["hosts"][0]
    assert (host["step"], host["loss"], host["saved_step"]) == (40, 1.5, 30)


def job_file(driving: Driving, name: str, **fields) -> str:
    file = driving.folder / f"{name}.yaml"
    given = {"name": name, "tpu": "v4-16", "command": ["x"], "image": "us-docker.pkg.dev/p/r/i:1", "team": "research"}
    file.write_text(json.dumps({**given, "workdir": "gs://my-bucket/runs", **fields}))
    return str(file)


@pytest.fixture
def queue(driving):
    for kind, name, team in (("LocalQueue", "research", "research"), ("Namespace", "research", "")):
        document = {"kind": kind, "metadata": {"name": name, "namespace": team}, "spec": {"clusterQueue": "tpu"}}
        driving.cluster._add(kind, document)


def test_several_files_are_sent_with_one_set_of_lists(driving, queue):
    files = [job_file(driving, name) for name in ("one", "two", "three")]
    tpu("run", job_file(driving, "alone"), "--place", "gke", "--detach")
    driving.cluster.asked.clear()
    ids = tpu("run", *files, "--place", "gke", "--detach").split()
    assert [one.rpartition("-")[0] for one in ids] == ["one", "two", "three"]
    assert all(driving.cluster.jobset(one) for one in ids)
    asked = driving.cluster.asked
    assert asked["list JobSet"] == 1  # names in use
    assert asked["get LocalQueue"] == 0  # this process read it a moment ago
    assert (asked["get JobSet"], asked["list Job"], asked["list Pod"]) == (0, 0, 0)  # ids are unique: a send creates


def test_several_files_of_which_one_is_wrong_send_nothing(driving, queue):
    files = [job_file(driving, "good"), job_file(driving, "bad", tpu="v4-17"), job_file(driving, "worse", slices=0)]
    with pytest.raises(Invalid) as refused:
        tpu("run", *files, "--place", "gke", "--detach")
    assert "bad.yaml" in str(refused.value)
    assert "worse.yaml" in str(refused.value)
    assert driving.store.keys(JOBS) == frozenset()


def test_several_files_that_are_to_be_followed_are_refused(driving):
    with pytest.raises(Invalid, match="only one job can be followed"):
        tpu("run", job_file(driving, "one"), job_file(driving, "two"))


def test_owner_and_time_of_sending_are_seen_from_a_second_machine(driving, queue, monkeypatch, tmp_path):
    monkeypatch.setattr(context, "owner", lambda: "ada")
    sent_at = driving.clock.now()
    (job_id,) = tpu("run", job_file(driving, "train"), "--place", "gke", "--detach").split()
    driving.clock.sleep(3600)
    second = place_on(driving.cluster, tmp_path / "second", sender="another-store")
    (seen,) = second.unmanaged(["research"])
    assert (seen.id, seen.owner, seen.created) == (f"research/{job_id}", "ada", int(sent_at))
    second.close()
    annotations = driving.cluster.jobset(job_id)["metadata"]["annotations"]
    assert annotations["tpukit.dev/owner"] == "ada"


def test_show_has_who_sent_the_job_and_when(driving):
    job_id = driving.send()
    assert "sent     2023-11-14" in tpu("job", "show", job_id)
    assert " by me" in tpu("job", "show", job_id)


def lines(driving: Driving, job_id: str, *texts: str) -> None:
    for text in texts:
        for pod in driving.cluster.pods(job_id):
            driving.cluster.say(pod, text)
        driving.clock.sleep(60)


@pytest.fixture
def printed(driving):
    """Return a job on one host that printed a line in each of the last three minutes."""
    job_id = driving.send(tpu="v4-8", slices=1)
    driving.run(job_id)
    release(driving)
    lines(driving, job_id, "one", "two", "three")
    return job_id


def test_logs_tail_prints_the_last_lines_of_each_host(driving, printed):
    assert tpu("job", "logs", printed, "--tail", "2") == "slice-0-0: two\nslice-0-0: three\n"
    assert tpu("job", "logs", printed, "--tail", "0") == ""


def test_logs_since_prints_what_is_not_older(driving, printed):
    assert tpu("job", "logs", printed, "--since", "90s") == "slice-0-0: three\n"
    with pytest.raises(Invalid, match="'soon' is not a duration\n  write 30s"):
        tpu("job", "logs", printed, "--since", "soon")


def test_logs_timestamps_come_before_each_line(driving, printed):
    (line,) = tpu("job", "logs", printed, "--host", "0-0", "--timestamps", "--tail", "1").splitlines()
    stamp, text = line.split(" ")
    assert text == "three"
    assert stamp.startswith("2023-11-14T22:") and stamp.endswith("Z")


def test_logs_followed_to_the_end_print_no_line_twice_and_say_how_the_job_ended(driving, printed):
    driving.cluster.complete(printed)
    done = CliRunner().invoke(command, ["job", "logs", printed, "-f", "--tail", "1"], catch_exceptions=False)
    assert done.stdout == "slice-0-0: three\n"
    assert f"{printed} completed (done)" in done.stderr


def test_exec_goes_to_the_container_of_the_host_with_an_argument_list(driving, monkeypatch):
    job_id = driving.send()
    driving.run(job_id)
    asked = []

    def execute(pod, namespace, container, command, streams):
        asked.append((pod.rpartition("-")[0], namespace, container, command, streams.terminal))
        return 5

    monkeypatch.setattr(driving.cluster, "execute", execute, raising=False)
    tpu("job", "exec", job_id, "1-0", "--", "sh", "-c", "echo $HOME", code=5)
    assert asked == [(f"{job_id}-slice-1-0", "research", "host", ("sh", "-c", "echo $HOME"), False)]


@pytest.fixture
def quota(driving, queue):
    """Give the team's queue two slices of v4-16."""
    cluster_queue = test_teams_waiting.cluster_queue()
    for kind, one in (
        ("ClusterQueue", cluster_queue),
        *(("ResourceFlavor", one) for one in test_teams_waiting.FLAVORS),
    ):
        driving.cluster._add(kind, {"kind": kind, **one, "metadata": {"namespace": "", **one["metadata"]}})


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["sent", "dry run"])
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"slices": 3}, "it asks for 3 × v4-16, and its queue can have 2"),
        ({"tpu": "v4-32"}, "ClusterQueue tpu has no v4-32"),
    ],
    ids=["more slices than the queue has", "a slice that the queue has not"],
)
def test_job_that_can_never_run_is_refused_before_it_is_sent(driving, quota, fields, why, more):
    file = job_file(driving, "train", **fields)
    with pytest.raises(Invalid) as refused:
        tpu("run", file, "--place", "gke", "--detach", *more)
    assert f"the job can never run: {why}" in str(refused.value)
    assert refused.value.exit_code == 2
    assert driving.store.keys(JOBS) == frozenset()


def test_job_over_slices_of_one_host_is_refused_before_it_is_sent(driving, quota):
    with pytest.raises(Invalid) as refused:
        tpu("run", job_file(driving, "train", tpu="v4-8", slices=2), "--place", "gke", "--detach")
    assert "GKE does not join slices of one host, and the job asks for 2 of v4-8" in str(refused.value)
    assert driving.store.keys(JOBS) == frozenset()


@pytest.mark.parametrize("fields", [{"slices": 2}, {"capacity": "spot"}], ids=str)
def test_job_that_fits_its_queue_is_sent_however_it_is_bought(driving, quota, fields):
    assert tpu("run", job_file(driving, "train", **fields), "--place", "gke", "--dry-run") == ""
