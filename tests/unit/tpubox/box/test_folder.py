"""Files of a sandbox: names, ports, tokens, certificates. Nothing is started here."""

import csv
import json
import socket
import ssl
import stat
import threading

import pytest

from tpubox.box import certificates, folder
from tpukit.core import paths
from tpukit.core.errors import Invalid, NotFound


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))


def made(name="box", **kwargs):
    with folder.locked(name):
        return folder.prepare(name, **kwargs)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a" * 33, "a b", "a\n"])
def test_name_that_is_no_folder_name_is_refused(name):
    with pytest.raises(Invalid, match="not a name for a sandbox"):
        folder.find(name)


def test_sandbox_that_is_not_there_names_those_that_are():
    made("first")
    with pytest.raises(NotFound, match="there are first"):
        folder.find("second")


def test_first_sandbox_that_is_not_there_says_how_to_make_one():
    with pytest.raises(NotFound, match="tpu sandbox up"):
        folder.find("default")


def test_prepare_twice_keeps_ports_tokens_and_certificates():
    def files(place):
        return {file: file.read_bytes() for file in place.path.rglob("*") if file.is_file()}

    first = made()
    before = files(first)
    assert files(made()) == before
    assert {"token", "kubeconfig", "sandbox.json"} <= {file.name for file in before}


def test_everything_is_for_its_owner_alone():
    for file in [made().path, *made().path.rglob("*")]:
        assert not stat.S_IMODE(file.stat().st_mode) & 0o077, file


def test_every_door_has_a_port_of_its_own_and_no_two_sandboxes_share_one():
    ports = [port for name in ("one", "two", "three") for port in made(name).ports.values()]
    assert len(ports) == len(set(ports)) == 3 * len(folder.DOORS)
    assert set(ports) <= set(range(20000, 32000))


def test_port_that_somebody_took_is_changed_unless_its_component_holds_it():
    first = made()
    with socket.socket() as thief, socket.socket() as own:
        thief.bind(("127.0.0.1", first.ports["jobset"]))
        own.bind(("127.0.0.1", first.ports["etcd"]))
        second = made(running=frozenset({"etcd"}))
    changed = {door for door in folder.DOORS if first.ports[door] != second.ports[door]}
    assert changed == {"jobset"}
    assert folder.find("box").ports == second.ports


def test_tokens_are_all_different_and_only_one_is_the_administrators():
    place = made()
    rows = list(csv.reader((place.path / "config" / "tokens.csv").read_text().splitlines()))
    assert len({token for token, *_ in rows}) == len(rows) == 1 + len(folder.IDENTITIES)
    assert [token for token, _, _, groups in rows if "system:masters" in groups] == [place.token]
    for component in folder.IDENTITIES:
        user = json.loads(place.identity(component).read_bytes())["users"][0]["user"]
        assert user["token"] in {token for token, *_ in rows[1:]}


def test_lock_on_a_folder_that_was_removed_is_taken_anew():
    order, waiting = [], threading.Event()

    def second():
        waiting.set()
        with folder.locked("box") as path:
            order.append("second")
            assert path.is_dir()
            assert list(path.iterdir()) == []

    with folder.locked("box") as path:
        thread = threading.Thread(target=second)
        thread.start()
        waiting.wait()
        (path / "file").touch()
        (path / "file").unlink()
        order.append("first")
        path.rmdir()
    thread.join()
    assert order == ["first", "second"]


def test_certificate_is_trusted_by_its_own_authority_and_by_no_other(tmp_path):
    one, other = certificates.pair(tmp_path / "one", ["hook.system.svc"]), certificates.pair(tmp_path / "other")
    assert _connects(one, one / "ca.crt", "127.0.0.1") == "ok"
    assert _connects(one, one / "ca.crt", "hook.system.svc") == "ok"
    assert "mismatch" in _connects(one, one / "ca.crt", "elsewhere.svc")
    assert "verify failed" in _connects(one, other / "ca.crt", "127.0.0.1")


def _connects(server, authority, name):
    """Run a TLS handshake in memory, and return OpenSSL's result."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(server / "tls.crt", server / "tls.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = ssl.create_default_context(cafile=str(authority))
    sides = [
        theirs.wrap_bio(to_client, to_server, server_hostname=name),
        ours.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return str(error)
    return "ok"


def test_folders_are_below_the_data_folder():
    assert made().path == paths.data() / "sandbox" / "box"


def test_authority_has_an_rsa_key_only_where_kueue_asks_for_one():
    place = made()
    keys = {name: (place.certificates(name) / "ca.key").read_text() for name in ("cluster", "etcd", "downloads")}
    assert all(key.startswith("-----BEGIN EC PRIVATE KEY") for key in keys.values())
    assert (place.certificates("webhooks") / "ca.key").read_text().startswith("-----BEGIN RSA PRIVATE KEY")
