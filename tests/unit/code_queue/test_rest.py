"""The REST front end for programs in other languages; nothing is shown without a token."""

from __future__ import annotations

import datetime
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from support.waiting import PATIENCE
from tpukit.code_queue import claims, rest_server
from tpukit.code_queue.access import Access, own_token, read_token
from tpukit.code_queue.client import Client
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import TPU_JOBS, QueuedJob
from tpukit.code_queue.rest_document import openapi
from tpukit.core.errors import Denied, Invalid, Transient, Unauthenticated
from tpukit.google.identity import KEYS_SECONDS, IdentityTokens
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Holder
from tpukit.kernel.store.sqlite import SqliteStore

TOKEN = "a-token-of-this-test"
AUDIENCE = "https://queue.example.com"


class Front:
    """A front end on a port, and a client."""

    def __init__(self, folder):
        self.store = SqliteStore(folder / "store.db")
        self.results = folder / "results"
        self.client = Client(self.store)
        self._server = rest_server.start(self.client, Access(TOKEN), str(self.results), port=0, bind="127.0.0.1")

    def ask(self, method, path, body=None, token=TOKEN, raw=None):
        """Return the status and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, raw if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        is_json = answer.headers.get("Content-Type") == "application/json"
        return answer.status, json.loads(text) if is_json and text else text

    def finish(self, key, result, uri=""):
        claim = claims.take_one(self.store, Holder("w"), self.store.get(TPU_JOBS, key))
        claims.finish(self.store, claim, Outcome(Reason.DONE, result, uri))

    def close(self):
        self._server.stop()
        self.store.close()


@pytest.fixture
def front(tmp_path) -> Iterator[Front]:
    made = Front(tmp_path)
    yield made
    made.close()


def test_job_sent_over_http_is_listed_shown_completed_and_its_result_read(front):
    status, sent = front.ask("POST", "/v1/jobs", {"code": "result = 6 * 7", "metadata": {"team": "a"}, "priority": 2})
    assert (status, sent["status"], sent["metadata"]["team"], sent["priority"]) == (201, "pending", "a", 2)
    key = sent["id"]
    assert front.client.get(key).code == "result = 6 * 7"
    assert front.ask("GET", f"/v1/jobs/{key}/result")[0] == 409
    front.finish(key, "42")
    assert front.ask("GET", f"/v1/jobs/{key}/result") == (200, "42")
    status, listed = front.ask("GET", "/v1/jobs?status=completed&limit=5")
    assert (status, [job["id"] for job in listed["jobs"]], listed["more"]) == (200, [key], False)
    assert front.ask("GET", f"/v1/jobs/{key}")[1]["status"] == "completed"
    assert front.ask("POST", f"/v1/jobs/{key}/retry")[1]["status"] == "pending"
    assert front.ask("POST", f"/v1/jobs/{key}/retry")[0] == 409
    assert front.ask("POST", f"/v1/jobs/{key}/cancel")[1]["status"] == "cancelled"


def test_job_sent_twice_under_one_unique_key_is_one_job(front):
    sent = [front.ask("POST", "/v1/jobs", {"code": "x", "unique": "a"})[1]["id"] for _ in range(2)]
    assert len(set(sent)) == 1
    assert len(front.ask("GET", "/v1/jobs")[1]["jobs"]) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "code"),
        ({"code": "  "}, "code"),
        ({"code": "x", "timeout": 0}, "timeout"),
        ({"code": "x", "colour": 1}, "colour"),
        ({"code": "x", "metadata": {"a": "b" * 70_000}}, "metadata"),
        ({"code": "x" * 1_000_000}, "900,000 bytes"),
    ],
)
def test_job_that_can_never_run_is_refused_with_the_field_that_is_wrong(front, body, said):
    status, answer = front.ask("POST", "/v1/jobs", body)
    assert status == 400
    assert said in answer["error"]
    assert front.client.list() == []


def test_body_that_is_no_json_or_too_large_is_refused(front):
    assert front.ask("POST", "/v1/jobs", raw=b"\xff{")[0] == 400
    assert front.ask("POST", "/v1/jobs", raw=b"[" * 100_000)[0] == 400
    assert front.ask("POST", "/v1/jobs", raw=b" " * (7 * 2**20))[0] == 413


@pytest.mark.parametrize("query", ["limit=0", "limit=many", "limit=100000", "status=lost", "stauts=failed"])
def test_list_refuses_what_it_cannot_answer(front, query):
    assert front.ask("GET", f"/v1/jobs?{query}")[0] == 400


def test_nothing_is_readable_without_the_token_but_whether_it_is_alive(front):
    key = front.client.submit("result = 1")
    paths = [path.replace("{job_id}", key) for path in openapi()["paths"]]
    for path in [*paths, "/", "/docs", f"/v1/jobs/{key}/", "//healthz", "/healthz/../v1/jobs", "/v1//jobs"]:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
            for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x"):
                status, text = front.ask(method, path, token=token)
                if path in ("/healthz", "/readyz"):
                    assert status == 200 or method not in ("GET", "HEAD"), path
                else:
                    assert status == 401, (method, path)
                    assert key not in str(text)
    assert front.client.get(key).status == "pending"


def test_large_result_is_read_from_where_workers_wrote_it_and_nowhere_else(front, tmp_path):
    key = front.client.submit("result = 1")
    path = front.results / key / "1.txt"
    path.parent.mkdir(parents=True)
    path.write_text("all of it")
    front.finish(key, "all", str(path))
    assert front.ask("GET", f"/v1/jobs/{key}/result") == (200, "all of it")
    path.unlink()
    assert front.ask("GET", f"/v1/jobs/{key}/result")[0] == 404
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    for uri in (str(secret), f"{front.results}/../secret", "gs://somebody/else", "/etc/passwd"):
        front.store.create(TPU_JOBS, uri.replace("/", "-"), QueuedJob(status="completed", result="x", result_uri=uri))
        status, text = front.ask("GET", f"/v1/jobs/{uri.replace('/', '-')}/result")
        assert (status, "hidden" in str(text)) == (409, False)


def test_store_that_is_away_is_said_to_be_and_the_process_is_alive(tmp_path):
    class Away(SqliteStore):
        def _gone(self, *_, **__):
            raise Transient("the store is unreachable", retry_after=7)

        get = list = lease = _gone

    client = Client(Away(tmp_path / "store.db"))
    server = rest_server.start(client, Access(TOKEN), str(tmp_path), port=0, bind="127.0.0.1")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    said = {}
    for path in ("/healthz", "/readyz", "/v1/jobs", "/v1/jobs/a"):
        connection.request("GET", path, headers={"Authorization": f"bearer {TOKEN}"})
        answer = connection.getresponse()
        answer.read()
        said[path] = (answer.status, answer.headers.get("Retry-After"))
    connection.close()
    server.stop()
    client.close()
    assert said == {"/healthz": (200, None), "/readyz": (503, None), "/v1/jobs": (503, "7"), "/v1/jobs/a": (503, "7")}


def test_own_token_of_many_who_start_at_once_is_one(tmp_path):
    for number in range(20):
        path = tmp_path / str(number) / "token"
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(own_token, [path] * 8))) == 1
        assert [one.name for one in path.parent.iterdir()] == ["token"]


def test_own_token_is_made_once_and_readable_by_its_user_alone(tmp_path):
    path = tmp_path / "queue" / "token"
    assert own_token(path) == own_token(path) == read_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("short")
    with pytest.raises(Invalid, match="no token"):
        read_token(path)
    with pytest.raises(Invalid, match="no caller could use the queue"):
        Access()


class Google:
    """An issuer of identity tokens that serves its key's certificate as Google does."""

    def __init__(self):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import rsa
        from google.auth import crypt

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "google")])
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        made = made.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=2))
        certificate = made.sign(key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        self._signer = crypt.RSASigner.from_string(private, "key-1")
        self._certificate = certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.asked = 0
        self.now = now.timestamp()

    def __call__(self, url, method="GET", **_):
        self.asked += 1
        data = json.dumps({"key-1": self._certificate}).encode()
        return SimpleNamespace(status=200, data=data, headers={"content-type": "application/json"})

    def token(self, **changes):
        from google.auth import jwt

        claims = {"iss": "https://accounts.google.com", "aud": AUDIENCE, "email": "ada@example.com"}
        claims |= {"email_verified": True, "iat": int(self.now) - 5, "exp": int(self.now) + 3600, **changes}
        return jwt.encode(self._signer, claims).decode()


def test_identity_token_of_google_lets_named_accounts_in_and_no_others():
    google, clock = Google(), SimpleNamespace(now=0.0)
    tokens = IdentityTokens(AUDIENCE, google, lambda: clock.now)
    access = Access(emails=["ada@example.com"], verify=tokens.email, now=lambda: clock.now)
    good = google.token()
    assert access.check(f"Bearer {good}") == "ada@example.com"
    clock.now += 30.0
    assert access.check(f"Bearer {good}") == "ada@example.com"
    with pytest.raises(Denied, match=r"bob@example\.com may not"):
        access.check(f"Bearer {google.token(email='bob@example.com')}")
    wrong = [
        google.token(aud="https://other.example.com"),
        google.token(iss="https://accounts.example.com"),
        google.token(email_verified=False),
        google.token(exp=int(google.now) - 3600, iat=int(google.now) - 7200),
        Google().token(),  # signed with another key
        good[:-4],
        "..",
        "a.b.c",
        "é",
    ]
    for one in wrong:
        with pytest.raises(Unauthenticated):
            access.check(f"Bearer {one}")
    assert google.asked == 1
    clock.now += KEYS_SECONDS
    access.check(f"Bearer {good}")
    assert google.asked == 2


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", TOKEN, f"Token {TOKEN}", "Bearer \udcff"])
def test_header_without_the_token_is_refused(header):
    with pytest.raises(Unauthenticated):
        Access(TOKEN).check(header)
