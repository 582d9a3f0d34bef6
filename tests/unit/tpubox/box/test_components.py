"""Components as processes, played by small programs."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.waiting import until
from tpubox.box import components, folder
from tpubox.box.control_plane import Component
from tpukit.core.errors import Transient
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase


@pytest.fixture
def place(home, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(home))
    with folder.locked("box"):
        made = folder.prepare("box")
    yield made
    components.stop(made, components.runs(made), grace=0)


def sleeping(name, *words, **env):
    return Component(name, ("sleep", "60", *words), env)


def pid(place, name):
    return components.runs(place)[name].state.pid


def test_start_twice_is_once(place):
    components.start(place, [sleeping("a"), sleeping("b")])
    before = pid(place, "a"), pid(place, "b")
    components.start(place, [sleeping("a"), sleeping("b")])
    assert (pid(place, "a"), pid(place, "b")) == before


@pytest.mark.parametrize("changed", [sleeping("a", "1"), sleeping("a", X="y")], ids=["argv", "env"])
def test_component_that_runs_with_other_words_is_started_anew(place, changed):
    components.start(place, [sleeping("a"), sleeping("b")])
    before, other = pid(place, "a"), pid(place, "b")
    components.start(place, [changed, sleeping("b")])
    run = components.runs(place)["a"]
    assert run.state.phase is Phase.RUNNING
    assert (run.restarts, run.state.pid != before) == (1, True)
    assert pid(place, "b") == other


def test_changed_file_that_components_read_starts_them_anew(place):
    place.config("a", {"x": 1})
    components.start(place, [sleeping("a")])
    place.config("a", {"x": 2})
    components.start(place, [sleeping("a")])
    assert components.runs(place)["a"].restarts == 1


def test_component_that_was_killed_is_started_again_and_old_logs_are_bounded(place):
    for number in range(5):
        components.start(place, [sleeping("a")])
        run = components.runs(place)["a"]
        assert (run.restarts, run.state.phase) == (number, Phase.RUNNING)
        pods.stop(run.folder, 0)
        until(lambda folder=run.folder: pods.status(folder).phase is not Phase.RUNNING)
    kept = sorted(int(path.name) for path in (place.path / "components" / "a").iterdir())
    assert kept == [2, 3, 4]


def test_component_that_ends_is_told_with_its_last_words(place):
    script = "import sys; print('flag provided but not defined', file=sys.stderr); sys.exit(3)"
    broken = Component("a", (sys.executable, "-c", script), probe="http://127.0.0.1:1/readyz")
    components.start(place, [broken])
    with pytest.raises(Transient, match="a ended with 3: flag provided but not defined") as raised:
        components.wait(place, [broken])
    assert str(components.runs(place)["a"].log) in raised.value.hint


def test_program_that_is_not_there_is_named(place):
    missing = Component("a", ("/missing/program",), probe="http://127.0.0.1:1/readyz")
    components.start(place, [missing])
    with pytest.raises(Transient, match="/missing/program: No such file"):
        components.wait(place, [missing])


def test_wait_asks_with_the_token_until_the_answer_is_good(place):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers["Authorization"])
            self.send_response(200 if len(asked) > 2 else 503)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        slow = Component("a", ("sleep", "60"), probe=f"http://127.0.0.1:{server.server_port}/readyz")
        components.start(place, [slow])
        components.wait(place, [slow])
        server.shutdown()
        thread.join()
    assert asked == [f"Bearer {place.token}"] * 3


def test_environment_of_the_user_is_not_passed_on(place, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_USER", "x")
    printing = Component("a", ("env",), {"OWN": "y"})
    components.start(place, [printing])
    run = components.runs(place)["a"]
    until(lambda: pods.status(run.folder).phase is not Phase.RUNNING)
    names = {line.partition("=")[0] for line in run.log.read_text().splitlines()}
    assert names == {"PATH", "HOME", "TPUKIT_SETUP", "TPUKIT_POD", "OWN"}


def test_memory_counts_the_process_and_the_one_above_it(place):
    components.start(place, [sleeping("a")])
    assert 2**20 < components.memory(components.runs(place)["a"]) < 2**27
