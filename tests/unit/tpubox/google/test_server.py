"""The emulator over HTTP: access, the test interface, and no loss of state after a kill."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import World, pool
from support.waiting import PATIENCE, until
from tpubox.box import callers
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Hooks, Pool, Settings
from tpukit.core.errors import Transient
from tpukit.host.scalars import Scalars
from tpukit.host.tensorboard import main as uploader

ROOT = Path(__file__).resolve().parents[4]
NETWORKS = "compute/v1/projects/tpu-project/global/networks"
SET_UP = Settings(enabled=EVERY_API, seconds={"": 0.0})
"""A project with all APIs enabled long ago, and operations that take no time."""


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(tmp_path, SET_UP) as emulator:
        yield emulator


def ask(address: str, path: str, token: str = "", body: Any = None, method: str = "GET") -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    content = None if body is None else json.dumps(body).encode()
    method = "POST" if body is not None and method == "GET" else method
    request = urllib.request.Request(f"{address}/{path}", content, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


@pytest.mark.parametrize("path", [NETWORKS, "emulator/resources", "storage/v1/b", "anything/else"])
@pytest.mark.parametrize("token", ["wrong", "ünsafe".encode().decode("latin-1")])
def test_every_door_refuses_a_wrong_token(google, path, token):
    status, answer = ask(google.address, path, token)
    assert status == 401
    assert answer["error"]["status"] == "UNAUTHENTICATED"
    assert google.token not in json.dumps(answer)


@pytest.mark.parametrize(
    "path", [NETWORKS, "emulator/resources", "container/v1/projects/tpu-project/locations/-/clusters"]
)
def test_every_door_but_storage_wants_the_token(google, path):
    assert ask(google.address, path)[0] == 401
    assert ask(google.address, path, google.token)[0] == 200


def test_token_of_pods_opens_googles_apis_and_not_the_emulators_own_door(google):
    assert google.pods_token != google.token
    assert ask(google.address, NETWORKS, google.pods_token)[0] == 200
    assert ask(google.address, "emulator/resources", google.pods_token)[0] == 401


def test_uploader_of_a_pod_writes_to_the_tensorboard_that_its_environment_leads_to(google, tmp_path, monkeypatch):
    scalars = Scalars(str(tmp_path / "logs" / "train"))
    for step in range(3):
        scalars.write(step, loss=step / 2)
    scalars.close()
    boards = "vertex_ai/v1/projects/tpu-project/locations/us-central1/tensorboards"
    _, made = ask(google.address, boards, google.token, body={"displayName": "board"})
    name = made["response"]["name"]
    options = ["--logdir", str(tmp_path / "logs"), "--tensorboard", name, "--experiment", "pretrain", "--once"]
    monkeypatch.setenv("GOOGLE_VERTEX_AI_CUSTOM_ENDPOINT", f"{google.address}/vertex_ai/v1/")
    assert uploader([*options]) == 1  # no access without a token
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", google.pods_token)
    assert uploader([*options]) == 0
    series = f"vertex_ai/v1/{name}/experiments/pretrain/runs/train/timeSeries/loss"
    _, read = ask(google.address, f"{series}:read", google.token)
    assert [point["scalar"]["value"] for point in read["timeSeriesData"]["values"]] == [0.0, 0.5, 1.0]


def test_storage_lets_programs_of_the_same_user_in_without_a_token(google):
    assert ask(google.address, "storage/v1/b?project=tpu-project", body={"name": "box"})[0] == 200
    _, made = ask(google.address, "upload/storage/v1/b/box/o?uploadType=media&name=a%2Fb", body={"x": 1})
    assert ask(google.address, made["mediaLink"].removeprefix(f"{google.address}/"))[1] == {"x": 1}
    assert ask(google.address, "box/a/b")[1] == {"x": 1}


def test_storage_refuses_programs_of_other_users(google, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert ask(google.address, "storage/v1/b?project=tpu-project")[0] == 401
    assert ask(google.address, "storage/v1/b?project=tpu-project", google.token)[0] == 200


def test_storage_without_a_token_is_for_the_user_of_the_emulator_alone(google):
    """The real kernel identifies the caller. Only root can start a program as another user."""
    root = os.geteuid() == 0
    assert _status_as(65534 if root else os.geteuid(), google.port) == (401 if root else 200)
    assert _status_as(os.geteuid(), google.port) == 200


def _status_as(user: int, port: int) -> int:
    lines = (
        '"GET /storage/v1/b?project=tpu-project HTTP/1.1\\r\\nHost: 127.0.0.1:%s\\r\\nConnection: close\\r\\n\\r\\n"'
    )
    script = f'exec 3<>"/dev/tcp/127.0.0.1/$1"; printf {lines} "$1" >&3; head -n 1 <&3'
    done = subprocess.run(["bash", "-c", script, "bash", str(port)], user=user, cwd="/", capture_output=True, text=True)
    return int(done.stdout.split()[1])


def test_kernel_knows_no_connection_that_is_not_there(google):
    assert not callers.is_ours(("127.0.0.1", 1), ("127.0.0.1", google.port))


def test_caller_is_known_by_its_whole_address_not_by_its_port_alone(google):
    with socket.create_connection(("127.0.0.1", google.port)) as ours:
        port, own = ours.getsockname()[1], ("127.0.0.1", google.port)
        assert callers.is_ours(("127.0.0.1", port), own)
        assert not callers.is_ours(("127.0.0.2", port), own)


def test_another_user_who_takes_the_port_of_one_of_ours_on_other_addresses_is_let_in_nowhere(google):
    """The real kernel identifies the callers while ours is connected. Only root can start a program as another user."""
    stranger = 65534 if os.geteuid() == 0 else os.geteuid()
    ours = http.client.HTTPConnection("127.0.0.1", google.port)
    ours.connect()
    arguments = [str(stranger), str(ours.sock.getsockname()[1]), str(google.port)]
    # Switch the user after the imports, because the other user cannot read this Python's folder.
    command = [sys.executable, "-c", _STRANGER, *arguments]
    mine = []
    with contextlib.closing(ours), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        while other.poll() is None:
            ours.request("GET", "/storage/v1/b?project=tpu-project")
            with ours.getresponse() as answer:
                answer.read()
            mine.append(answer.status)
        assert other.stdout
        theirs = other.stdout.read().split()
    assert set(mine) == {200}
    assert theirs == ["401" if os.geteuid() == 0 else "200"] * 20


_STRANGER = """
import os, socket, sys
user, port, google = map(int, sys.argv[1:])
if os.geteuid() != user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
for last in range(2, 22):
    with socket.socket() as mine:
        mine.bind((f"127.0.0.{last}", port))
        mine.connect(("127.0.0.1", google))
        mine.sendall(b"GET /storage/v1/b?project=tpu-project HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\n\\r\\n" % google)
        print(mine.recv(65536).split()[1].decode(), flush=True)
"""


def test_caller_over_ipv6s_form_of_the_address_is_known(google):
    with socket.socket(socket.AF_INET6) as ours:
        ours.connect(("::ffff:127.0.0.1", google.port))
        assert callers.is_ours(("127.0.0.1", ours.getsockname()[1]), ("127.0.0.1", google.port))


@pytest.mark.parametrize(
    "header",
    [
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "rebound.example.com"},
        # Requests of Chromium 156 for a page of another site: fetch, fetch without CORS, and a script on the page's own
        # site whose name was rebound to this address, for which it sends no more than that.
        {"Origin": "http://evil.example:44511", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"},
        {"Host": "rebound.example:33801"},
    ],
)
def test_web_page_gets_nothing_though_the_browser_runs_as_the_same_user(google, header):
    address = f"{google.address}/storage/v1/b?project=tpu-project"
    for content in (None, b'{"name": "box"}'):
        request = urllib.request.Request(address, content, {"Content-Type": "text/plain", **header})
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=PATIENCE)
    assert ask(google.address, "storage/v1/b?project=tpu-project")[1]["items"] == []


def test_preflight_of_a_browser_is_not_answered_with_leave(google):
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "PUT", "Sec-Fetch-Mode": "cors"}
    request = urllib.request.Request(f"{google.address}/storage/v1/b", headers=headers, method="OPTIONS")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE)
    refused.value.close()
    assert refused.value.code >= 400
    assert not [name for name in refused.value.headers if name.lower().startswith("access-control-")]


def test_only_loopback_is_served(google):
    assert google.address.startswith("http://127.0.0.1:")
    assert google._socket.getsockname()[0] == "127.0.0.1"


def test_secrets_are_for_their_owner_alone(google):
    assert (google.folder / "token").stat().st_mode & 0o077 == 0
    assert google.folder.stat().st_mode & 0o077 == 0


def test_several_stand_side_by_side(tmp_path):
    with Emulator(tmp_path / "a", SET_UP) as first, Emulator(tmp_path / "b", SET_UP) as second:
        ask(first.address, NETWORKS, first.token, {"name": "net"})
        assert first.cloud.inventory() == ["network projects/tpu-project/global/networks/net"]
        assert second.cloud.inventory() == []
        assert ask(second.address, NETWORKS, first.token)[0] == 401


def test_port_that_is_taken_is_refused_and_the_folder_is_free_again(tmp_path):
    with Emulator(tmp_path / "a") as first:
        with pytest.raises(Transient, match=f"port {first.port} is taken"):
            Emulator(tmp_path / "b", port=first.port)
        with Emulator(tmp_path / "b") as second:
            assert second.port != first.port


def test_time_passes_without_requests(tmp_path):
    with Emulator(tmp_path, Settings(seconds={"insert": 0.2}, enabled=EVERY_API)) as google:
        ask(google.address, NETWORKS, google.token, {"name": "net"})
        (operation,) = google.cloud.state.all("operation")
        until(lambda: google.cloud.state.get("operation", operation)["done"])


def test_requests_at_once_each_get_their_own_answer(google):
    answers: list[int] = []

    def make(number: int) -> None:
        answers.append(ask(google.address, NETWORKS, google.token, {"name": f"net-{number % 10}"})[0])

    threads = [threading.Thread(target=make, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 10 + [409] * 20
    assert len(google.cloud.inventory()) == 10


def test_control_sets_faults_and_limits_and_shows_requests(google):
    fault = {"kind": "refuse", "match": "networks", "status": 429}
    _, made = ask(google.address, "emulator/faults", google.token, fault)
    assert ask(google.address, NETWORKS, google.token)[0] == 429
    assert ask(google.address, "emulator/faults", google.token)[1][0]["struck"] == 1
    ask(google.address, f"emulator/faults?name={made['name']}", google.token, method="DELETE")
    assert ask(google.address, NETWORKS, google.token)[0] == 200
    limit = {"quota": {"region": "us-central2", "generation": "v4", "chips": 8}}
    assert ask(google.address, "emulator/limits", google.token, limit)[0] == 200
    region = ask(google.address, "compute/v1/projects/tpu-project/regions/us-central2", google.token)[1]
    assert region["quotas"][0]["limit"] == 8
    _, seen = ask(google.address, "emulator/requests?path=networks$&method=GET", google.token)
    assert [one["status"] for one in seen] == [429, 200]


@pytest.mark.parametrize("body", [{"kind": "flood"}, {"match": "x"}, {"kind": "slow", "when": 3}])
def test_control_refuses_a_fault_that_cannot_be(google, body):
    assert ask(google.address, "emulator/faults", google.token, body)[0] == 400


def test_control_patches_what_no_caller_could(google):
    ask(google.address, NETWORKS, google.token, {"name": "net"})
    name = "projects/tpu-project/global/networks/net"
    patch = {"kind": "network", "name": name, "patch": {"description": "haunted"}}
    ask(google.address, "emulator/resources", google.token, patch)
    assert ask(google.address, f"{NETWORKS}/net", google.token)[1]["description"] == "haunted"
    assert ask(google.address, "emulator/resources", google.token)[1] == [f"network {name}"]


def start(folder: Path, *words: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    command = [sys.executable, "-m", "tpubox.google", "--folder", str(folder), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def test_killed_emulator_is_found_again_where_it_was(tmp_path):
    process, told = start(tmp_path, "--project", "mine", "--seconds", "insert=0.5", "--api", "compute")
    networks = "compute/v1/projects/mine/global/networks"
    try:
        for number in range(5):
            assert ask(told["address"], networks, told["token"], {"name": f"net-{number}"})[0] == 200
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process, again = start(tmp_path, "--project", "mine", "--api", "compute")
        assert again == told
        assert len(ask(again["address"], networks, again["token"])[1]["items"]) == 6  # including `default`
        operations = ask(again["address"], "emulator/resources?kind=operation", again["token"])[1]
        until(lambda: ask(again["address"], "emulator/resources?kind=pending", again["token"])[1] == {})
        assert len(operations) == 5
    finally:
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0
        process.stdout.close()


def test_pools_that_are_there_at_the_start_become_nodes_again_unless_they_were_being_deleted(tmp_path):
    seen: list[str] = []
    with Emulator(tmp_path) as google:
        cloud = google.cloud
        pools = "projects/tpu-project/locations/us-central2/clusters/one/nodePools"
        own = {"_nodes": {"gke-one-a": "us-central2-b"}, "_topology": None, "_holds": None}
        for name, status in (("stays", "RUNNING"), ("leaves", "STOPPING")):
            doc = {"name": name, "status": status, "config": {"machineType": "e2-medium"}, **own}
            cloud.state.put("pool", f"{pools}/{name}", doc)
    with Emulator(tmp_path, hooks=Hooks(on_pool_created=lambda pool: seen.append(pool.full_name))):
        assert seen == [f"{pools}/stays"]


def test_hook_that_takes_long_holds_up_no_other_request(tmp_path):
    going, may_end = threading.Event(), threading.Event()

    def slow(_pool: Pool) -> None:
        going.set()
        may_end.wait(PATIENCE)

    with World(tmp_path) as world:
        pools = world.cluster()
    settings = Settings(enabled=EVERY_API, seconds={"CREATE_NODE_POOL": 0.2})
    with Emulator(tmp_path, settings, hooks=Hooks(on_pool_created=slow)) as google:
        for name in ("one", "two"):
            assert ask(google.address, pools, google.token, pool(name))[0] == 200
        assert going.wait(PATIENCE)

        def status() -> set[str]:
            """Read the states of the pools.

            Over several ticks of the emulator, an answer that waits for a hook would come too late.
            """
            return {one["status"] for one in ask(google.address, pools, google.token)[1]["nodePools"]}

        for _ in range(10):
            assert status() == {"PROVISIONING"}
            time.sleep(0.05)
        may_end.set()
        until(lambda: status() == {"RUNNING"}, "both pools")


def test_environment_leads_nowhere_but_here(google):
    told = google.environment()
    endpoints = [value for name, value in told.items() if name.endswith("_CUSTOM_ENDPOINT")]
    assert len(endpoints) == 17
    assert all(value.startswith(f"{google.address}/") and value.endswith("/") for value in endpoints)
    assert told["HTTPS_PROXY"] == "http://127.0.0.1:1"
    assert told["GOOGLE_OAUTH_ACCESS_TOKEN"] == google.token
