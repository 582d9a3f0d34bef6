"""Commands in containers, over the WebSocket that the sandbox's kubelet serves."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest

from support.kube_server import kubeconfig
from support.waiting import until
from tpubox.kubelet.websocket import WebSocket
from tpukit.core.errors import Denied, NotFound, Transient
from tpukit.kube import Cluster
from tpukit.kube.executing import Streams
from tpukit.kube.web_socket import WebSocket as ClientSocket


class ExecServer:
    """A kubelet whose `serve` gets the WebSocket and the command of the next request."""

    def __init__(self):
        self.asked, self.serve, self.refusal = [], lambda socket, command: None, None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                url = urlsplit(self.path)
                outer.asked.append((url.path, parse_qsl(url.query), self.headers["Authorization"]))
                if outer.refusal:
                    content = json.dumps({"message": "no"}).encode()
                    self.send_response(outer.refusal)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                    return
                socket = WebSocket(self, "v5.channel.k8s.io")
                outer.serve(socket, [value for name, value in parse_qsl(url.query) if name == "command"])

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server():
    made = ExecServer()
    yield made
    made.close()


@pytest.fixture
def cluster(server, tmp_path):
    return Cluster(kubeconfig(tmp_path, f"http://127.0.0.1:{server.server.server_port}"))


@pytest.fixture
def streams(tmp_path):
    """Yield streams with input from a file, and output and errors to files."""
    (tmp_path / "in").write_bytes(b"typed")
    files = [(tmp_path / "in").open("rb"), (tmp_path / "out").open("wb"), (tmp_path / "err").open("wb")]
    yield Streams(*(file.fileno() for file in files))
    for file in files:
        file.close()


def ended(code: int) -> bytes:
    status = {"status": "Success"}
    if code:
        status = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
    return b"\x03" + json.dumps(status).encode()


def messages(socket: WebSocket, last: bytes) -> list[bytes]:
    heard: list[bytes] = []
    while last not in heard:
        heard += until(socket.receive)
    return heard


@pytest.mark.parametrize("code", [0, 1, 137])
def test_command_gets_its_words_and_input_and_gives_its_output_and_exit_code(server, cluster, streams, tmp_path, code):
    heard = []

    def serve(socket, command):
        heard.extend([command, *messages(socket, b"\xff\x00")])
        socket.send(b"\x01" + b"o" * 70_000)
        socket.send(b"\x02errors")
        socket.send(ended(code))
        socket.close()

    server.serve = serve
    assert cluster.execute("pod-1", "team", "host", ["sh", "-c", "echo $HOME; a b"], streams) == code
    assert heard == [["sh", "-c", "echo $HOME; a b"], b"\x00typed", b"\xff\x00"]
    assert (tmp_path / "out").read_bytes() == b"o" * 70_000
    assert (tmp_path / "err").read_bytes() == b"errors"
    (path, query, authorization) = server.asked[0]
    assert path == "/api/v1/namespaces/team/pods/pod-1/exec"
    assert dict(query)["container"] == "host"
    assert authorization == "Bearer secret"


@pytest.mark.parametrize(("status", "error"), [(403, Denied), (404, NotFound), (500, Transient)])
def test_command_that_is_refused_raises_the_error_of_the_answer(server, cluster, streams, status, error):
    server.refusal = status
    with pytest.raises(error, match="no"):
        cluster.execute("pod-1", "team", "host", ["true"], streams)


def test_command_whose_connection_is_lost_is_said_to_be_lost(server, cluster, streams):
    server.serve = lambda socket, command: socket._connection.shutdown(2)
    with pytest.raises(Transient, match="connection to the host was lost"):
        cluster.execute("pod-1", "team", "host", ["true"], streams)


def test_status_that_arrived_before_the_connection_was_lost_is_the_result(server, cluster, streams, monkeypatch):
    lost = threading.Event()

    def serve(socket, command):
        socket.send(ended(3))
        socket._connection.shutdown(2)
        lost.set()

    def send(self, kind, data, sent=ClientSocket._send):
        assert lost.wait(30)
        sent(self, kind, data)
        sent(self, kind, data)  # the first after the loss may still be taken by the kernel

    server.serve = serve
    monkeypatch.setattr(ClientSocket, "_send", send)
    assert cluster.execute("pod-1", "team", "host", ["true"], streams) == 3


def test_terminal_is_handed_over_raw_with_its_size_and_given_back(server, cluster, tmp_path):
    import pty
    import termios

    parent, child = pty.openpty()
    before = termios.tcgetattr(child)
    heard = []

    def serve(socket, command):
        heard.extend(until(socket.receive))
        os.write(parent, b"\x03")  # Ctrl-C is sent like any other key
        heard.extend(messages(socket, b"\x00\x03"))
        socket.send(ended(0))
        socket.close()

    server.serve = serve
    assert cluster.execute("pod-1", "team", "host", ["sh"], Streams(child, child, child, terminal=True)) == 0
    assert heard[0][:1] == b"\x04"
    assert set(json.loads(heard[0][1:])) == {"Width", "Height"}
    assert termios.tcgetattr(child) == before
    assert ("tty", "true") in server.asked[0][1]
    os.close(parent)
    os.close(child)
