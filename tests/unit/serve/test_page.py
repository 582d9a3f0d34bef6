"""The page over its real server: access, escaping, changes, and cost."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import stat
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from journeys.bare_place import BarePlace
from support.waiting import until
from tpukit import catalogue
from tpukit.catalogue import prices
from tpukit.core.clock import ManualClock, SystemClock
from tpukit.core.errors import Conflict, Transient
from tpukit.jobs.plan import ClusterName, ThisMachine, make
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, Attempt, Job, Marks
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Event
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.serve.forecasts import Forecasts
from tpukit.serve.page import changes, guard, page_server, sessions, templating
from tpukit.serve.page.sessions import LINK_SECONDS, SESSION_SECONDS, Sessions
from tpukit.serve.page.site import Site
from tpukit.sharing.inventory import VMS, Vm
from tpukit.teams.forecast import records
from tpukit.teams.waiting import Queues
from unit.teams.test_waiting import FLAVORS, cluster_queue, local_queue, runs, workload

EVIL = "<script>alert(1)</script>\x1b[31m\x00\u202e'\"><img src=x onerror=alert(2)>{{ 7*7 }}"
NOW = time.time()
COMMAND = ["echo", EVIL.replace("\0", "")]
PLAN = make(
    JobSpec.from_json({"name": "train", "tpu": "v5e-16", "command": COMMAND, "slices": 2}),
    Settings.from_json({"region": "us-west4"}),
    "local",
    target=ThisMachine("desk"),
)


class Logs(BarePlace):
    """A place with the last lines of each host."""

    lines: tuple[str, ...] = ()

    def tail(self, handle: Any, host: str, size: int) -> list[str]:
        return list(self.lines)

    def check_code(self, plan: Any) -> None:
        pass

    def observe(self, handles: Any) -> list[Any]:
        from tpukit.places.base import HostView, Observation

        return [Observation(State.RUNNING, (HostView(EVIL, 0, 0, EVIL, step=3),)) for _ in handles]

    def workdir(self, plan: Any, origin: int) -> str:
        return EVIL


def job(name: str, **fields: Any) -> Job:
    return Job(name, "local", "research", "ada", **{"created": NOW - 900, "plan": PLAN.to_json(), **fields})


def running(name: str, **fields: Any) -> Job:
    marks = Marks(since=NOW - 900, placed=NOW - 800, stepped=NOW - 700, first=0, advanced=NOW - 700)
    attempt = Attempt(0, 0, 0, State.RUNNING, started=NOW - 790, marks=marks)
    return job(name, state=State.RUNNING, attempts=(attempt,), **fields)


@pytest.fixture
def site(tmp_path):
    store = SqliteStore(tmp_path / "store.sqlite")
    yield Site(store, {"local": Logs()}, SystemClock(), "ada")
    store.close()


@pytest.fixture
def page(site, tmp_path):
    served = page_server.start(site, tmp_path, 0)
    client = Client(served.port)
    until(client.answers)
    yield client.signed_in(served)
    served.stop()


class Client:
    def __init__(self, port: int) -> None:
        self.port, self.cookie = port, ""

    def signed_in(self, served: page_server.Server) -> Client:
        answer = self.get(served.link().partition(str(self.port))[2])
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def answers(self) -> bool:
        try:
            return self.get("/").status == 401
        except OSError:
            return False

    def get(self, path: str, **headers: str) -> Any:
        return self.request("GET", path, **headers)

    def post(self, path: str, origin: str | None = "own", body: bytes = b"", **headers: str) -> Any:
        if origin is not None:
            headers["Origin"] = f"http://127.0.0.1:{self.port}" if origin == "own" else origin
        return self.request("POST", path, body, **headers)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Cookie": self.cookie, **named})
            answer = connection.getresponse()
            answer.text = answer.read().decode()  # type: ignore[attr-defined]
            return answer


def test_without_a_session_no_view_answers_and_every_refusal_has_the_headers(page):
    page.cookie = ""
    for path in ("/", "/jobs", "/job/one", "/job/one/log", "/job/one/curve", "/events", "/nothing"):
        answer = page.get(path)
        assert (answer.status, "script-src 'self'" in answer.headers["content-security-policy"]) == (401, True), path
        assert answer.headers["cache-control"] == "no-store"
    for cookie in ("x=y", f"{guard.cookie_name(page.port)}=wrong", "\x7f=;;;=", f"{guard.cookie_name(page.port)}="):
        page.cookie = cookie
        assert page.get("/").status == 401


def test_link_opens_one_session_once_and_needs_the_token_in_a_private_file(page, tmp_path):
    file = tmp_path / page_server.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    port, token = sessions.read(file)
    assert port == page.port
    for wrong in ("", "wrong", token[:-1], "é"):
        assert page.post("/link", origin=None, Authorization=f"Bearer {wrong}".encode().decode("latin-1")).status == 401
    assert page.post("/link", origin="http://127.0.0.1", Authorization=f"Bearer {token}").status == 403  # a browser
    code = page.post("/link", origin=None, Authorization=f"Bearer {token}").text
    assert [page.get(f"/enter?code={code}").status for _ in range(2)] == [303, 401]
    answer = page.get("/enter?code=")
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)


def test_state_folder_that_cannot_be_written_is_a_sentence_and_frees_the_port(site, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Conflict, match="cannot be written"):
        page_server.start(site, tmp_path / "file" / "state", 0)


def test_links_and_sessions_end_by_themselves():
    clock = ManualClock(0.0)
    one = Sessions(clock.monotonic)
    late = one.link(one.token)
    clock.sleep(LINK_SECONDS)
    assert one.enter(late) == ""
    session = one.enter(one.link(one.token))
    assert one.knows(session)
    clock.sleep(SESSION_SECONDS)
    assert not one.knows(session)


def test_cookie_is_for_this_port_and_out_of_reach_of_scripts_and_other_sites(page, tmp_path):
    port, token = sessions.read(tmp_path / page_server.FILE)
    code = page.post("/link", origin=None, Authorization=f"Bearer {token}").text
    cookie = page.get(f"/enter?code={code}").headers["set-cookie"].lower()
    assert cookie.startswith(f"tpukit_page_{port}=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "evil.example:{port}"])
def test_rebound_name_is_refused_with_a_valid_session(page, host):
    answer = page.get("/", Host=host.format(port=page.port))
    assert (answer.status, "<html" in answer.text) == (421, False)
    assert page.get("/", Host=f"localhost:{page.port}").status == 200


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1"]
)
def test_post_from_another_site_changes_nothing(page, site, origin):
    site.store.create(JOBS, "one", running("one"))
    origin = origin and origin.format(port=page.port)
    assert page.post("/job/one/stop", origin=origin).status == 403
    page.cookie = ""
    assert page.post("/job/one/stop").status == 401
    assert site.store.get(JOBS, "one").value.wanted == "run"


def test_reading_changes_nothing_and_large_bodies_and_other_methods_are_refused(page, site):
    site.store.create(JOBS, "one", running("one"))
    asked = page.get("/job/one/stop")
    assert asked.status == 200
    assert 'method="post"' in asked.text
    assert page.post("/job/one/stop", body=b"x" * 5000).status == 413
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert page.request(method, "/job/one/stop").status == 405
    assert site.store.get(JOBS, "one").value.wanted == "run"


def test_stop_resume_and_rerun_ask_first_and_do_what_the_commands_do(page, site):
    site.store.create(JOBS, "one", running("one"))
    assert page.post("/job/one/resume").status == 409  # the job is running
    answer = page.post("/job/one/stop")
    assert (answer.status, answer.headers["location"]) == (303, "/job/one")
    assert site.store.get(JOBS, "one").value.wanted == "stop"
    assert [event.text for event in site.store.events(JOBS, "one")] == ["stop requested by ada on the page"]
    assert "A stop is requested" in page.get("/job/one").text
    ended = replace(running("two"), state=State.FAILED, reason=Reason.USER_ERROR, ended=NOW)
    site.store.create(JOBS, "two", ended)
    for action in ("resume", "rerun"):
        assert f"tpu job {action} two" in page.get(f"/job/two/{action}").text
    assert page.post("/job/two/rerun").status == 303
    assert (site.store.get(JOBS, "two").value.wanted, site.store.get(JOBS, "two").value.state) == ("rerun", "pending")
    assert page.post("/job/two/explode").status == 404
    assert page.get("/job/none").status == 404


def test_hostile_names_messages_logs_and_specs_are_shown_as_text(page, site):
    site.places["local"].lines = (EVIL, "step 1 loss nan", f"tpukit-progress {EVIL}", 'tpukit-progress {"step": 2e400}')
    evil = running("one", message=EVIL, tags=(EVIL,))
    site.store.create(JOBS, "one", replace(evil, owner=EVIL, team=EVIL), events=[Event(NOW, EVIL)])
    site.store.create(JOBS, "bad", replace(evil, id="bad", plan={"spec": EVIL, "cluster": {"context": EVIL}}))
    for path in ("/", "/jobs", "/job/one", "/job/bad", "/teams", "/cluster", "/job/one/log", "/job/one/log?q=SCRIPT"):
        answer = page.get(path)
        assert answer.status == 200, (path, answer.text)
        assert not re.search(r"<script>|<img|\x1b|\x00|\u202e|>49<", answer.text), path
        assert EVIL[:8] not in answer.text
    assert "&lt;script&gt;alert(1)" in page.get("/job/one/log").text
    assert "no such lines" in page.get("/job/one/log?q=nothing-like-it&attempt=99999999999999999999&host=../x").text
    curve = json.loads(page.get("/job/one/curve").text)
    assert curve["steps"] == [1]
    assert curve["loss"] == [[None]]
    missing = page.get("/job/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert (missing.status, "<script>alert" in missing.text) == (404, False)


def test_queues_of_a_cluster_are_read_in_the_background_with_the_predicted_starts(page, site):
    asked = threading.Event()

    def read(name: ClusterName) -> Queues:
        assert asked.wait(30)
        if name.server == "https://gone":
            raise Transient(f"{name.server} {EVIL} is unreachable")
        jobs = [runs("train-1"), workload("train-2"), workload(EVIL, at=5)]
        return Queues(jobs, [local_queue()], [cluster_queue(own=1)], FLAVORS)

    site.forecasts = Forecasts(site.store, site.clock, read)
    for name, server in (("train-2", "https://here"), ("other", "https://gone")):
        cluster = {"context": f"the-{name}", "server": server, "uid": server}
        waits = replace(job(name, state=State.SCHEDULED, plan={**PLAN.to_json(), "cluster": cluster}), place="gke")
        site.store.create(JOBS, name, replace(waits, team="red"))
    assert "Queues of the-" not in page.get("/teams").text  # the view does not wait for a cluster that hangs
    asked.set()
    until(lambda: "Queues of the-" in page.get("/teams").text)
    text = page.get("/teams").text
    assert 'href="/job/train-2">red/train-2' in text
    assert re.search(r"train-2.*?<td>(?:now|in |not within)", text, re.DOTALL)
    assert "is unreachable" in text
    assert "No prediction has been compared with a start yet" in text
    assert not re.search(r"<script>|<img|\x1b|\x00|\u202e", text)
    assert re.search(r"train-2.*?<td>(?:now|in |not within)", page.get("/").text, re.DOTALL)


def test_prediction_of_a_waiting_job_is_kept_and_compared_with_its_start(site):
    there = Queues([runs("train-1"), workload("train-2")], [local_queue()], [cluster_queue(own=1)], FLAVORS)
    forecasts = Forecasts(site.store, site.clock, lambda name: there)
    cluster = {"context": "here", "server": "https://here", "uid": "1"}
    waits = job("train-2", state=State.SCHEDULED, plan={**PLAN.to_json(), "cluster": cluster})
    site.store.create(JOBS, waits.id, replace(waits, place="gke", team="red"))
    forecasts.keep()
    (kept,) = site.store.list(records.PREDICTED).entries
    assert (kept.value.job, kept.value.state) == ("train-2", "open")
    entry = site.store.get(JOBS, "train-2")
    begun = Attempt(0, 0, 0, State.RUNNING, started=kept.value.likely)
    site.store.put(JOBS, entry, replace(entry.value, attempts=(begun,)))
    forecasts.keep()
    assert records.scored(site.store) == records.Score(1, 0)


def test_map_has_the_slices_that_exist_and_prices_the_idle_ones(page, site):
    spec = JobSpec.from_json({"name": "train", "tpu": "v5e-16", "command": ["true"], "slices": 2})
    plan = make(spec, Settings.from_json({"region": "us-west4"}), "gke").to_json()
    making = Attempt(0, 0, 0, State.SCHEDULED, marks=Marks(since=NOW - 60, making=NOW - 50))
    site.store.create(JOBS, "runs", replace(running("runs", plan=plan), place="gke"))
    waits = job("waits", state=State.SCHEDULED, plan=plan, attempts=(making,))
    site.store.create(JOBS, "waits", replace(waits, place="gke"))
    site.store.create(VMS, "mine", Vm("mine", "us-west4-a", "v5e-8", NOW - 7200, job="runs-before"))
    ended = replace(running("runs-before"), state=State.COMPLETED, ended=NOW - 3600)
    site.store.create(JOBS, ended.id, ended)
    site.store.create(VMS, EVIL[:8], Vm(EVIL, EVIL, EVIL, NOW))
    text = page.get("/").text
    assert text.count('class="tile s-running"') == 2  # slices that are still being created are not held
    assert text.count('class="tile s-idle"') == 2
    assert "idle for 1h " in text  # since the end of its last job, not for 2h
    assert "4 slices, 40 chips" in text
    usd = prices.price(catalogue.find("v5e-8"), "us-west4-a").usd
    assert f"2 idle, {usd:,.2f} USD an hour" in text
    assert "1 without a known price" in text


def test_manifests_and_last_lines_are_those_of_the_job(page, site):
    site.places["gke"] = Logs()
    site.places["gke"].lines = ("first", f"last {EVIL}", "")
    wanted = {"image": "a/b:1", "workdir": "gs://bucket/run", "env": {"NAME": EVIL.replace("\0", "")}}
    spec = JobSpec.from_json({"name": "train", "tpu": "v5e-16", "command": ["true"], **wanted})
    plan = make(spec, Settings.from_json({"region": "us-west4"}), "gke")
    site.store.create(JOBS, "one", replace(running("one", plan=plan.to_json()), place="gke"))
    site.store.create(JOBS, "here", running("here"))
    lines = page.get("/job/one/lines").text
    assert lines.count("<dt>") == 4
    assert "last &lt;script&gt;" in lines
    manifest = page.get("/job/one/manifest").text
    assert "kind: JobSet" in manifest and "&lt;script&gt;" in manifest
    assert not re.search(r"<script>|<img|\x1b|\u202e", lines + manifest)
    assert "/job/one/manifest" in page.get("/job/one").text
    assert (page.get("/job/here/manifest").text, "manifest" in page.get("/job/here").text) == ("", False)


def test_templates_run_no_inline_script_and_no_inline_style():
    for file in templating.FOLDER.glob("*.html"):
        text = file.read_text()
        assert not re.search(r"<script(?! src=\"/static/)|\son[a-z]+=|\sstyle=|javascript:|\|\s*safe", text), file.name
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text), file.name
    assert templating.environment().autoescape is True


def test_fragment_is_the_changing_part_alone(page, site):
    site.store.create(JOBS, "one", running("one"))
    whole, part = page.get("/job/one").text, page.get("/job/one", HX_Request="true").text
    assert "<html" in whole
    assert "<html" not in part
    assert "Where the time went" in part
    assert 'id="log-form"' not in part  # a refresh does not touch the search field


def test_job_page_shows_time_line_cost_and_the_commands(page, site):
    site.store.create(JOBS, "one", running("one"))
    text = page.get("/job/one").text
    assert 'class="c-new"' in text
    for command in ("tpu job show one", "tpu cost one", "tpu job logs one -f"):
        assert command in text
    assert "runs on this machine" in text


def test_vendored_files_are_what_the_registry_has():
    folder = templating.FOLDER.with_name("static")
    document = json.loads((folder / "vendored.json").read_text())
    for name, said in document.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == said["sha256"]
        assert said["version"] and said["licence"] and said["integrity"].startswith("sha512-")
    own = {"page.css", "page.js", "vendored.json", "htmx.LICENSE", "uplot.LICENSE"}
    assert {file.name for file in folder.iterdir()} == own | set(document)


def test_change_of_a_job_reaches_200_listeners_and_the_page_answers_meanwhile(page, site):
    def listener() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
        connection.request("GET", "/events", headers={"Cookie": page.cookie})
        assert connection.getresponse
        return connection

    listeners = [listener() for _ in range(200)]
    try:
        streams = [one.getresponse() for one in listeners]
        assert {one.headers["content-type"] for one in streams} == {"text/event-stream; charset=utf-8"}
        for one in streams:
            assert one.readline().startswith(b"retry")
        site.store.create(JOBS, "one", running("one"))
        assert page.get("/").status == 200
        for one in streams:
            while not (line := one.readline()).startswith(b"event:"):
                assert line
            assert line == b"event: changed\n"
    finally:
        for one in listeners:
            one.close()


def test_listeners_beyond_the_limit_are_told_to_come_back_later(page, monkeypatch):
    monkeypatch.setattr(changes, "LISTENERS_MOST", 0)
    assert page.get("/events").text == "retry: 30000\n\n"


def test_jobs_beyond_a_page_are_behind_a_link_and_no_view_is_larger_than_300_kb(page, site):
    for number in range(150):
        ended = running(f"job-{number}", ended=NOW - number, created=NOW - 9000 - number)
        site.store.create(JOBS, ended.id, replace(ended, state=State.COMPLETED))
    text = page.get("/jobs").text
    assert text.count("<tr>") == 1 + 100
    following = re.search(r'href="(/jobs\?[^"]+)">Older', text)
    assert following is not None
    rest = page.get(following[1].replace("&amp;", "&")).text
    assert rest.count("<tr>") == 1 + 50
    assert not set(re.findall(r"/job/job-\d+", text)) & set(re.findall(r"/job/job-\d+", rest))
    files = ("htmx.min.js", "uplot.min.js", "uplot.min.css", "page.css", "page.js")
    assert len(text) + sum(len(page.get(f"/static/{file}").text) for file in files) < 300_000


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb (https://www.w3.org/TR/WCAG21/#dfn-relative-luminance)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("screen", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["ground", "panel"])
@pytest.mark.parametrize("text", ["ink", "soft", "link", "warn", "new", "saving"])
def test_text_stands_out_by_4_5_to_1_on_light_and_dark_screens(screen, ground, text):
    css = templating.FOLDER.with_name("static").joinpath("page.css").read_text()
    colours = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in re.findall(r":root \{(.*?)\}", css, re.DOTALL)]
    over, under = sorted((luminance(colours[screen][name]) for name in (text, ground)), reverse=True)
    assert (over + 0.05) / (under + 0.05) >= 4.5
