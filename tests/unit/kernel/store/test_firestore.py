"""Firestore without a server: error mapping, listeners, and a project without credentials."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError

from support.waiting import PATIENCE, until
from tpukit.core.errors import Denied, Invalid, NotFound, Transient
from tpukit.kernel.store import listener
from tpukit.kernel.store.firestore import FirestoreStore
from tpukit.kernel.store.firestore_calls import _translation
from tpukit.kernel.store.listener import Listener


@pytest.mark.parametrize(
    ("error", "kind", "text", "hint"),
    [
        (exceptions.PermissionDenied("no"), Denied, "denies you access: no", "roles/datastore.user in my-project-1"),
        (exceptions.Unauthenticated("who"), Denied, "does not accept your credentials", "application-default login"),
        (DefaultCredentialsError("none"), Denied, "there are no credentials", "application-default login"),
        (RefreshError("expired"), Denied, "there are no credentials", "application-default login"),
        (TransportError("down"), Transient, "could not be reached: down", "try again"),
        (exceptions.ServiceUnavailable("down"), Transient, "could not be reached: down", "try again"),
        (exceptions.DeadlineExceeded("slow"), Transient, "could not be reached: slow", "try again"),
        (exceptions.ResourceExhausted("much"), Transient, "could not be reached: much", "try again"),
        (exceptions.RetryError("long", None), Transient, "could not be reached", "try again"),
        (exceptions.Aborted("held"), Transient, "is busy", "try again"),
        (exceptions.NotFound("gone"), NotFound, "there is no store firestore://my-project-1/db", "databases create"),
        (exceptions.InvalidArgument("odd"), Invalid, "refuses the request: odd", ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_error_of_the_client_becomes_one_of_ours(error, kind, text, hint):
    translated = _translation("firestore://my-project-1/db", error)
    assert isinstance(translated, kind)
    assert text in str(translated)
    assert hint in str(translated)


def test_open_without_credentials_says_how_to_get_some(monkeypatch, tmp_path):
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(Denied, match="there are no credentials for the store firestore://my-project-1"):
        FirestoreStore("my-project-1")


def test_open_without_the_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.cloud.firestore", None)
    monkeypatch.setitem(sys.modules, "google.cloud", None)
    with pytest.raises(Invalid, match=r"pip install .*\[firestore\]'"):
        FirestoreStore("my-project-1")


class Server:
    """A server that can be unavailable, and counts its listeners."""

    def __init__(self) -> None:
        self.up = True
        self.subscribed = 0
        self.listening = 0
        self.changed: Callable[[], None] = lambda: None
        self.lost: Callable[[], None] = lambda: None

    def subscribe(self, changed: Callable[[], None], lost: Callable[[], None]) -> Callable[[], None]:
        if not self.up:
            raise ConnectionError
        self.subscribed += 1
        self.listening += 1
        self.changed, self.lost = changed, lost

        def end() -> None:
            self.listening -= 1

        return end

    def reachable(self) -> bool:
        return self.up


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(listener, "PAUSE_SECONDS", 0.02)
    return Server()


def test_listener_wakes_for_changes_and_goes_on_when_who_was_woken_fails(server):
    woken = threading.Semaphore(0)

    def wake() -> None:
        woken.release()
        raise ZeroDivisionError

    made = Listener(server.subscribe, server.reachable, wake)
    until(lambda: server.listening, "it to listen")
    for _ in range(3):
        server.changed()
        assert woken.acquire(timeout=PATIENCE)
    made.stop()
    assert (server.listening, server.subscribed) == (0, 1)


@pytest.mark.parametrize("noticed", ["by a call", "by the stream", "by asking"])
def test_listener_is_put_away_while_the_server_is_and_made_anew_after(server, noticed):
    woken = threading.Event()
    made = Listener(server.subscribe, server.reachable, woken.set)
    until(lambda: server.listening, "it to listen")
    server.up = False
    {"by a call": made.trouble, "by the stream": server.lost, "by asking": lambda: None}[noticed]()
    until(lambda: not server.listening, "it to be put away")
    server.up = True
    until(lambda: server.listening, "it to listen again")
    server.changed()
    assert woken.wait(timeout=PATIENCE)
    made.stop()
    assert server.listening == 0


def test_listener_is_made_anew_after_a_while_because_it_may_have_fallen_silent(server, monkeypatch):
    monkeypatch.setattr(listener, "RENEW_SECONDS", 0.05)
    made = Listener(server.subscribe, server.reachable, lambda: None)
    until(lambda: server.subscribed > 2, "new ones")
    made.stop()
    assert server.listening == 0
