"""Extraction of activations: the numbers of transformers itself, and a fleet under faults in the sandbox.

8 workers over 2 zones are preempted, hung and lost at random, and their number is changed. Their shards equal those of
an undisturbed run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import pytest

from cluster.test_fleet import BUCKET, ZONES, Fleet, gate, ids, strike, vms  # noqa: F401  # fixtures
from conftest import processes_of
from journeys.activations_cases import EXAMPLE, HOOKS, example, extracted  # noqa: F401  # a fixture
from support import transformers_environment
from support.tpu_vm_world import OPENER, TpuVms
from support.waiting import PATIENCE, until
from tpukit.fleet import streams

TESTS = Path(__file__).resolve().parents[1]
MODEL = f"gs://{BUCKET}/models/tiny"
STREAMS, SHARD_SAMPLES, SAMPLES = 12, 4, 96
# The example's program, waiting in the middle of each stream until it may continue.
GATED = """\
import time
from pathlib import Path

import extract


def make(options, report):
    gate = Path(options["gate"])
    program = extract.make({name: value for name, value in options.items() if name != "gate"}, report)

    def run(samples):
        while samples[0]["gated"] and not gate.exists():
            time.sleep(0.05)
            report(0)
        return program(samples)

    return run


make.suffix = extract.make.suffix
"""


@pytest.fixture(scope="module")
def reference() -> str:
    try:
        return transformers_environment.python()
    except transformers_environment.NotThere as error:
        pytest.fail(str(error))


def ran(argv: list[str], **more: str) -> str:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(EXAMPLE), **more}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("checkpoint", "dtype"),
    [({"tied": True}, "float32"), ({"tied": False, "files": 2, "seed": 1}, "bfloat16")],
    ids=["tied-float32", "untied-two-files-bfloat16"],
)
def test_every_hook_of_every_layer_is_what_transformers_computes(example, reference, checkpoint, dtype, tmp_path):  # noqa: F811
    example.make_tiny.make(tmp_path / "model", layers=3, width=48, head_dim=8, **checkpoint)
    draw = np.random.RandomState(3)
    tokens = [draw.randint(0, 256, length).tolist() for length in (2, 30, 61)]
    (tmp_path / "tokens.json").write_text(json.dumps(tokens))
    words = [str(tmp_path / "model"), str(tmp_path / "tokens.json"), str(tmp_path / "reference"), dtype]
    ran([reference, str(TESTS / "support" / "transformers_reference.py"), *words])
    theirs = example.tensors.mapped(tmp_path / "reference")
    options = {"model": str(tmp_path / "model"), "hooks": HOOKS, "dtype": dtype, "compute": dtype}
    ours = extracted(example, tmp_path, [{"tokens": one} for one in tokens], **options)
    assert len(theirs) == 3 * 3 + 3
    tolerance = {"float32": 1e-5, "bfloat16": 4 * 2**-8}[dtype]  # relative to a typical value in the array
    for name, values in theirs.items():
        exact = values.astype(np.float32)
        off = np.sqrt(np.mean((ours[name].astype(np.float32) - exact) ** 2))
        assert off <= tolerance * np.sqrt(np.mean(exact**2)), name


SPREAD = """
import json, sys
from pathlib import Path
import extract, jax
assert jax.local_device_count() == 4
program = extract.make({"model": sys.argv[1], "batch_tokens": "64"}, lambda _: None)
Path(sys.argv[2]).write_bytes(program(json.loads(Path(sys.argv[3]).read_text())))
"""


def test_batches_spread_over_four_chips_come_back_as_those_of_one(example, tmp_path):  # noqa: F811
    example.make_tiny.make(tmp_path / "model", layers=2, width=32, head_dim=8)
    draw = np.random.RandomState(5)
    some = [{"id": number, "tokens": draw.randint(0, 256, 1 + number % 16).tolist()} for number in range(21)]
    (tmp_path / "samples.json").write_text(json.dumps(some))
    words = [str(tmp_path / "model"), str(tmp_path / "spread"), str(tmp_path / "samples.json")]
    ran([sys.executable, "-c", SPREAD, *words], JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="4")
    spread = example.tensors.mapped(tmp_path / "spread")
    alone = extracted(example, tmp_path, some, model=str(tmp_path / "model"))
    assert spread.keys() == alone.keys()
    for name, values in alone.items():
        np.testing.assert_array_equal(spread[name], values, err_msg=name)


READ = """
import json, sys
from pathlib import Path
from safetensors import safe_open
from transformers import PreTrainedTokenizerFast
from samples import Tokens
folder, shard, texts = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
with safe_open(shard, "pt") as file:
    shapes = {name: [str(file.get_tensor(name).dtype), *file.get_tensor(name).shape] for name in file.keys()}
    metadata = file.metadata()
theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))(texts)["input_ids"]
ours = [one.tolist() for one in Tokens(folder, "text", 100, 256).of([{"text": text} for text in texts])]
print(json.dumps({"shapes": shapes, "ids": metadata["ids"], "theirs": theirs, "ours": ours}))
"""


def test_shards_open_with_the_safetensors_package_and_text_becomes_the_tokens_of_transformers(
    example,  # noqa: F811
    reference,
    tmp_path,
):
    example.make_tiny.make(tmp_path / "model", layers=1, width=32, head_dim=8)
    extracted(example, tmp_path, [{"id": "a", "tokens": [1, 2, 3]}, {"tokens": []}], model=str(tmp_path / "model"))
    texts = ["Down the rabbit-hole", "", "naïve Ελλάδα\n"]
    said = ran([reference, "-c", READ, str(tmp_path / "model"), str(tmp_path / "shard"), json.dumps(texts)])
    read = json.loads(said.splitlines()[-1])
    assert read["shapes"] == {
        "offsets": ["torch.int64", 3],
        "tokens": ["torch.int32", 3],
        "residual.0": ["torch.bfloat16", 3, 32],
    }
    assert json.loads(read["ids"]) == ["a", None]
    assert read["ours"] == read["theirs"] == [list(text.encode()) for text in texts]


def test_fleet_of_eight_that_is_struck_at_random_and_halved_gives_the_bytes_of_an_undisturbed_run(
    vms,  # noqa: F811
    gate,  # noqa: F811
    example,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    example.make_tiny.make(tmp_path / "model", layers=2, width=32, head_dim=8)
    for file in (tmp_path / "model").iterdir():
        put(vms, f"models/tiny/{file.name}", file.read_bytes())
    shutil.copytree(EXAMPLE, tmp_path / "program", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "program" / "gated.py").write_text(GATED)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples()))
    fleet = Fleet(vms, tmp_path / "home")
    words = ("--zones", ZONES, "--gcs-bucket", BUCKET, "--program", f"{tmp_path / 'program' / 'gated.py'}:make")
    words += ("--shard-samples", str(SHARD_SAMPLES), "--option", f"gate={gate}", "--option", "batch_tokens=64")
    words += ("--model", MODEL, "--claim-seconds", "6", "--monitor-interval", "1", "--tpu-type", "v3-8", "--monitor")
    all_eight = ("--workers-per-zone", "4", "--dataset", str(data), "--streams", str(STREAMS), "--create-tpus")
    with fleet.started("deploy", *words, *all_eight) as deploy:
        until(lambda: len(fleet.shards()) >= 8 or deploy.poll() is not None, "a shard of each worker")
        assert deploy.poll() is None, deploy.communicate()
        before = ids(vms)
        assert len(before) == 8
        struck = random.Random(13).sample(sorted(before), 6)
        preempted, hung, lost = struck[:2], struck[2:4], struck[4:]
        programs = {name: programs_of(vms, before[name]) for name in (*hung, *lost)}
        assert all(programs.values()), "there is a program to strike on each"
        for name in preempted:
            strike(vms, "preempt", name, grace=0)
        for name in (*hung, *lost):
            for pid in programs[name]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP if name in hung else signal.SIGKILL)

        def recovered() -> bool:
            there = ids(vms)
            if any(there.get(name, before[name]) == before[name] for name in preempted):
                return False
            return all(name in there and programs_of(vms, there[name]) - programs[name] for name in (*hung, *lost))

        until(lambda: recovered() or deploy.poll() is not None, "those that were struck to work again", every=0.5)
        assert deploy.poll() is None, deploy.communicate()
        assert not [name for name in fleet.shards() if "shard_00001" in name]
        deploy.send_signal(signal.SIGINT)
        deploy.communicate(timeout=PATIENCE)
    gate.touch()
    with fleet.started("deploy", *words, "--workers-per-zone", "2", "--skip-dataset", "--yes") as halved:
        said = halved.communicate(timeout=PATIENCE)
        assert halved.returncode == 0, said
    assert len(ids(vms)) == 4
    assert f"complete: {SAMPLES} samples in {2 * STREAMS} shards" in fleet.run("verify", "--gcs-bucket", BUCKET)
    monkeypatch.setattr(example.checkpoint, "folder", lambda *_: tmp_path / "model")
    assert fleet.shards() == undisturbed(example, data, tmp_path / "streams")
    fleet.run("delete", "--yes")
    assert ids(vms) == {}


def samples() -> Iterator[dict]:
    draw = np.random.RandomState(4)
    for number in range(SAMPLES):
        tokens = draw.randint(0, 256, 1 + number % 16).tolist()
        yield {"id": number, "tokens": tokens, "gated": number >= SAMPLES // 2}


def put(vms: TpuVms, name: str, content: bytes) -> None:  # noqa: F811
    import urllib.request

    address = f"{vms.emulator.address}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(name, safe='')}"
    headers = {"Authorization": f"Bearer {vms.emulator.token}", "Content-Type": "application/octet-stream"}
    with OPENER.open(urllib.request.Request(address, content, headers), timeout=60) as answer:
        assert answer.status == 200


def programs_of(vms: TpuVms, node: str) -> set[int]:  # noqa: F811
    """Return the processes of workers on the host of a TPU VM."""
    found = processes_of(vms.emulator.folder / "tpu-vms" / node)
    return {pid for pid, command in found.items() if "tpukit.host.worker" in command}


def undisturbed(example: SimpleNamespace, data: Path, folder: Path) -> dict[str, str]:  # noqa: F811
    """Return the checksums of this process's results for each range of samples."""
    streams.split([data], folder, STREAMS)
    program = example.extract.make({"model": MODEL, "batch_tokens": "64"}, lambda _: None)
    made = {}
    for file in sorted(folder.glob("stream_*")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for index in range(-(-len(lines) // SHARD_SAMPLES)):
            content = program(lines[index * SHARD_SAMPLES : (index + 1) * SHARD_SAMPLES])
            name = f"activations/{file.stem}/shard_{index:05d}.safetensors"
            made[name] = base64.b64encode(hashlib.md5(content).digest()).decode()
    return made
