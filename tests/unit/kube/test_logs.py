"""Logs of pods: their start, their end, and lines of unlimited length."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.kube_server import KubeServer, kubeconfig
from tpukit.core.errors import Transient
from tpukit.kube import Cluster, answers

STAMP = "2026-11-15T10:00:00.123456789Z "


@pytest.fixture
def server():
    server = KubeServer()
    yield server
    server.close()


@pytest.fixture
def cluster(server, tmp_path):
    return Cluster(kubeconfig(tmp_path, server.url))


class Chunks:
    """A urllib3 response that streams these chunks."""

    def __init__(self, chunks):
        self.chunks = chunks

    def stream(self, *, decode_content):
        assert decode_content
        yield from self.chunks


def test_logs_are_asked_for_from_a_time_and_up_to_a_size(server, cluster):
    server.log = [b"a\nb\n"]
    lines = cluster.logs("p", "team", container="host", since="2026-11-15T10:00:00Z", limit_bytes=100, tail=5)
    assert list(lines) == ["a", "b"]
    assert server.asked == [
        (
            "/api/v1/namespaces/team/pods/p/log",
            {
                "follow": "false",
                "previous": "false",
                "timestamps": "false",
                "container": "host",
                "tailLines": "5",
                "sinceTime": "2026-11-15T10:00:00Z",
                "limitBytes": "100",
            },
        )
    ]


@pytest.mark.parametrize("follow", [False, True])
def test_logs_that_are_cut_are_told_from_those_that_end(server, cluster, follow):
    server.log = [b"a\n", b"b\nha"]
    assert list(cluster.logs("p", "team", follow=follow)) == ["a", "b", "ha"]
    server.log_is_cut = True
    lines = cluster.logs("p", "team", follow=follow)
    assert [next(lines), next(lines)] == ["a", "b"]
    with pytest.raises(Transient):
        next(lines)


def test_logs_of_a_server_that_hangs_end_after_the_seconds(server, cluster):
    server.hanging.set()
    with pytest.raises(Transient, match="does not respond"):
        list(cluster.logs("p", "team", seconds=0.2))


@given(
    st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=6),
    st.lists(st.integers(0, 60)),
)
def test_lines_come_as_they_were_however_they_are_cut_on_the_way(lines, cuts):
    sent = "".join(f"{line}\n" for line in lines).encode()
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    chunks = [sent[first:last] for first, last in itertools.pairwise(places)]
    assert list(answers.log_lines(Chunks(chunks), timestamps=False)) == lines
    assert [line.decode() for line in answers.lines(Chunks(chunks))] == lines


@pytest.mark.parametrize("size", [100, 1 << 16, 1 << 20])
@pytest.mark.parametrize("stamp", ["", STAMP])
def test_line_that_is_too_long_comes_in_pieces_that_carry_its_time(stamp, size):
    text = "".join(map(str, range(40_000)))
    sent = f"{stamp}{text}\n{stamp}next\n".encode()
    chunks = [sent[first : first + size] for first in range(0, len(sent), size)]
    *pieces, last = answers.log_lines(Chunks(chunks), timestamps=bool(stamp))
    assert last == f"{stamp}next"
    assert all(piece.startswith(stamp) and len(piece) <= answers.LINE_BYTES for piece in pieces)
    assert "".join(piece.removeprefix(stamp) for piece in pieces) == text


def test_letters_are_not_torn_where_a_line_is_cut():
    text = "é×漢😀" * 20_000
    assert "".join(answers.log_lines(Chunks([text.encode()]), timestamps=False)) == text


def test_line_without_end_takes_no_more_memory_than_a_piece():
    chunk = b"x" * 5000
    tracemalloc.start()
    count = sum(len(piece) for piece in answers.log_lines(Chunks(chunk for _ in range(4000)), timestamps=False))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000_000
    assert most < 1 << 20
