"""A small API server in this process with the real wire protocol and its failures.

It serves paged lists, watches with versions that expire, and logs. It can cut streams, hang, refuse and forget.
"""

from __future__ import annotations

import copy
import itertools
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

STEP = 0.005


def kubeconfig(folder: Path, server: str, user: dict | None = None, **changes) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "main", "user": "me"}}],
        "clusters": [{"name": "main", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "secret"} if user is None else user}],
        **changes,
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


class KubeServer:
    """Pods of one namespace. Faults are switches: each holds until it is reset or used up."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pods: dict[str, dict] = {}
        self.history: list[tuple[int, str, dict]] = []
        self.version = itertools.count(1).__next__
        self.now = self.version()
        self.oldest = 0  # earlier versions are expired
        self.lists: dict[str, tuple[int, list[dict]]] = {}  # by continue token
        self.asked: list[tuple[str, dict]] = []
        self.refusals: list[tuple[int, dict]] = []  # (status, headers) of the next requests
        self.hanging = threading.Event()
        self.cuts = 0  # increment to cut the open streams
        self.endings = 0  # increment to end the open streams normally
        self.expiring_lists = 0  # number of continued lists to expire
        self.log: list[bytes] = []
        self.log_is_cut = False
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer._handle(self)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # clients disconnect in the middle
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.hanging.clear()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def put(self, name: str, **more) -> dict:
        with self.lock:
            before = self.pods.get(name)
            uid = before["metadata"]["uid"] if before else f"{name}-{self.now}"
            self.now = self.version()
            metadata = {"name": name, "namespace": "team", "uid": uid, "resourceVersion": str(self.now)}
            self.pods[name] = {"metadata": metadata, "spec": {"unread": "x" * 100}, **more}
            self.history.append((self.now, "MODIFIED" if before else "ADDED", self.pods[name]))
            return self.pods[name]

    def remove(self, name: str) -> None:
        with self.lock:
            if name in self.pods:
                self.now = self.version()
                gone = copy.deepcopy(self.pods.pop(name))
                gone["metadata"]["resourceVersion"] = str(self.now)
                self.history.append((self.now, "DELETED", gone))

    def expire(self) -> None:
        """Expire the history, so that streams that are behind cannot continue."""
        with self.lock:
            self.now = self.version()
            self.oldest = self.now
            self.history.clear()
            self.cuts += 1

    def content(self) -> dict[str, str]:
        with self.lock:
            return {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in self.pods.values()}

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        query = dict(parse_qsl(url.query))
        with self.lock:
            self.asked.append((url.path, query))
            refusal = self.refusals.pop(0) if self.refusals else None
        while self.hanging.is_set() and not self.closing.is_set():
            time.sleep(STEP)
        if refusal:
            self._send(request, {"kind": "Status", "message": "no"}, *refusal)
        elif url.path.endswith("/log"):
            self._stream(request, iter(self.log), cut=self.log_is_cut)
        elif query.get("watch"):
            self._watch(request, int(query["resourceVersion"]))
        else:
            self._list(request, query)

    def _list(self, request: BaseHTTPRequestHandler, query: dict) -> None:
        with self.lock:
            token = query.get("continue", "")
            if token and self.expiring_lists:
                self.expiring_lists -= 1
                self._send(request, {"kind": "Status", "code": 410, "message": "continue token is too old"}, 410)
                return
            version, left = self.lists.pop(token) if token else (self.now, list(self.pods.values()))
            count = int(query.get("limit") or len(left) or 1)
            metadata = {"resourceVersion": str(version)}
            if left[count:]:
                metadata["continue"] = f"after-{len(self.asked)}"
                self.lists[metadata["continue"]] = version, left[count:]
            answer = {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": left[:count]}
        self._send(request, answer)

    def _watch(self, request: BaseHTTPRequestHandler, since: int) -> None:
        with self.lock:
            expired = since < self.oldest
        if expired:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            self._stream(request, iter([json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"]))
            return
        self._stream(request, self._events(since))

    def _events(self, since: int) -> Iterator[bytes]:
        cuts, endings = self.cuts, self.endings
        while not self.closing.is_set():
            with self.lock:
                if self.cuts != cuts:
                    raise ConnectionAbortedError
                if self.endings != endings:
                    return
                fresh = [] if self.hanging.is_set() else [one for one in self.history if one[0] > since]
                since = fresh[-1][0] if fresh else since
                sent = [json.dumps({"type": kind, "object": pod}).encode() + b"\n" for _, kind, pod in fresh]
            yield b"".join(sent)
            time.sleep(STEP)

    def _stream(self, request: BaseHTTPRequestHandler, chunks: Iterator[bytes], *, cut: bool = False) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        try:
            for chunk in chunks:
                if chunk:
                    request.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if not cut:
                request.wfile.write(b"0\r\n\r\n")
        except ConnectionAbortedError:
            cut = True
        request.close_connection = cut

    def _send(self, request: BaseHTTPRequestHandler, answer: dict, status: int = 200, headers: dict | None = None):
        content = json.dumps(answer).encode()
        request.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)
