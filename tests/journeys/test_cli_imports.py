"""Modules that a command loads at start: only those it needs."""

from __future__ import annotations

import json
import subprocess

import pytest

from support.waiting import PATIENCE

HEAVY = {
    "kubernetes",
    "google",
    "grpc",
    "jax",
    "jaxlib",
    "numpy",
    "textual",
    "optax",
    "orbax",
    "tensorboardX",
    "starlette",
}
MEDIUM = {"rich", "jinja2", "pydantic", "yaml", "pathspec", "sqlite3"}
WITHOUT_A_CLUSTER = HEAVY | {"urllib3", "requests", "jinja2", "asyncssh"}
LOADED = """
import contextlib, io, json, sys
sys.argv = ["tpu", *sys.argv[1:]]
from tpukit.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
assert out.getvalue()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} | set(sys.modules))))
"""
PLACES = {"tpukit.places.gke.place", "tpukit.places.local.place", "tpukit.places.tpu_vm.place"}
LOOPS = {"tpukit.kernel.controller", "tpukit.jobs.controller.driver"}


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], HEAVY | MEDIUM),
        (["--version"], HEAVY | MEDIUM),
        (["run", "--help"], HEAVY | MEDIUM),
        (["job", "--help"], HEAVY | MEDIUM),
        (["serve", "--help"], HEAVY | MEDIUM),
        (["queue", "--help"], HEAVY | MEDIUM),
        (["job", "render", "train.yaml"], HEAVY | {"rich", "sqlite3"}),
        (["job", "schema"], HEAVY | {"rich", "jinja2", "sqlite3"}),
        (["job", "list", "--json"], HEAVY | PLACES | LOOPS | {"rich", "jinja2"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_loads_nothing_that_it_does_not_need(tpu, arguments, forbidden):
    tpu.file("true", image="a/b:1", workdir="gs://my-bucket/runs")
    python = tpu.argv()[0]
    done = subprocess.run(
        [python, "-c", LOADED, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=tpu.env,
        cwd=tpu.folder,
    )
    assert done.returncode == 0, done.stderr
    assert forbidden & set(json.loads(done.stdout)) == set()


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["job"], WITHOUT_A_CLUSTER | PLACES),
        (["job", "list", "--json"], WITHOUT_A_CLUSTER | PLACES),
        (["job", "show", "pretrain"], WITHOUT_A_CLUSTER),  # it looks for a JobSet of that name
        (["team", "queue"], WITHOUT_A_CLUSTER | PLACES),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_without_a_cluster_loads_no_client_to_say_so(tpu, arguments, forbidden):
    python = tpu.argv()[0]
    done = subprocess.run(
        [
            python,
            "-c",
            LOADED.replace("assert not end.code, end.code", "pass").replace("assert out", "out"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**tpu.env, "KUBECONFIG": str(tpu.folder / "missing")},
        cwd=tpu.folder,
    )
    assert done.returncode == 0, done.stderr
    assert forbidden & set(json.loads(done.stdout)) == set()
