"""Commands of the README and of the pages beside the code, run as printed, by a user with a separate folder.

Commands that other files of this folder run are left out; tests/page_commands.yaml maps commands to tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from cluster.test_fleet import PROGRAM, add_bucket
from support import terminal
from support.firestore_emulator import emulator
from support.page_commands import ROOT, blocks, commands
from support.tpu_vm_world import PROJECT, TpuVms
from support.waiting import PATIENCE, until
from tpukit.places.local import processes as pods
from unit.project.test_docs_python import TRAINING

SLOW = "import time; quick = train_step; train_step = lambda *given: (time.sleep(0.03), quick(*given))[1]\n"
"""Slows steps down, so that they can be observed."""
PREFACE = TRAINING.replace("import json, jax.numpy as jnp", "import json, numpy as jnp").replace("250", "150") + SLOW
"""Code that readers have before the program of the page. None of it uses JAX before `host.start()`."""
YES = {rf"\[y/N\]:(?#{number})": "y" for number in range(3)}


class Reader:
    """A user who types lines in a folder with the page's own job file, in a separate home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mine"
        self.folder.mkdir()
        tpu = folder / "bin" / "tpu"
        tpu.parent.mkdir()
        tpu.write_text(f'#!/bin/sh\nexec {sys.executable} -m tpukit "$@"\n')
        tpu.chmod(0o755)
        path = os.pathsep.join((str(tpu.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
        own = {"TPUKIT_HOME": str(folder / "home"), "TPUKIT_SETTINGS": str(folder / "settings.yaml"), "PATH": path}
        # Reuses sandbox programs from the cache of the user who runs the tests.
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        own |= {"HOME": str(folder), "XDG_CACHE_HOME": cache, "LOGNAME": "ada"}
        self.env = {**os.environ, **own, "PYTHONPATH": str(ROOT / "tools")}
        (self.folder / "job.yaml").write_text(blocks("README.md", "yaml", "Write your own job")[0])

    def types(self, line: str, code: int = 0, more: Mapping[str, str] | None = None) -> str:
        """Run a line. Lines with files of the examples run in the root of the checkout."""
        cwd = ROOT if "examples/" in line else self.folder
        env = {**self.env, **(more or {})}
        argv = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == code, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    def answers(self, line: str, more: Mapping[str, str] | None = None) -> str:
        """Run a line at a terminal, answering questions with yes."""
        done = terminal.run(["bash", "-euc", line], {**self.env, **(more or {})}, self.folder, answers=YES)
        assert done.code == 0, f"{line}\n{done.text[-3000:]}"
        return done.text


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    yield Reader(tmp_path)
    pods.kill_strays(tmp_path)


def test_lines_about_your_own_job_send_follow_lose_and_show_it(reader: Reader):
    program = blocks("README.md", "python", "Write your own job")[0]
    (reader.folder / "train.py").write_text(PREFACE + program)
    said = {line: reader.types(line) for line in commands("README.md", "Write your own job")}
    assert "4 slices" in said["tpu run job.yaml --set slices=4 --set lr=0.02"]
    assert "completed on all hosts" in said["tpu serve --until-idle"]
    assert "has already ended: completed" in said["tpu job stop mine"]
    (render,) = commands("README.md", "See what GKE would get")
    assert yaml.safe_load_all(reader.types(render))
    lose, show, _drill = commands("README.md", "When things break")
    lost = reader.types(lose)
    assert re.search(r"slice-1-0 killed at step \d+ \(`--lose`\)", lost) and "completed on all hosts" in lost
    assert "completed" in reader.types(show)


def test_lines_about_settings_and_a_shared_store_set_move_and_close(reader: Reader):
    (reader.folder / "train.py").write_text("raise SystemExit(3)\n")
    reader.types("tpu run job.yaml --set max.restarts=0", code=1)
    shown, zone = commands("README.md", "Settings")
    assert str(reader.env["TPUKIT_SETTINGS"]) in reader.types(shown)
    reader.types(zone)
    assert "us-central2-b" in reader.types(shown)
    with emulator(reader.folder / "firestore.log") as firestore:
        more = {"FIRESTORE_EMULATOR_HOST": firestore.address}
        show, move, settle, forget = commands("README.md", "Jobs that a team shares")
        assert "sqlite" in reader.types(show, more=more)
        assert "1 job copied" in reader.types(move, more=more)
        reader.types(settle, more=more)
        assert "firestore://my-project-1" in reader.types(show, more=more)
        assert "has already ended: failed" in reader.types(forget, more=more)


def test_lines_about_tpu_vms_and_the_queue_run_on_google_and_here(reader: Reader, tmp_path: Path):
    """Use the project of the page, which the simulated Google has."""
    (reader.folder / "train.py").write_text("print('step 1 loss 1.0')\n")
    lines = commands("README.md", "TPU VMs, and a queue for programs")
    *about_vms, serve, submit = lines
    with TpuVms(tmp_path / "google") as vms:
        more = {**vms.emulator.environment(), "STORAGE_EMULATOR_HOST": vms.emulator.address}
        for line in about_vms:
            said = reader.answers(line.replace("my-project-1", PROJECT), more)
            if line.startswith("tpu run"):
                assert "completed on all hosts" in said
            if line == "tpu vm list":
                assert "my-tpu" in said
    said = reader.types(f"{serve}\n{submit}\nkill %1; wait")
    assert "42" in said.splitlines()


def test_lines_of_hello_tpu_add_up_all_chips_and_print_the_manifest(reader: Reader):
    run, render = commands("examples/01-hello-tpu/README.md")
    reader.types(run)
    assert "16 chips on 2 slices add up to 136: all is well" in reader.types("tpu job logs hello")
    documents = list(yaml.safe_load_all(reader.types(render)))
    assert "JobSet" in {one["kind"] for one in documents if isinstance(one, dict)}


def test_lines_of_activations_make_shards_of_a_tiny_model(reader: Reader, tmp_path: Path):
    make, work, _deploy = commands("examples/04-activations/README.md")
    for line in (make, work):
        said = reader.types(line.replace("/tmp/tiny", str(tmp_path / "tiny")))
    assert re.search(r"is done: \d+ samples", said), said
    assert list((tmp_path / "tiny" / "activations").glob("stream_*/shard_*.safetensors"))


def test_lines_of_the_fleet_page_deploy_show_and_delete_a_fleet_file(reader: Reader, tmp_path: Path):
    (file,) = blocks("tools/tpukit/fleet/README.md", "yaml")
    smaller = file.replace("workers_per_zone: 4", "workers_per_zone: 1").replace(
        "shard_samples: 500", "shard_samples: 5"
    )
    (reader.folder / "fleet.yaml").write_text(f"{smaller}claim: 5s\n")
    (reader.folder / "extract.py").write_text(PROGRAM.read_text())
    (reader.folder / "requirements.txt").touch()
    (reader.folder / "data.jsonl").write_text("".join(f'{{"text": "sample {number}"}}\n' for number in range(40)))
    deploy, test, status, delete = commands("tools/tpukit/fleet/README.md")
    with TpuVms(tmp_path / "google") as vms:
        add_bucket(vms, "my-data")
        more = {**vms.emulator.environment(), "STORAGE_EMULATOR_HOST": vms.emulator.address}
        reader.types(f"tpu settings project {PROJECT} && tpu settings zone us-central1-a && tpu settings ssh_user ada")
        assert "workers are done" in reader.answers(f"{deploy} --monitor-interval 1", more)
        assert "launched" in reader.answers(test, more)
        assert "tpu-us-central1-b-0" in reader.types(status, more=more)
        assert "0 TPU VMs are left" in reader.answers(delete, more)


@pytest.fixture
def cluster_in_a_box(reader: Reader) -> Iterator[list[str]]:
    up, *between, down, preempt = commands("README.md", "A cluster in a box")
    reader.types(up)
    yield [*between, preempt]
    reader.types(down)


def test_lines_about_a_cluster_in_a_box_train_through_a_preemption(reader: Reader, cluster_in_a_box: list[str]):
    run, preempt = cluster_in_a_box
    assert run in commands("examples/02-pretrain/README.md")
    log = reader.folder / "run.log"
    with log.open("w") as output:
        started = subprocess.Popen(["bash", "-euc", run], cwd=ROOT, env=reader.env, stdout=output, stderr=output)
    try:
        until(lambda: re.search(r"step 1[0-9] loss", log.read_text()) or started.poll() is not None, log.read_text)
        reader.types(preempt)
        assert started.wait(PATIENCE) == 0, log.read_text()[-3000:]
    finally:
        started.kill()
        started.wait()
    said = log.read_text()
    assert "attempt 1 runs" in said and "completed on all hosts" in said, said[:3000]
