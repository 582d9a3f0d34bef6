"""`tpu sandbox shell CMD` passes the options of CMD on."""

import pytest

from tpukit.cli import sandbox


@pytest.mark.parametrize(
    "words",
    [("kubectl", "--help"), ("kubectl", "get", "--name", "x"), ("tpu", "run", "-n", "3"), ("gcloud", "--", "--help")],
    ids=" ".join,
)
def test_shell_options_behind_the_first_word_are_those_of_the_command(words):
    given = sandbox.shell.make_context("shell", [*words]).params
    assert tuple(given["words"]) == words
    assert given["name"] == sandbox.shell.make_context("shell", []).params["name"]


def test_shell_options_before_the_first_word_are_its_own():
    given = sandbox.shell.make_context("shell", ["--name", "other", "kubectl", "get", "pods"]).params
    assert (given["name"], tuple(given["words"])) == ("other", ("kubectl", "get", "pods"))
