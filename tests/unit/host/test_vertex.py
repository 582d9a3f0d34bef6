"""The Vertex AI adapter against a local TensorBoard service that refuses what the real one refuses."""

import json
import math
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.host.scalars import Scalars
from tpukit.host.tensorboard import main
from tpukit.host.tensorboard_events import Scalar
from tpukit.host.vertex import POINTS_PER_WRITE, Vertex, identifier

BOARD = "projects/p/locations/us-central1/tensorboards/1"
ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")


class Service:
    """Experiments, runs and time series by name; points by series and step."""

    def __init__(self) -> None:
        self.resources = {BOARD: {}}
        self.points: dict[str, dict[int, object]] = {}
        self.writes: list[int] = []
        self.broken = 0  # calls that still fail

    def create(self, parent: str, collection: str, query: dict[str, list[str]], body: dict[str, str]) -> int:
        kind = {"experiments": "Experiment", "runs": "Run", "timeSeries": "TimeSeries"}[collection]
        [given] = query[f"tensorboard{kind}Id"]
        name = f"{parent}/{collection}/{given}"
        siblings = [other for other in self.resources if other.rpartition("/")[0] == f"{parent}/{collection}"]
        if parent not in self.resources:
            return 404
        if not ID.fullmatch(given) or not body.get("displayName"):
            return 400
        if name in self.resources or any(self.resources[s]["displayName"] == body["displayName"] for s in siblings):
            return 409
        if collection == "timeSeries" and body.get("valueType") != "SCALAR":
            return 400
        self.resources[name] = body
        return 200

    def write(self, experiment: str, body: dict[str, list[dict]]) -> int:
        if experiment not in self.resources:
            return 404
        for request in body["writeRunDataRequests"]:
            run = request["tensorboardRun"]
            count = sum(len(series["values"]) for series in request["timeSeriesData"])
            if count > 5000:
                return 400
            for series in request["timeSeriesData"]:
                name = f"{run}/timeSeries/{series['tensorboardTimeSeriesId']}"
                if name not in self.resources or series["valueType"] != self.resources[name]["valueType"]:
                    return 404
                for point in series["values"]:
                    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", point["wallTime"]):
                        return 400
                    self.points.setdefault(name, {})[int(point["step"])] = point["scalar"]["value"]
            self.writes.append(count)
        return 200

    def answer(self, target: str, body: dict) -> int:
        if self.broken:
            self.broken -= 1
            return 503
        path = urlsplit(target).path.removeprefix("/v1/")
        if path.endswith(":write"):
            return self.write(path.removesuffix(":write"), body)
        parent, _, collection = path.rpartition("/")
        return self.create(parent, collection, parse_qs(urlsplit(target).query), body)


@pytest.fixture
def service():
    state = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            assert "Authorization" not in self.headers, "a token must not travel in the clear"
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])), parse_constant=pytest.fail)
            code = state.answer(self.path, body)
            answer = json.dumps({} if code == 200 else {"error": {"message": f"because {code}"}}).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.endpoint = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def points(steps, tag="loss", value=1.0):
    return [Scalar(tag, step, 1_700_000_000.25, value) for step in steps]


def test_push_makes_what_is_missing_and_writes(service):
    Vertex(BOARD, "pretrain", endpoint=service.endpoint).push(
        "train", points([1, 2]) + points([1], tag="mfu", value=0.5)
    )
    assert service.points == {
        f"{BOARD}/experiments/pretrain/runs/train/timeSeries/loss": {1: 1.0, 2: 1.0},
        f"{BOARD}/experiments/pretrain/runs/train/timeSeries/mfu": {1: 0.5},
    }


def test_push_again_by_a_restarted_uploader_changes_nothing(service):
    for _ in range(2):
        Vertex(BOARD, "pretrain", endpoint=service.endpoint).push("train", points(range(10)))
    [series] = service.points.values()
    assert sorted(series) == list(range(10))
    assert len(service.resources) == 4


def test_push_more_than_one_request_may_carry_is_split(service):
    Vertex(BOARD, "e", endpoint=service.endpoint).push("train", points(range(POINTS_PER_WRITE + 1)))
    assert service.writes == [POINTS_PER_WRITE, 1]


def test_push_names_the_service_refuses_as_ids_keep_their_own_series(service):
    tags = ["Loss/Train", "loss/train", "损失", "a" * 200, "_", "-x"]
    Vertex(BOARD, "Exp 1", endpoint=service.endpoint).push("Run/1", [p for tag in tags for p in points([1], tag=tag)])
    assert len(service.points) == len(tags)
    assert {body["displayName"] for body in service.resources.values() if "valueType" in body} == set(tags)


@pytest.mark.parametrize(("value", "sent"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_push_loss_that_is_no_number_is_sent_as_protobuf_writes_it(service, value, sent):
    Vertex(BOARD, "e", endpoint=service.endpoint).push("train", points([1], value=value))
    [series] = service.points.values()
    assert series == {1: sent}


def test_main_service_down_for_a_while_loses_and_doubles_nothing(service, tmp_path):
    scalars = Scalars(str(tmp_path / "train"))
    for step in range(3):
        scalars.write(step, loss=float(step))
    scalars.close()
    options = ["--logdir", str(tmp_path), "--tensorboard", BOARD, "--experiment", "e", "--endpoint", service.endpoint]
    service.broken = 1
    assert main([*options, "--once"]) == 1
    assert main([*options, "--once"]) == 0
    [series] = service.points.values()
    assert series == {0: 0.0, 1: 1.0, 2: 2.0}


def test_main_refusal_is_said_in_the_services_words(service, tmp_path, caplog):
    scalars = Scalars(str(tmp_path / "train"))
    scalars.write(1, loss=1.0)
    scalars.close()
    board = BOARD.replace("boards/1", "boards/2")
    options = ["--logdir", str(tmp_path), "--tensorboard", board, "--experiment", "e", "--endpoint", service.endpoint]
    assert main([*options, "--once"]) == 1
    assert "because 404" in caplog.text


def test_vertex_name_that_is_no_tensorboard_is_refused():
    with pytest.raises(ValueError, match="projects/PROJECT"):
        Vertex("tensorboards/1", "e")


@given(st.text(min_size=1), st.text(min_size=1))
def test_identifier_is_always_one_and_differs_when_names_do(one, other):
    assert ID.fullmatch(identifier(one))
    assert (identifier(one) == identifier(other)) == (one == other)
