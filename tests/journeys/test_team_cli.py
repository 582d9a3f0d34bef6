"""`tpu team` without a cluster, or with an unsuitable one: a one-sentence error each."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.waiting import PATIENCE


class _WithoutKueue(BaseHTTPRequestHandler):
    """An API server before any installation: it has namespaces and roles, and no other kinds."""

    def do_GET(self) -> None:
        known = self.path.startswith(("/api/v1/", "/apis/rbac.authorization.k8s.io/"))
        empty = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}
        absent = {"kind": "Status", "code": 404, "message": "the server could not find the requested resource"}
        one = self.path.startswith("/api/v1/namespaces/")
        content = json.dumps(empty if known and not one else absent).encode()
        self.send_response(200 if known and not one else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def bare(tpu) -> Iterator[None]:
    """Write a kubeconfig for a cluster without Kueue."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _WithoutKueue) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "current-context": "bare",
            "clusters": [{"name": "bare", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "me"}}],
            "users": [{"name": "me", "user": {}}],
        }
        file = tpu.folder / "kubeconfig"
        file.write_text(json.dumps(config))
        tpu.env["KUBECONFIG"] = str(file)
        yield
        server.shutdown()


@pytest.mark.parametrize("words", [[], ["add", "vision"], ["queue"], ["queue", "vision"], ["show", "vision"]])
def test_team_without_a_cluster_says_where_one_is_looked_for(tpu, words):
    done = tpu("team", *words, code=1)
    assert done.stderr.startswith("tpu: no cluster is configured")
    assert "KUBECONFIG" in done.stderr


@pytest.mark.parametrize("words", [[], ["add", "vision"], ["queue"], ["queue", "vision"]])
def test_team_on_a_cluster_without_kueue_says_what_installs_it(tpu, bare, words):
    done = tpu("team", *words, code=1)
    assert "has no Kueue (v1beta2)\n  `tpu cluster addons` installs it" in done.stderr
    assert not done.stdout


def test_add_with_wrong_options_says_all_that_is_wrong_before_it_looks_for_a_cluster(tpu):
    done = tpu("team", "add", "Vision", "--quota", "v4-17=1", "--member", "ada", code=2)
    assert [line for line in done.stderr.splitlines() if not line.startswith("  ")] == [
        "tpu: NAME: 'Vision' is not allowed",
        "--quota: there is no TPU named 'v4-17'",
        "--member: 'ada' is not a member",
    ]


def test_help_has_examples_and_loads_nothing_heavy(tpu):
    program = "import sys; from tpukit.cli import command; command(['team', '--help'], standalone_mode=False); " + (
        "print('loaded', {name.partition('.')[0] for name in sys.modules} & {'kubernetes', 'rich', 'jinja2', 'yaml'})"
    )
    done = subprocess.run([tpu.argv()[0], "-c", program], env=tpu.env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "tpu team add vision --quota v4-16=2" in done.stdout
    assert "loaded set()" in done.stdout
