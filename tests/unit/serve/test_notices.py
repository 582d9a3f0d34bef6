"""Notices: which are due, that each is delivered once and tried again, and that no secret gets into records."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tpukit.cli import notify
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, Invalid, TpukitError, Transient
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Attempt, Job, Marks
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.serve.notices import delivery, rules, sending
from tpukit.serve.notices.decide import Idle, Notice, due
from tpukit.serve.notices.delivery import Notices
from tpukit.serve.notices.rules import Rule

NOW = 1_800_000_000.0
HOUR = 3600.0
SECRET = "https://hooks.example/T0/SECRET"
EVIL = "<!channel> <https://evil|x>\r\nBcc: all@example.com\x1b[31m\u202e"


def job(name: str, state: State = State.FAILED, **fields: Any) -> Job:
    ended = {"ended": NOW - 60} if state.ended else {}
    known = {"created": NOW - 9 * HOUR, "plan": {}, "state": state, **ended}
    return Job(name, "gke", "research", "ada", **{**known, **fields})


def keys(rule: Rule, *jobs: Job, idle: tuple[Idle, ...] = (), since: float = 0.0) -> list[str]:
    return [one.key for one in due([rule], jobs, idle, NOW, since)]


def test_ends_are_told_by_state_team_and_owner_and_old_ones_are_no_news():
    rule = Rule("r", ended=("failed",))
    assert keys(rule, job("a"), job("b", State.COMPLETED), job("c", State.RUNNING)) == ["r.a.ended.1799999940"]
    assert keys(rule, job("a", ended=NOW - 90_000)) == []
    assert keys(rule, job("a"), since=NOW) == []  # it ended before the rules were first read
    assert keys(Rule("r", teams=("other",), ended=("failed",)), job("a")) == []
    assert keys(Rule("r", owners=("ada",), ended=("failed",)), job("a")) != []


def test_wait_is_told_once_for_each_attempt_and_not_while_slices_exist():
    rule = Rule("r", waits=2 * HOUR)
    assert keys(rule, job("a", State.PENDING)) == ["r.a.waits.0"]
    again = Attempt(3, 1, 0, marks=Marks(since=NOW - HOUR))
    assert keys(rule, job("a", State.SCHEDULED, attempts=(again,))) == []
    again = Attempt(3, 1, 0, marks=Marks(since=NOW - 3 * HOUR))
    assert keys(rule, job("a", State.SCHEDULED, attempts=(again,))) == ["r.a.waits.3"]
    starts = Attempt(3, 1, 0, marks=Marks(since=NOW - 3 * HOUR, placed=NOW - 60))
    assert keys(rule, job("a", State.SCHEDULED, attempts=(starts,))) == []


def test_slices_without_a_step_or_without_a_job_are_idle():
    rule = Rule("r", idle=HOUR)
    slow = Marks(since=NOW - 3 * HOUR, placed=NOW - 2 * HOUR, announced=NOW - HOUR)
    assert keys(rule, job("a", State.RUNNING, attempts=(Attempt(0, 0, 0, marks=slow),))) == ["r.a.idle.0"]
    steps = Marks(since=NOW - 3 * HOUR, placed=NOW - 2 * HOUR, announced=NOW - HOUR, stepped=NOW - 60)
    assert keys(rule, job("a", State.RUNNING, attempts=(Attempt(0, 0, 0, marks=steps),))) == []
    silent = Marks(since=NOW - 3 * HOUR, placed=NOW - 2 * HOUR)  # a program that prints no steps is not idle
    assert keys(rule, job("a", State.RUNNING, attempts=(Attempt(0, 0, 0, marks=silent),))) == []
    free = Idle("v4-8-1", "ada", NOW - 2 * HOUR, 12.0)
    (notice,) = due([rule], [], [free], NOW, 0.0)
    assert "24.00 USD so far" in notice.text
    assert keys(Rule("r", idle=HOUR, owners=("grace",)), idle=(free,)) == []


@given(
    st.sampled_from(list(State)),
    st.floats(0, 2e9),
    st.floats(0, 2e9),
    st.sampled_from(["", "waiting: a", EVIL]),
    st.booleans(),
)
def test_any_record_gives_distinct_keys_and_never_the_address(state, created, at, message, placed):
    attempt = Attempt(0, 0, 0, marks=Marks(since=at, placed=at if placed else 0.0, announced=at))
    one = job("a", state, created=created, message=message, attempts=(attempt,), ended=at if state.ended else 0.0)
    rule = Rule("r", SECRET, ended=rules.ENDS, waits=1.0, idle=1.0)
    found = due([rule], [one], [Idle("v", "", at, None)], NOW, 0.0)
    assert len({notice.key for notice in found}) == len(found)
    assert SECRET not in repr((rule, found))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    one = SqliteStore(tmp_path / "store.sqlite")
    yield one
    one.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "notices.yaml"
    made.touch(mode=0o600)
    made.write_text(f"- name: all\n  webhook: {SECRET}\n  ended: [failed]\n")
    return made


class Post:
    """A channel that fails as ordered."""

    def __init__(self, *errors: TpukitError) -> None:
        self.errors, self.sent = list(errors), []  # type: ignore[var-annotated]

    def __call__(self, rule: Rule, notice: Notice) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(notice.key)


def test_notice_is_delivered_once_by_two_processes_and_tried_again_later(store, file):
    clock, post, said = ManualClock(NOW - HOUR), Post(Transient("the webhook returned 503")), []
    both = [Notices(store, clock, file, say=said.append, send=post) for _ in range(2)]
    for one in both:
        one.round()
    store.create(JOBS, "a", job("a"))
    clock.sleep(HOUR)
    for one in both * 2:
        one.round()
    assert post.sent == []  # the first try failed, and the next is later
    assert said == ["notice of rule all was not sent: the webhook returned 503; trying again"]
    clock.sleep(delivery.FIRST_PAUSE)
    for one in both * 2:
        one.round()
    assert len(post.sent) == 1
    assert SECRET not in repr(store.list(delivery.DELIVERIES))


def test_end_of_an_old_job_is_seen_among_many_newer_ones_without_reading_all_again(store, file, monkeypatch):
    clock, post = ManualClock(NOW - HOUR), Post()
    notices = Notices(store, clock, file, send=post)
    store.create(JOBS, "old", job("old", State.RUNNING, created=NOW - 99 * HOUR))
    for number in range(delivery.NEWEST + 5):
        store.create(JOBS, f"new-{number}", job(f"new-{number}", State.COMPLETED))
    notices.round()
    monkeypatch.setattr(delivery.budgets, "recent", lambda *_: pytest.fail("all records were read again"))
    store.put(JOBS, store.get(JOBS, "old"), job("old"))
    clock.sleep(HOUR)
    for _ in range(2):
        notices.round()
    assert post.sent == ["all.old.ended.1799999940"]


def test_notice_that_a_process_left_half_sent_comes_after_a_while(store, file):
    clock = ManualClock(NOW - HOUR)

    class Dies(BaseException):
        pass

    def dies(rule: Rule, notice: Notice) -> None:
        raise Dies

    Notices(store, clock, file, send=dies).round()
    store.create(JOBS, "a", job("a"))
    clock.sleep(HOUR)
    with pytest.raises(Dies):
        Notices(store, clock, file, send=dies).round()
    post = Post()
    Notices(store, clock, file, send=post).round()
    assert post.sent == []
    clock.sleep(delivery.STALE_SECONDS)
    Notices(store, clock, file, send=post).round()
    assert len(post.sent) == 1


def test_refused_notice_is_given_up_and_an_unreachable_one_after_some_tries(store, file):
    for name, error, tries in (("a", Denied("no"), 1), ("b", Transient("no"), delivery.TRIES_MOST)):
        clock, failures = ManualClock(NOW - HOUR), [error] * 50
        post = Post(*failures)
        notices = Notices(store, clock, file, send=post)
        notices.round()
        store.create(JOBS, name, job(name))
        clock.sleep(HOUR)
        for _ in range(30):
            notices.round()
            clock.sleep(HOUR)
        assert len(post.errors) == 50 - tries


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- name: a\n  ended: [failed]\n", "either a webhook or a command"),
        ("- name: a\n  webhook: http://hooks.example/x\n  ended: [failed]\n", "not an https address"),
        ("- name: a\n  webhook: 'file:///etc/passwd'\n  ended: [failed]\n", "not an https address"),
        ("- name: a\n  webhook: https://h/x\n  ended: [exploded]\n", "there is no 'exploded'"),
        ("- name: a\n  webhook: https://h/x\n", "never send a notice"),
        ("- name: a\n  command: mail\n  waits: 2h\n", "not a list of texts"),
        ("- name: a\n  command: [mail]\n  waits: soon\n", "not a duration"),
        ("- name: A b\n  command: [mail]\n  waits: 2h\n", "not a name"),
        ("- name: a\n  command: [mail]\n  waits: 2h\n  too: x\n", "no field 'too'"),
        ("- {name: a, command: [x], waits: 2h}\n- {name: a, command: [x], waits: 2h}\n", "two rules are named a"),
        ("name: a\n", "not a list of rules"),
        ("- [\n", "not YAML"),
    ],
)
def test_wrong_rules_are_refused_with_a_correction_and_without_their_text(file, text, said):
    file.write_text(text.replace("https://h/x", SECRET))
    with pytest.raises(Invalid, match=said) as error:
        rules.read(file)
    assert SECRET not in str(error.value)


def test_file_that_others_may_read_is_refused(file):
    file.chmod(0o640)
    with pytest.raises(Denied, match="may be read by other users"):
        rules.read(file)
    assert rules.read(file.with_name("none.yaml")) == []


class Hook(http.server.BaseHTTPRequestHandler):
    """A webhook that answers as ordered."""

    answers: ClassVar[list[int]] = []
    got: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.got.append(self.rfile.read(int(self.headers["content-length"])))
        code = self.answers.pop(0)
        self.send_response(code)
        if code == 302:
            self.send_header("location", "http://localhost:1/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.answers, Hook.got = [], []
    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/T0/SECRET"
        server.shutdown()


def test_webhook_gets_text_without_markup_and_errors_hide_its_address(hook):
    rule, notice = Rule("r", hook), Notice("k", "r", EVIL, EVIL)
    Hook.answers = [200, 404, 500, 302]
    sending.send(rule, notice)
    text = json.loads(Hook.got[0])["text"]
    assert "&lt;!channel&gt;" in text
    assert not any(char in text for char in "<>\x1b\r\u202e")
    for error in (Denied, Transient, Denied):  # a redirect is not followed
        with pytest.raises(error) as caught:
            sending.send(rule, notice)
        assert "SECRET" not in str(caught.value)
    assert len(Hook.got) == 4
    with pytest.raises(Transient, match="unreachable"):
        sending.send(Rule("r", "http://127.0.0.1:9/SECRET"), notice)


def test_command_gets_the_text_on_stdin_and_one_line_as_subject(tmp_path):
    out = tmp_path / "out"
    program = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]) + sys.stdin.read())"
    command = (sys.executable, "-c", program, str(out), "{subject}")
    sending.send(Rule("r", command=command), Notice("k", "r", f"$(id) {EVIL}", "what\x1b happened"))
    said = out.read_text()
    assert said.startswith("['$(id) <!channel>")  # no shell reads it
    assert "\\r" not in said and "\\n" not in said
    assert said.endswith("what  happened\n")
    for words, error in (((sys.executable, "-c", "exit(3)"), Transient), (("/nowhere/mail",), Denied)):
        with pytest.raises(error):
            sending.send(Rule("r", command=words), Notice("k", "r", "s", "t"))


def test_command_shows_rules_without_addresses_and_sends_a_test(file, hook, monkeypatch):
    monkeypatch.setattr(notify, "file", lambda: file)
    run = CliRunner().invoke
    assert run(notify.command, []).stdout == "all  webhook  all  ended: failed\n"
    file.write_text(f"- name: all\n  webhook: {hook}\n  ended: [failed]\n")
    Hook.answers = [200]
    assert "sent by rule all" in run(notify.command, ["--test", "all"]).stderr
    assert b"test of the notices" in Hook.got[0]
    assert "there is no rule other" in str(run(notify.command, ["--test", "other"]).exception)
