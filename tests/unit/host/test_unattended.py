"""The watch over an attempt's driver: when it stops a job, what it deletes, and when it exits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.bare_host import Host
from support.tpu_vm_world import NODES, PROJECT, V4_8, TpuVms
from support.waiting import alive, until
from tpukit.host.supervision import host_hardware
from tpukit.host.supervision import host_unattended as unattended
from tpukit.places.local import processes as pods
from tpukit.places.tpu_vm import renewals

QUEUED = NODES.replace("/nodes", "/queuedResources")
LABELS = {"tpukit-job": "try-1", "tpukit-attempt": "0", "tpukit-store": "mine"}
POLICY = f"resource_manager/v1/projects/{PROJECT}"
AT_ONCE, LATER = 0.5, 3600


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "tpukit")
    yield made
    pods.kill_strays(made.root)


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuVms]:
    with TpuVms(tmp_path_factory.mktemp("google")) as made:
        yield made


def limited(host: Host, seconds: float, script: str = "sleep 600", attempt: int = 0, **hardware: Any) -> None:
    host.start(script, attempt=attempt, unattended={"seconds": seconds, "grace": 5, "hardware": hardware})


def watches(host: Host, attempt: int = 0) -> list[int]:
    folder = host.folder(attempt=attempt) / "unattended"
    return [pid for pid in pods.living(folder).get(folder, []) if alive(pid)]


def watching(host: Host, attempt: int = 0) -> int:
    """Wait until the watch runs, and return its process."""
    lock = host.folder(attempt=attempt) / "unattended" / "lock"
    until(lambda: lock.exists() and not unattended.is_free(lock), "the watch to begin")

    def only() -> int:  # a second watch finds the lock taken and exits at once
        found = watches(host, attempt)
        return found[0] if len(found) == 1 else 0

    return until(only, "one watch")


def test_attempt_without_a_driver_for_longer_than_allowed_is_stopped(host):
    limited(host, AT_ONCE)
    until(host.leaves, "it to be told to leave")
    assert host.ended().signalled


def test_attempt_that_a_driver_asks_for_is_attended(host):
    limited(host, LATER)
    asked = host.folder() / "unattended" / "asked"
    os.utime(asked, (1, 1))
    host.state()
    assert asked.stat().st_mtime > 1
    assert not host.leaves()


@pytest.mark.parametrize("how", ["stop", "lose"])
def test_watch_ends_with_an_attempt_that_holds_no_hardware(host, how):
    limited(host, LATER)
    watching(host)
    host.ask(how, job="try-1", attempt=0, grace=0)
    until((host.folder() / "unattended" / "done").exists, "the watch to end")
    until(lambda: not watches(host))
    host.state()
    assert not watches(host), "a question starts it no more"


def test_watch_stays_with_hardware_that_its_attempt_left(host):
    limited(host, LATER, "true", url="http://127.0.0.1:1/nodes/vm", labels={})
    pid = watching(host)
    host.ended()
    assert unattended.needed(host.folder(), {"attempt": 0, "hardware": {"url": "..."}})
    assert watches(host) == [pid]


def test_watch_ends_when_the_home_is_removed(tmp_path):
    host = Host(tmp_path / "home" / ".tpukit")
    limited(host, LATER, "true", url="http://127.0.0.1:1/nodes/vm", labels={})
    pid = watching(host)
    host.ended()
    (tmp_path / "home").rename(tmp_path / "removed")
    until(lambda: not alive(pid), "the watch to end")


def test_watch_whose_files_a_program_removes_still_stops_it(host, tmp_path):
    limited(host, 1.0, f"rm -rf {host.root}; touch {tmp_path}/gone; sleep 600")
    until((tmp_path / "gone").exists, "the files to be removed")
    until(lambda: not [pid for pid in pods.strays(host.root / "jobs") if alive(pid)], "nothing to run")


class Days:
    """The watch's clock, with events of drivers at certain seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **events: Callable[[], None]) -> None:
        self.now, self.events = 0.0, {float(at[1:]): event for at, event in events.items()}
        monkeypatch.setattr(unattended, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self.events if at <= self.now]:
            self.events.pop(at)()


@pytest.mark.parametrize(("marks", "ends"), [({}, 3600), ({1500: "b"}, 5100), ({1500: "b", 3000: "c"}, 6600)])
def test_watch_of_a_host_that_no_driver_reaches_counts_from_the_last_mark_in_the_metadata(
    tmp_path, monkeypatch, marks, ends
):
    mark = ["a"]
    monkeypatch.setattr(unattended, "mark", lambda known: mark[-1])
    clock = Days(monkeypatch, **{f"t{at}": partial(mark.append, one) for at, one in marks.items()})
    wanted = {"attempt": 0, "seconds": 3600.0, "hardware": {"url": "..."}}
    lock = unattended.own(tmp_path / "attempt-0", wanted)
    assert lock is not None
    with lock:
        assert unattended.watch(tmp_path / "attempt-0", wanted, lock) is not None
    assert ends <= clock.now <= ends + 3600 / unattended.MARK_LOOKS + 10


def test_watch_ends_when_a_later_attempt_begins(host):
    limited(host, LATER, "true", url="http://127.0.0.1:1/nodes/vm", labels={})
    host.ended()
    pid = watching(host)
    limited(host, LATER, attempt=1, url="http://127.0.0.1:1/nodes/vm", labels={})
    assert watching(host, 1) != pid
    until(lambda: not alive(pid), "the first watch to end")


def test_watch_that_a_reboot_took_is_started_by_the_next_question(host):
    limited(host, LATER)
    pid = watching(host)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    host.state()
    assert watching(host) != pid


class Lent:
    """A queued resource of the job beside one of another job, and a host with the metadata server of its VM."""

    def __init__(self, google: TpuVms, folder: Path, name: str) -> None:
        self.google, self.name = google, name
        for one, labels in ((name, LABELS), (f"{name}-other", {**LABELS, "tpukit-job": "other"})):
            spec = {"nodeId": one, "node": {**V4_8, "labels": labels}}
            google.ask("POST", f"{QUEUED}?queuedResourceId={one}", {"tpu": {"nodeSpec": [spec]}})
        for one in self.names:
            until(lambda one=one: self.state(one) == "ACTIVE")  # type: ignore[misc]
        network = google.emulator.hypervisor.network
        assert network is not None
        self.host = Host(folder, GCE_METADATA_HOST=f"{google.address(name)}:{network.metadata_port}")
        until(self.account, "its metadata server")

    @property
    def names(self) -> list[str]:
        return [self.name, f"{self.name}-other"]

    @property
    def url(self) -> str:
        return f"{self.google.emulator.address}/{QUEUED}/{self.name}"

    def state(self, name: str) -> str:
        status, answer = self.google.send("GET", f"{QUEUED}/{name}")
        return "" if status == 404 else str(answer["state"]["state"])

    def account(self) -> str:
        """Return the account that the metadata server reports, or an empty string while the server starts."""
        with suppress(OSError):
            return self.google.metadata(self.name, "instance/service-accounts/default/email")
        return ""

    def grant(self, *roles: str) -> None:
        """Grant these roles, and no others, to the account of the TPU VM."""
        account = self.account()
        policy = self.google.ask("POST", f"{POLICY}:getIamPolicy", {})
        members = [f"serviceAccount:{account}"]
        others = [one for one in policy.get("bindings", []) if one["members"] != members]
        bindings = [*others, *({"role": role, "members": members} for role in roles)]
        self.google.ask("POST", f"{POLICY}:setIamPolicy", {"policy": {**policy, "bindings": bindings}})


@pytest.fixture
def lend(google: TpuVms, tmp_path: Path) -> Iterator[Any]:
    made: list[Lent] = []

    def lent(name: str) -> Lent:
        made.append(Lent(google, tmp_path / "tpukit", name))
        return made[-1]

    yield lent
    for one in made:
        pods.kill_strays(one.host.root)
        for name in one.names:
            google.send("DELETE", f"{QUEUED}/{name}?force=true")


def test_queued_resource_of_an_unattended_attempt_is_deleted_and_no_other(lend):
    lent = lend("own")
    lent.grant("roles/tpu.admin")
    limited(lent.host, AT_ONCE, url=lent.url, labels=LABELS)
    until(lambda: not lent.state("own"), "the queued resource to be deleted")
    assert lent.host.leaves()
    assert lent.state("own-other") == "ACTIVE"
    assert lent.google.send("GET", f"{NODES}/own-other")[0] == 200


def test_mark_that_a_driver_writes_into_the_metadata_of_a_tpu_vm_reaches_its_hosts(lend, monkeypatch):
    lent = lend("renewed")
    monkeypatch.setenv(unattended.METADATA_HOST, lent.host.environment[unattended.METADATA_HOST])
    assert unattended.mark("known") == "known"
    assert host_hardware.RENEWED == renewals.RENEWED
    body = {"metadata": {host_hardware.RENEWED: "2"}}
    lent.google.ask("PATCH", f"{NODES}/{lent.name}?updateMask=metadata", body)
    until(lambda: unattended.mark("known") == "2", "the mark to arrive")


def test_tpu_vm_without_a_queued_resource_is_deleted(lend):
    lent = lend("plain")
    lent.grant("roles/tpu.admin")
    lent.google.make("direct", {**V4_8, "labels": LABELS})
    limited(lent.host, AT_ONCE, url=f"{lent.google.emulator.address}/{NODES}/direct", labels=LABELS)
    until(lambda: lent.google.send("GET", f"{NODES}/direct")[0] == 404, "the TPU VM to be deleted")
    assert [lent.state(name) for name in lent.names] == ["ACTIVE", "ACTIVE"]


@pytest.mark.parametrize("label", LABELS)
def test_hardware_that_carries_another_label_by_now_is_left_alone(lend, label):
    lent = lend("other-" + label[7:])
    lent.grant("roles/tpu.admin")
    limited(lent.host, AT_ONCE, url=lent.url, labels={**LABELS, label: "7"})
    until((lent.host.folder() / "unattended" / "done").exists, "the watch to end")
    assert lent.host.leaves()
    assert [lent.state(name) for name in lent.names] == ["ACTIVE", "ACTIVE"]


def test_account_without_the_right_stops_the_program_and_deletes_nothing(lend):
    lent = lend("denied")
    lent.grant("roles/tpu.viewer")
    limited(lent.host, AT_ONCE, url=lent.url, labels=LABELS)
    log = lent.host.folder() / "unattended" / "log"
    until(lambda: "403" in log.read_text(), "the refusal")
    assert pods.status(lent.host.folder()).signalled
    assert [lent.state(name) for name in lent.names] == ["ACTIVE", "ACTIVE"]
    assert watches(lent.host), "it retries"


def test_driver_that_comes_back_keeps_hardware_that_was_not_deleted_yet(tmp_path, monkeypatch):
    own = tmp_path / "unattended"
    own.mkdir()
    (own / "wanted").touch()
    (own / "asked").touch()
    os.utime(own / "asked", (1, 1))
    monkeypatch.setenv(unattended.METADATA_HOST, "127.0.0.1:1")
    hardware = {"url": "http://127.0.0.1:1/nodes/vm", "labels": {}}
    with ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(unattended.released, tmp_path, {"attempt": 0, "hardware": hardware}, (1.0, ""))
        (own / "asked").touch()
        assert deleted.result() is False
