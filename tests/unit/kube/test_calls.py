"""Access to a cluster, against a local server that plays the API server."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.kube_server import kubeconfig
from tpukit import catalogue
from tpukit.core import fence
from tpukit.core.errors import Conflict, Denied, Invalid, LeaseLost, NotFound, Transient, Unauthenticated
from tpukit.jobs import render
from tpukit.kube import KINDS, Cluster, answers, connection, encode


class ApiServer:
    """A server that gives prepared answers in order and records the requests."""

    def __init__(self):
        self.answers, self.asked = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                length = int(self.headers.get("Content-Length") or 0)
                url = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append((self.command, url.path, dict(parse_qsl(url.query)), body, headers))
                status, lines, more = outer.answers.pop(0)
                content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                for name, value in more.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def will(self, *lines, status=200, headers=None):
        self.answers.append((status, lines, headers or {}))

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def api():
    server = ApiServer()
    yield server
    server.close()


@pytest.fixture
def cluster(api, tmp_path):
    return Cluster(kubeconfig(tmp_path, f"http://127.0.0.1:{api.server.server_port}"))


def pod(name, version, uid=None):
    return {"metadata": {"name": name, "uid": uid or name, "resourceVersion": str(version)}}


def pods(version, *items):
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": list(items)}


def seen(changes, count):
    return [
        (c.object["metadata"]["name"], c.object["metadata"]["resourceVersion"], c.gone) for c in islice(changes, count)
    ]


def test_list_gives_objects_that_say_what_they_are(api, cluster):
    api.will(pods(7, pod("a", 1)))
    (found,) = cluster.list("Pod", "team", labels="x=y")
    assert (found["kind"], found["apiVersion"]) == ("Pod", "v1")
    method, path, query, _, headers = api.asked[0]
    assert (method, path, query) == ("GET", "/api/v1/namespaces/team/pods", {"labelSelector": "x=y", "limit": "500"})
    assert headers["authorization"] == "Bearer secret"


def test_apply_is_server_side_and_a_dry_run_says_so(api, cluster):
    document = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j", "namespace": "t"}}
    api.will(document)
    cluster.apply(document, dry_run=True)
    method, path, query, body, headers = api.asked[0]
    assert (method, path) == ("PATCH", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/t/jobsets/j")
    assert query == {"fieldManager": "tpukit", "force": "true", "dryRun": "All"}
    assert body == document
    assert headers["content-type"] == "application/apply-patch+yaml"


def test_apply_of_a_kind_that_tpukit_does_not_name_asks_the_cluster_once(api, cluster):
    document = {"apiVersion": "flow.io/v1", "kind": "Schema", "metadata": {"name": "s"}}
    api.will({"resources": [{"name": "schemas", "kind": "Schema", "namespaced": False}]})
    api.will(document)
    api.will(document)
    cluster.apply(document)
    cluster.apply(document)
    paths = [path for _, path, *_ in api.asked]
    assert paths == ["/apis/flow.io/v1", "/apis/flow.io/v1/schemas/s", "/apis/flow.io/v1/schemas/s"]


def test_apply_of_a_kind_that_nobody_knows_is_not_found(api, cluster):
    api.will({"resources": []})
    with pytest.raises(NotFound, match="no kind Schema in flow"):
        cluster.apply({"apiVersion": "flow.io/v1", "kind": "Schema", "metadata": {"name": "s"}})


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (302, Transient),
        (400, Invalid),
        (401, Unauthenticated),
        (403, Denied),
        (404, NotFound),
        (409, Conflict),
        (410, Transient),
        (422, Invalid),
        (429, Transient),
        (500, Transient),
    ],
)
def test_refusal_is_raised_as_what_the_caller_does_next(api, cluster, status, error):
    api.will({"kind": "Status", "message": "because of that"}, status=status)
    with pytest.raises(error, match="because of that"):
        cluster.get("Node", "n")


def test_401_says_to_sign_in_again_and_403_to_ask_for_a_role(api, cluster):
    api.will({"kind": "Status", "message": "Unauthorized"}, status=401)
    with pytest.raises(Unauthenticated, match=r"gcloud auth login.*tpu cluster credentials"):
        cluster.get("Node", "n")
    api.will({"kind": "Status", "message": "nodes is forbidden"}, status=403)
    with pytest.raises(Denied, match="ask an administrator of the cluster for a role") as refused:
        cluster.get("Node", "n")
    assert not isinstance(refused.value, Unauthenticated)


@pytest.mark.parametrize("content", ["[]", "7", "null", '"text"', "<html>", "", "\udcff"])
def test_refusal_in_any_words_is_still_the_refusal(content):
    error = answers.error(403, content.encode(errors="surrogateescape"), "GET /api")
    assert type(error) is Denied


@pytest.mark.parametrize("status", [429, 503])
def test_refusal_for_a_while_says_how_long(api, cluster, status):
    api.will({"message": "later"}, status=status, headers={"Retry-After": "7"})
    with pytest.raises(Transient) as refused:
        cluster.version()
    assert refused.value.retry_after == 7.0


@pytest.mark.parametrize("text", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "²"])
def test_retry_after_that_is_no_number_of_seconds_is_left_out(text):
    error = answers.error(429, b"{}", "GET /api", text)
    assert isinstance(error, Transient)
    assert error.retry_after == 0.0


def test_answer_that_is_no_json_is_passing_trouble(api, cluster):
    api.will(status=200)
    with pytest.raises(Transient, match="not JSON"):
        cluster.version()


def test_list_that_is_no_list_is_passing_trouble(api, cluster):
    api.will({"kind": "Status"})
    with pytest.raises(Transient, match="not a list"):
        cluster.list("Pod")


def test_server_that_accepts_and_never_answers_is_passing_trouble_after_the_seconds(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = Cluster(kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}"))
        for call in (cluster.version, lambda **seconds: cluster.list("Pod", **seconds)):
            began = time.monotonic()
            with pytest.raises(Transient, match="does not respond"):
                call(seconds=0.2)
            assert time.monotonic() - began < connection.ANSWER_SECONDS


def test_calls_wait_five_seconds_for_a_connection_and_twenty_for_an_answer():
    assert (connection.CONNECT_SECONDS, connection.ANSWER_SECONDS) == (5.0, 20.0)


def test_identity_is_the_uid_of_the_namespace_of_the_system(api, cluster):
    api.will({"metadata": {"name": "kube-system", "uid": "one-of-a-kind"}})
    assert cluster.identity() == "one-of-a-kind"
    assert api.asked[0][1] == "/api/v1/namespaces/kube-system"


def test_identity_is_empty_for_who_may_not_see_it_and_raised_for_who_is_signed_out(api, cluster):
    api.will({"message": "forbidden"}, status=403)
    assert cluster.identity() == ""
    api.will({"message": "Unauthorized"}, status=401)
    with pytest.raises(Unauthenticated):
        cluster.identity()


def test_delete_of_one_object_and_no_other_says_which(api, cluster):
    api.will({"kind": "Status"})
    cluster.delete("JobSet", "j", "team", uid="u", version="7")
    assert api.asked[0][3]["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    api.will({"message": "the UID in the precondition does not match"}, status=409)
    with pytest.raises(Conflict, match="precondition"):
        cluster.delete("JobSet", "j", "team", uid="u")
    assert api.asked[1][3]["preconditions"] == {"uid": "u"}


def test_server_that_is_away_is_passing_trouble(api, cluster):
    api.server.socket.close()
    with pytest.raises(Transient, match="does not respond"):
        cluster.version()


def test_delete_of_what_is_gone_is_done(api, cluster):
    api.will({"kind": "Status", "message": "not there"}, status=404)
    cluster.delete("Pod", "p", "team", grace=0)
    assert api.asked[0][3] == {"propagationPolicy": "Background", "gracePeriodSeconds": 0}


def test_watch_lists_then_goes_on_from_there(api, cluster):
    api.will(pods(5, pod("a", 1), pod("b", 2)))
    api.will({"type": "MODIFIED", "object": pod("a", 6)}, {"type": "DELETED", "object": pod("b", 7)})
    assert seen(cluster.watch("Pod"), 4) == [
        ("a", "1", False),
        ("b", "2", False),
        ("a", "6", False),
        ("b", "7", True),
    ]
    _, _, query, _, _ = api.asked[1]
    assert (query["resourceVersion"], query["allowWatchBookmarks"], query["watch"]) == ("5", "true", "true")


def test_watch_that_ends_goes_on_from_the_last_version_bookmarks_included(api, cluster):
    api.will(pods(5))
    api.will({"type": "ADDED", "object": pod("a", 6)}, {"type": "BOOKMARK", "object": pod("", 9)})
    api.will({"type": "MODIFIED", "object": pod("a", 10)})
    assert seen(cluster.watch("Pod"), 2) == [("a", "6", False), ("a", "10", False)]
    assert [query.get("resourceVersion") for _, _, query, _, _ in api.asked] == [None, "5", "9"]


@pytest.mark.parametrize("on_the_wire", ["status", "event"])
def test_watch_whose_version_expired_makes_up_for_it_from_a_list(api, cluster, on_the_wire):
    gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
    api.will(pods(5, pod("same", 1), pod("changed", 2), pod("removed", 3), pod("replaced", 4, "old")))
    if on_the_wire == "status":
        api.will(gone, status=410)
    else:
        api.will({"type": "ERROR", "object": gone})
    api.will(pods(20, pod("same", 1), pod("changed", 12), pod("replaced", 14, "new"), pod("added", 15)))
    changes = seen(cluster.watch("Pod"), 9)[4:]
    assert changes == [
        ("removed", "3", True),
        ("replaced", "4", True),
        ("changed", "12", False),
        ("replaced", "14", False),
        ("added", "15", False),
    ]


def test_watch_pauses_longer_while_the_server_is_in_trouble_and_goes_on(api, cluster):
    pauses = []
    api.will({"message": "starting"}, status=503)
    api.will({"message": "starting"}, status=503)
    api.will(pods(5))
    api.will({"message": "too many"}, status=429)
    api.will({"type": "ADDED", "object": pod("a", 6)})
    changes = cluster.watch("Pod", trouble=lambda error, pause: pauses.append((str(error), pause)))
    assert seen(changes, 1) == [("a", "6", False)]
    assert pauses == [("starting (503)", 0.5), ("starting (503)", 1.0), ("too many (429)", 2.0)]


def test_watch_that_is_not_allowed_is_raised(api, cluster):
    api.will({"message": "pods is forbidden"}, status=403)
    with pytest.raises(Denied, match="pods is forbidden"):
        next(cluster.watch("Pod"))


def test_proxy_of_the_user_is_not_asked_for_this_machine(api, tmp_path, monkeypatch, cluster):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    api.will({"gitVersion": "v1"})
    assert Cluster(tmp_path / "kubeconfig").version() == "v1"


def test_kinds_of_kueue_are_those_of_the_rendered_documents():
    rendered = render.queues({catalogue.find("v4-8"): 1}, ["t"], cpus=1, memory_gb=1)
    found = {document["kind"]: document["apiVersion"] for document in rendered if "kueue" in document["apiVersion"]}
    assert found
    assert found == {kind: KINDS[kind].api_version for kind in found}


@given(
    st.dictionaries(
        st.text(max_size=5), st.text() | st.sampled_from(["\x85", "\u2028", "\ufeff", "\x7f", "\U0001f600"])
    )
)
def test_what_is_sent_is_the_same_to_a_reader_of_json_and_of_yaml(document):
    sent = encode(document)
    assert json.loads(sent) == yaml.safe_load(sent) == document


CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "t"}}
MUTATIONS = {
    "create": lambda cluster: cluster.create(CONFIG),
    "apply": lambda cluster: cluster.apply(CONFIG),
    "replace": lambda cluster: cluster.replace(CONFIG),
    "patch": lambda cluster: cluster.patch("ConfigMap", "c", {}, "t"),
    "delete": lambda cluster: cluster.delete("ConfigMap", "c", "t"),
    "evict": lambda cluster: cluster.create({**CONFIG, "kind": "Pod"}, part="eviction", name="p"),
    "call": lambda cluster: cluster.call("POST", "/api/v1/namespaces/t/pods/p/eviction", body={}),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_kube_mutation_by_a_driver_that_lost_its_lease_is_not_sent(api, cluster, mutation):
    def lost():
        raise LeaseLost("another driver owns it")

    with fence.held(lost), pytest.raises(LeaseLost):
        MUTATIONS[mutation](cluster)
    assert api.asked == []


def test_kube_read_by_a_driver_that_lost_its_lease_is_sent(api, cluster):
    def lost():
        raise LeaseLost("another driver owns it")

    api.will(CONFIG)
    with fence.held(lost):
        assert cluster.get("ConfigMap", "c", "t") == CONFIG


def test_kube_mutation_may_take_what_is_left_of_the_lease_and_no_longer(api, cluster, monkeypatch):
    pool, given = cluster._connection._pool, []
    sent = pool.request

    def request(*words, timeout, **named):
        given.append(timeout.total)
        return sent(*words, timeout=timeout, **named)

    monkeypatch.setattr(pool, "request", request)
    for left in (3.0, 300.0):
        api.will({})
        with fence.held(lambda left=left: left):
            cluster.delete("ConfigMap", "c", "t")
    assert given == [3.0, connection.ANSWER_SECONDS]


def test_kube_patch_carries_the_uid_and_version_it_expects(api, cluster):
    api.will(CONFIG)
    change = {"metadata": {"annotations": {"a": "b"}}}
    cluster.patch("ConfigMap", "c", change, "t", uid="u", version="7")
    assert api.asked[0][3] == {"metadata": {"annotations": {"a": "b"}, "uid": "u", "resourceVersion": "7"}}
    assert change == {"metadata": {"annotations": {"a": "b"}}}
