"""Invalid kubeconfigs and failing login programs: each gives one error message and no other output."""

import base64
import errno
import json
import os
import stat
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.kube_server import KubeServer, kubeconfig
from tpukit.core.errors import Denied, Invalid, NotFound, TpukitError, Transient, Unauthenticated
from tpukit.kube import Cluster, Context, contexts, current_context, kubeconfig_file, signin, transport

SERVER = "http://127.0.0.1:1"
PLUGIN = "gke-gcloud-auth-plugin"
CREDENTIAL = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def plugin(folder: Path, script: str) -> Path:
    file = folder / PLUGIN
    file.write_text(f"#!{sys.executable} -I\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def exec_user(command: str | Path, **more) -> dict:
    return {"exec": {"apiVersion": CREDENTIAL["apiVersion"], "command": str(command), **more}}


CONTENTS = {
    "empty": (b"", Invalid, "empty"),
    "a list": (b"- a\n- b\n", Invalid, "another form"),
    "a word": (b"word", Invalid, "another form"),
    "a number": (b"7", Invalid, "another form"),
    "binary": (bytes(range(256)), Invalid, "not text"),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0", Invalid, "not text"),
    "a control character": (b"a: \x01", Invalid, "not text"),
    "no YAML": (b"a: [1, 2", Invalid, "not YAML"),
    "another document": (b"a: 1", Invalid, "no current context"),
    "no current context": (b"{contexts: [{name: c, context: {}}]}", Invalid, "it has c; `kubectl config use-context"),
    "a context that is not there": (b"current-context: gone", NotFound, "no context gone"),
    "contexts that are no list": (b"{current-context: a, contexts: {a: b}}", Invalid, "another form"),
    "contexts without names": (b"{current-context: a, contexts: [{context: {}}]}", Invalid, "not a kubeconfig"),
    "a context without a cluster": (
        b"{current-context: a, contexts: [{name: a, context: {cluster: c}}]}",
        Invalid,
        "name c in",
    ),
    "a context of nothing": (b"{current-context: a, contexts: [{name: a, context: null}]}", Invalid, "context"),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_kubeconfig_that_is_none_is_said_to_be_none(tmp_path, capfd, case):
    content, error, words = CONTENTS[case]
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    with pytest.raises(error) as raised:
        Cluster(file)
    assert words in str(raised.value)
    assert str(file) in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_kubeconfig_that_is_a_folder_is_said_to_be_one(tmp_path):
    with pytest.raises(Invalid, match="is a folder"):
        Cluster(tmp_path)


def test_kubeconfig_that_is_missing_says_where_to_get_one(tmp_path):
    with pytest.raises(NotFound, match="tpu sandbox up"):
        Cluster(tmp_path / "missing")


def test_kubeconfig_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    file = kubeconfig(tmp_path, SERVER)

    def refusing(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refusing)  # this may run as root, who can open every file
    with pytest.raises(Denied, match=r"kubeconfig cannot be read by you"):
        Cluster(file)


def test_kubeconfig_error_does_not_show_what_it_holds(tmp_path):
    file = kubeconfig(
        tmp_path, SERVER, {"token": "secret", "exec": {}}, clusters=[{"name": "main", "password": "secret"}]
    )
    with pytest.raises(Invalid) as raised:
        Cluster(file)
    assert "secret" not in str(raised.value)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["current-context", "contexts", "clusters", "users", "name", "context", "cluster", "user"]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_kubeconfig_of_any_content_is_read_or_refused(tmp_path, content):
    file = tmp_path / "any"
    file.write_text(json.dumps(content))
    for read in (lambda: Cluster(file), lambda: contexts(file)):
        try:
            read()
        except TpukitError as error:
            assert str(file) in str(error)


BROKEN = {
    "not there": (None, Unauthenticated, "gcloud components install gke-gcloud-auth-plugin"),
    "fails": ("import sys; sys.exit('no credentials')", Unauthenticated, "exit code 1): no credentials"),
    "fails in silence": ("raise SystemExit(3)", Unauthenticated, "exit code 3): it printed no reason"),
    "prints nothing": ("", Invalid, "not an ExecCredential"),
    "prints garbage": ("print('hello')", Invalid, "not an ExecCredential"),
    "prints a list": ("print('[]')", Invalid, "not an ExecCredential"),
    "prints a number as its status": ("print('{\"status\": 7}')", Invalid, "not an ExecCredential"),
    "prints no token": (f"print({json.dumps({**CREDENTIAL, 'status': {}})!r})", Invalid, "neither a token"),
    "prints half a certificate": (
        f"print({json.dumps({**CREDENTIAL, 'status': {'clientCertificateData': 'x'}})!r})",
        Invalid,
        "neither a token",
    ),
    "is of another version": (
        f"print({json.dumps({'apiVersion': 'v9', 'status': {'token': 't'}})!r})",
        Invalid,
        "apiVersion v9 where the kubeconfig says",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_plugin_that_does_not_sign_in_is_named_with_what_to_do(tmp_path, capfd, monkeypatch, case):
    script, error, words = BROKEN[case]
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        plugin(tmp_path, script)
    with pytest.raises(error) as raised:
        Cluster(kubeconfig(tmp_path, SERVER, exec_user(PLUGIN)))
    assert words in str(raised.value)
    assert PLUGIN in str(raised.value)
    assert raised.value.hint or isinstance(raised.value, Invalid)
    assert capfd.readouterr() == ("", "")


def test_plugin_that_never_ends_is_passing_trouble(tmp_path, monkeypatch):
    monkeypatch.setattr(signin, "PLUGIN_SECONDS", 0.3)
    file = plugin(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(Transient, match="did not end within"):
        Cluster(kubeconfig(tmp_path, SERVER, exec_user(file)))


def test_plugin_that_is_missing_is_explained_as_the_kubeconfig_does(tmp_path):
    user = exec_user(tmp_path / "missing", installHint="get it from your cloud\nand more")
    with pytest.raises(Unauthenticated) as raised:
        Cluster(kubeconfig(tmp_path, SERVER, user))
    assert raised.value.hint == "get it from your cloud"


def test_plugin_gives_the_token_that_is_sent(tmp_path):
    status = {"token": "from-the-plugin"}
    file = plugin(tmp_path, f"print({json.dumps({**CREDENTIAL, 'status': status})!r})")
    cluster = Cluster(kubeconfig(tmp_path, SERVER, exec_user(file)))
    assert cluster._connection._credentials() == {"authorization": "Bearer from-the-plugin"}


@pytest.mark.parametrize(
    ("minutes", "again", "outcome"),
    [(60, False, "token-1"), (3, True, "token-2"), (3, False, "token-1"), (-1, True, "token-2"), (-1, False, "")],
    ids=["good", "ends soon", "ends soon and the plugin fails", "ended", "ended and the plugin fails"],
)
def test_token_is_renewed_before_it_ends_and_used_while_it_holds(tmp_path, minutes, again, outcome):
    until = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    tokens = tmp_path / "tokens"
    tokens.write_text("token-1")
    script = (
        f"import json, sys; token = open({str(tokens)!r}).read() or sys.exit('signed out')\n"
        f"status = dict(token=token, expirationTimestamp={until!r})\n"
        f"print(json.dumps(dict({CREDENTIAL!r}, status=status)))"
    )
    file = plugin(tmp_path, script)
    cluster = Cluster(kubeconfig(tmp_path, SERVER, exec_user(file)))
    tokens.write_text("token-2" if again else "")
    if outcome:
        assert cluster._connection._credentials() == {"authorization": f"Bearer {outcome}"}
    else:
        with pytest.raises(Unauthenticated, match="signed out"):
            cluster._connection._credentials()


def test_plugin_that_went_away_is_not_taken_for_an_object_that_is_gone(tmp_path):
    status = {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    file = plugin(tmp_path, f"print({json.dumps({**CREDENTIAL, 'status': status})!r})")
    cluster = Cluster(kubeconfig(tmp_path, SERVER, exec_user(file)))
    file.unlink()
    with pytest.raises(Unauthenticated, match="cannot be started"):
        cluster.delete("JobSet", "j", "team")


def test_full_disk_is_said_and_leaves_no_key_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    secret = base64.b64encode(b"secret").decode()
    cluster = {"server": "https://127.0.0.1:1"}
    user = {"client-certificate-data": secret, "client-key-data": secret}
    file = kubeconfig(tmp_path, "", user, clusters=[{"name": "main", "cluster": cluster}])
    before = set(tmp_path.iterdir())
    opened = os.fdopen

    def full(descriptor, *arguments):
        opened(descriptor, *arguments).close()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(Transient, match=r"disk is full[^!]*TMPDIR"):
        patched.setattr(os, "fdopen", full)
        Cluster(file)
    assert set(tmp_path.iterdir()) == before


def test_certificates_that_are_none_are_refused_and_leave_no_key_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    secret = base64.b64encode(b"secret").decode()
    user = {"client-certificate-data": secret, "client-key-data": secret}
    file = kubeconfig(tmp_path, "", user, clusters=[{"name": "main", "cluster": {"server": "https://127.0.0.1:1"}}])
    before = set(tmp_path.iterdir())
    with pytest.raises(Denied, match=r"certificates of .* cannot be used"):
        Cluster(file)
    assert set(tmp_path.iterdir()) == before


def test_certificate_that_is_no_base64_is_no_kubeconfig(tmp_path):
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": "x"}
    with pytest.raises(Invalid, match="is not a kubeconfig"):
        Cluster(kubeconfig(tmp_path, "", clusters=[{"name": "main", "cluster": cluster}]))


def test_authority_that_is_none_is_refused_with_what_to_do(tmp_path):
    entry = {"server": "https://127.0.0.1:1", "certificate-authority-data": "bm8="}
    with pytest.raises(Denied, match=r"cannot be used.*\n.*tpu cluster credentials"):
        Cluster(kubeconfig(tmp_path, "", clusters=[{"name": "main", "cluster": entry}]))


def test_server_that_speaks_no_tls_is_unreachable(tmp_path):
    server = KubeServer()
    try:
        entry = {"server": server.url.replace("http:", "https:")}
        cluster = Cluster(kubeconfig(tmp_path, "", clusters=[{"name": "main", "cluster": entry}]))
        with pytest.raises(Transient, match="does not respond"):
            cluster.version()
    finally:
        server.close()


def test_files_are_merged_and_the_first_that_names_something_wins(tmp_path, monkeypatch):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    first = kubeconfig(folders[0], "http://one", users=[], contexts=[])
    second = kubeconfig(folders[1], "http://two", {"tokenFile": "token"})
    (folders[1] / "token").write_text("from-two\n")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}:{second}")
    cluster = Cluster()
    assert cluster.server == "http://one"
    assert cluster._connection._credentials() == {"authorization": "Bearer from-two"}
    (folders[1] / "token").write_text("renewed")
    assert cluster._connection._credentials() == {"authorization": "Bearer renewed"}


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://10.0.0.1", {"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://10.0.0.1", {"https_proxy": "http://proxy:3128", "NO_PROXY": "10.0.0.1"}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://proxy:3128"}, ""),
        ("https://10.0.0.1", {}, ""),
    ],
)
def test_proxy_of_the_environment_is_used_unless_it_is_told_not_to(monkeypatch, server, environment, proxy):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert transport.proxy_of(kubeconfig_file.Access(server)) == proxy


def test_contexts_are_listed_with_their_servers_without_asking_anybody(tmp_path, monkeypatch):
    names = {"one": "https://one/", "two": "https://two"}
    file = kubeconfig(
        tmp_path,
        "",
        exec_user("never-run"),
        contexts=[{"name": name, "context": {"cluster": name, "user": "me"}} for name in [*names, "lost"]],
        clusters=[{"name": name, "cluster": {"server": server}} for name, server in names.items()],
    )
    wanted = [Context("one", "https://one"), Context("two", "https://two"), Context("lost", "")]
    assert contexts(file) == wanted
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert contexts() == wanted


def test_current_context_is_that_of_the_kubeconfig_that_is_named_now(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, SERVER)))
    assert current_context() == "main"
    (tmp_path / "kubeconfig").write_text("[]")
    with pytest.raises(Invalid, match="is not a kubeconfig"):
        current_context()


def test_context_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    with pytest.raises(NotFound, match=r"no context other\n  it has main"):
        Cluster(kubeconfig(tmp_path, SERVER), context="other")
