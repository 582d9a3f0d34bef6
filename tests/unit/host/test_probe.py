"""Measurements of one host for `tpu cluster verify`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support import training_account
from support.waiting import until
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings
from tpukit.host import bucket, probe
from tpukit.host.probe import Report

TOOLS = Path(__file__).resolve().parents[3] / "tools"
BANDWIDTH = """
import jax
from tpukit.host import probe
devices = jax.devices()
assert len(devices) == 8
groups = probe.by_slice(devices, 2)
assert [[one.id for one in group] for group in groups] == [[0, 1, 2, 3], [4, 5, 6, 7]]
print(probe.bandwidth(groups, 1 << 16, 2), probe.bandwidth([*zip(*groups)], 1 << 16, 2))
"""


def environment(folder, **more):
    simulated = {"JAX_PLATFORMS": "cpu", "JAX_FORCE_TPU_INIT": "1"}
    path = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**path, "PYTHONPATH": str(TOOLS), "TPUKIT_WORKDIR": str(folder), **simulated, **more}


@pytest.fixture
def storage():
    """Serve an address whose answers carry the date in `offset` seconds; None: no date."""
    offsets = [0.0]

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response_only(403)
            if offsets[0] is not None:
                self.send_header("Date", formatdate(time.time() + offsets[0], usegmt=True))
            self.end_headers()

        def log_message(self, *_):
            return

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", offsets
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("offset", "least", "most"), [(0.0, 0.0, 1.0), (90.0, 88.0, 91.0), (-90.0, 88.0, 91.0)])
def test_clock_is_compared_with_the_date_of_any_answer(storage, offset, least, most):
    address, offsets = storage
    offsets[0] = offset
    assert least <= probe.clock_difference(address) <= most


def test_answer_without_a_date_is_a_refusal(storage):
    address, offsets = storage
    offsets[0] = None
    report = Report("0-0")
    report.measure("clock", lambda: probe.clock_difference(address))
    assert "without a Date" in report.values["clock"]


def test_bucket_is_written_read_back_and_left_empty(tmp_path):
    report = Report("0-0")
    probe.write_and_read(bucket.opened(str(tmp_path)), "verify/content", report)
    assert {name: type(value) for name, value in report.values.items()} == {"bucket-write": float, "bucket-read": float}
    assert not bucket.opened(str(tmp_path)).list("")


class Refusing(bucket.Folder):
    def __init__(self, root, what):
        super().__init__(root)
        self._what = what

    def create(self, name, data):
        if self._what == "write":
            raise PermissionError("write verify: 403 denied")
        return super().create(name, data[:-1] if self._what == "content" else data)

    def read(self, name):
        if self._what == "read":
            raise PermissionError("read verify: 403 denied")
        return None if self._what == "gone" else super().read(name)


@pytest.mark.parametrize(
    ("what", "check", "words"),
    [
        ("write", "bucket-write", "403 denied"),
        ("read", "bucket-read", "403 denied"),
        ("content", "bucket-read", "has other content"),
        ("gone", "bucket-read", "is not there"),
    ],
)
def test_bucket_that_refuses_fails_the_check_that_it_refused(tmp_path, what, check, words):
    report = Report("0-0")
    probe.write_and_read(Refusing(tmp_path, what), "verify/content", report)
    assert words in report.values[check]
    assert [name for name, value in report.values.items() if isinstance(value, str)] == [check]
    assert ("bucket-read" in report.unseen) == (what == "write")


def test_event_file_is_written_found_and_removed(tmp_path):
    files = bucket.opened(str(tmp_path))
    assert probe.event_file_seconds(files, str(tmp_path), "verify/tensorboard") > 0
    assert not files.list("")


def test_event_file_that_cannot_be_written_has_the_reason_of_the_writer(tmp_path):
    (tmp_path / "verify").write_text("a file in the way")
    with pytest.raises(OSError, match="TensorBoard scalars are lost"):
        probe.event_file_seconds(bucket.opened(str(tmp_path)), str(tmp_path), "verify/tensorboard")


def test_limit_of_locked_memory_is_that_of_this_process():
    assert probe.memlock_bytes() > 0


@pytest.mark.jax
def test_bandwidth_is_measured_within_and_between_slices():
    env = environment("/nowhere", JAX_NUM_CPU_DEVICES="8")
    done = subprocess.run([sys.executable, "-c", BANDWIDTH], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(float(text) > 0 for text in done.stdout.split())


def start(tmp_path, address, hold=600, **more):
    log = tmp_path / "log"
    argv = [sys.executable, "-m", "tpukit.host.probe", f"--hold={hold}"]
    env = environment(tmp_path / "work", STORAGE_EMULATOR_HOST=address, **more)
    with log.open("w") as out:
        return log, subprocess.Popen(argv, env=env, stdout=out, stderr=out)


def lines(log):
    said = [one for one in log.read_text().splitlines() if one.startswith(probe.LINE)]
    return [json.loads(one.removeprefix(probe.LINE)) for one in said]


@pytest.mark.jax
def test_host_measures_holds_its_slice_until_sigterm_and_says_when_that_came(tmp_path, storage):
    log, process = start(tmp_path, storage[0], JAX_NUM_CPU_DEVICES="4")
    until(lambda: any(one["done"] for one in lines(log)) or process.poll() is not None, log.read_text)
    began = time.time()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    first, measured, told = lines(log)
    assert (first["done"], measured["done"]) == (False, True)
    assert measured["host"] == "0-0"
    assert measured["values"]["chips"] == 4
    assert "chips" not in first["values"]
    assert not [name for name, value in measured["values"].items() if isinstance(value, str)]
    assert set(measured["values"]) == {"chips", "memlock", "clock", "bucket-write", "bucket-read", "tensorboard"}
    assert measured["unseen"] == {"ici": probe.SIMULATED, "dcn": probe.SIMULATED}
    assert told["told"] >= began - 1


@pytest.mark.jax
def test_chips_that_do_not_open_fail_and_networks_are_not_seen(tmp_path, storage):
    log, process = start(tmp_path, storage[0], hold=0, JAX_PLATFORMS="nothing")
    assert process.wait(120) == 0, log.read_text()
    *_, measured = lines(log)
    assert isinstance(measured["values"]["chips"], str)
    assert measured["unseen"] == {"ici": "the chips did not open", "dcn": "the chips did not open"}


def test_processor_that_nobody_declared_a_simulation_is_no_chip(monkeypatch):
    monkeypatch.delenv("JAX_FORCE_TPU_INIT", raising=False)
    assert not probe._simulated(os.environ)
    assert probe._simulated({"JAX_PLATFORMS": "cpu", "JAX_FORCE_TPU_INIT": "1"})
    assert not probe._simulated({"JAX_PLATFORMS": "tpu,cpu", "JAX_FORCE_TPU_INIT": "1"})


def test_simulated_host_that_may_raise_its_memory_limit_does_not_judge_it():
    report = Report("0-0")
    probe._measure_memlock(report, {"JAX_PLATFORMS": "cpu", "JAX_FORCE_TPU_INIT": "1", "TPUKIT_MEMLOCK": "1"})
    assert "memlock" not in report.values
    probe._measure_memlock(report, {"TPUKIT_MEMLOCK": "1"})
    assert report.values["memlock"] == probe.memlock_bytes()


MEASURE = """
import json, sys
from tpukit.host import probe
from tpukit.host.world import World
report = probe.Report("0-0")
probe._measure_host(report, World(workdir=sys.argv[1]))
print(json.dumps({"values": report.values, "unseen": report.unseen}))
"""
CLUSTER = "projects/tpu-project/locations/us-central2/clusters/one"
NODE = "gke-one-tpu-0"
ACCOUNT = "team-a@tpu-project.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def google(tmp_path_factory):
    """Yield an emulator with a bucket, and an account without rights that pods of default/trainer may become."""
    with Emulator(tmp_path_factory.mktemp("google"), Settings(enabled=EVERY_API, arrival_seconds=0.0)) as google:
        state = google.cloud.state
        state.put("cluster", CLUSTER, {"workloadIdentityConfig": {"workloadPool": "tpu-project.svc.id.goog"}})
        pool = {"name": "tpu", "config": {"machineType": "e2-standard-4"}, "_nodes": {NODE: "us-central2-b"}}
        state.put("pool", f"{CLUSTER}/nodePools/tpu", {**pool, "_holds": None, "_topology": None})
        account = f"projects/tpu-project/serviceAccounts/{ACCOUNT}"
        state.put("account", account, {"name": account, "email": ACCOUNT})
        members = ["serviceAccount:tpu-project.svc.id.goog[default/trainer]"]
        user = {"role": "roles/iam.workloadIdentityUser", "members": members}
        state.put("policy", account, {"version": 1, "bindings": [user]})
        ask(google, "POST", "storage/v1/b?project=tpu-project", {"name": "my-runs", "location": "US"})
        yield google


def ask(google, method, path, body):
    headers = {"Authorization": f"Bearer {google.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{google.address}/{path}", json.dumps(body).encode(), headers, method=method)
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        ("", ["bucket-write"]),
        ("roles/storage.objectCreator", ["bucket-read", "tensorboard"]),
        ("roles/storage.objectUser", []),
    ],
)
def test_bucket_is_used_as_the_account_of_the_pod(google, tmp_path, role, refused):
    bindings = [{"role": role, "members": [f"serviceAccount:{ACCOUNT}"]}] if role else []
    ask(google, "PUT", "storage/v1/b/my-runs/iam", {"bindings": bindings})
    pod = {"node": NODE, "namespace": "default", "account": "trainer", "annotated": ACCOUNT}
    with training_account.pod(google, tmp_path / "pod", **pod) as env:
        argv = [sys.executable, "-c", MEASURE, f"gs://my-runs/{tmp_path.name}"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (report,) = map(json.loads, done.stdout.splitlines())
    texts = {name: value for name, value in report["values"].items() if isinstance(value, str)}
    assert list(texts) == refused
    assert all("403" in text for text in texts.values())
    assert ("tensorboard" in report["unseen"]) == (not role)
