"""The mirror in a Google Sheet, against a server that accepts only what the Sheets API v4 accepts."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from support.manager_desk import Desk
from tpukit.cli import serve
from tpukit.core.errors import Denied, Invalid, NotFound
from tpukit.google import sheets
from tpukit.jobs.spec import settings

ROWS = [["name", "state", "user"], ["g-v4-8-1", "READY", "ada"], ["g-v4-8-2", "READY", "=HYPERLINK(1)"]]


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tabs: dict[str, list[list[str]]] = {"Sheet1": [[""] * 26 for _ in range(20)]}
        self.writes = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        grid = {"rowCount": 20, "columnCount": 26}
        shown = [{"properties": {"title": tab, "gridProperties": grid}} for tab in self.server.tabs]
        self.answer("", lambda: {"sheets": shown})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/values:batchUpdate"):
            self.answer("/values:batchUpdate", lambda: self.write(body))
        else:
            self.answer(":batchUpdate", lambda: self.add(body))

    def answer(self, method: str, document: Any) -> None:
        known = re.fullmatch(rf"/v4/spreadsheets/(\w+){re.escape(method)}(?:\?.*)?", self.path)
        try:
            if self.headers["Authorization"] != "Bearer right":
                raise PermissionError(403, "The caller does not have permission")
            if not known or known[1] != "mine":
                raise LookupError(404, "Requested entity was not found.")
            code, content = 200, document()
        except (PermissionError, LookupError, ValueError) as error:
            code, message = error.args
            content = {"error": {"code": code, "message": message}}
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def add(self, body: Any) -> Any:
        (request,) = body["requests"]
        title = request["addSheet"]["properties"]["title"]
        if title in self.server.tabs:
            raise ValueError(400, f'A sheet with the name "{title}" already exists.')
        self.server.tabs[title] = []
        return {"replies": [{}]}

    def write(self, body: Any) -> Any:
        if body.get("valueInputOption") not in ("RAW", "USER_ENTERED"):
            raise ValueError(400, "'valueInputOption' is required but not specified")
        if body["valueInputOption"] == "USER_ENTERED" and "=" in json.dumps(body["data"]):
            raise ValueError(400, "a formula")
        (one,) = body["data"]
        named = re.fullmatch(r"'((?:[^']|'')+)'!A1", one["range"])
        tab = named[1].replace("''", "'") if named else ""
        if tab not in self.server.tabs:
            raise ValueError(400, f"Unable to parse range: {one['range']}")
        for at, row in enumerate(one["values"]):
            while len(self.server.tabs[tab]) <= at:
                self.server.tabs[tab].append([])
            self.server.tabs[tab][at][: len(row)] = row
        self.server.writes += 1
        return {"totalUpdatedCells": sum(map(len, one["values"]))}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv(sheets.SHEETS[0], f"http://127.0.0.1:{made.server_port}/v4/")
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "right")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def table(server: Server, tab: str) -> list[list[str]]:
    return [row[:3] for row in server.tabs[tab] if any(row)]


def test_table_is_written_to_a_new_tab_and_replaced_by_a_shorter_one_in_one_request(server):
    assert sheets.replace("mine", "Ada's TPUs", ROWS) == 9
    assert table(server, "Ada's TPUs") == ROWS
    sheets.replace("mine", "Ada's TPUs", ROWS[:2])
    assert table(server, "Ada's TPUs") == ROWS[:2]
    assert server.writes == 2
    assert table(server, "Sheet1") == []


def test_sheet_that_is_not_ours_or_not_there_is_refused_in_words(server, monkeypatch):
    with pytest.raises((NotFound, Invalid), match="not found"):
        sheets.replace("missing", "TPUs", ROWS)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "wrong")
    with pytest.raises(Denied, match="does not have permission"):
        sheets.replace("mine", "TPUs", ROWS)
    assert server.writes == 0


def test_serve_writes_the_inventory_to_the_sheet_of_the_settings_and_again_when_it_has_changed(
    server, tmp_path, monkeypatch
):
    for name in ("home", "code"):
        (tmp_path / name).mkdir()
    desk = Desk(tmp_path / "home", tmp_path / "code", monkeypatch)
    assert serve._mirror() is None
    desk("vm note g-v4-8-1 new")
    settings.save({"inventory_sheet": "mine"})
    write = serve._mirror()
    write()
    write()
    assert server.writes == 1
    desk("vm note g-v4-8-1 broken")
    write()
    assert server.writes == 2
    assert [row[0] for row in server.tabs["TPUs"] if any(row)][1:] == ["g-v4-8-1"]
    assert "broken" in server.tabs["TPUs"][1]
    desk.forget()
