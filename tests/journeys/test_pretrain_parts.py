"""Parts of the pretraining example: flags, data order, arithmetic, and sharding without effect on results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import compiling
from support.waiting import PATIENCE

EXAMPLE = Path(__file__).parents[2] / "examples" / "02-pretrain"


@pytest.fixture
def example(monkeypatch):
    """Return an importer that imports the example's modules as the example does, and forgets them afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("config", "data", "metrics", "model", "train"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def load(name: str):
        module = __import__(name)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return load


def test_parse_preset_and_fields_in_any_order(example):
    config = example("config").parse(
        ["--config.training.learning_rate=0.5", "--config=1b3", "--config.model.remat=full"]
    )
    assert (config.training.learning_rate, config.model.width, config.model.remat) == (0.5, 2048, "full")


def test_parse_every_problem_is_said_at_once(example):
    module = example("config")
    flags = ["--config=huge", "--config.training.learning_rat=1", "--config.training.steps=ten", "--steps=3"]
    with pytest.raises(module.Misuse) as refused:
        module.parse(flags)
    text = str(refused.value)
    assert all(flag in text for flag in flags)
    assert "training.learning_rate" in text


def test_parse_fields_that_contradict_each_other_are_refused(example):
    module = example("config")
    with pytest.raises(module.Misuse, match="kv_heads must divide"):
        module.parse(["--config.model.kv_heads=3"])


def test_1b3_has_1_3_billion_parameters_and_the_flops_that_follow(example):
    config = example("config").parse(["--config=1b3"])
    model = config.model
    per_layer = 4 * model.width**2 + 3 * model.width * model.mlp_width
    parameters = model.layers * per_layer + model.vocabulary * model.width
    assert 1.28e9 < parameters < 1.32e9
    # Six operations per multiplied parameter, and causal attention at half its square.
    attention = 12 * model.layers * model.width * config.data.sequence_length / 2
    assert example("metrics").flops_per_token(config) == pytest.approx(6 * parameters + attention)


def test_checkpoint_interval_means_what_its_fields_say(example):
    training, interval = example("config").Training, example("train").checkpoint_interval
    assert interval(training(checkpoint_per_epoch=4), epoch=100) == 25
    assert interval(training(checkpoint_per_epoch=400), epoch=100) == 1
    assert interval(training(checkpoint_per_epoch=4, checkpoint_every=7), epoch=100) == 7
    assert interval(training(checkpoint_per_epoch=0), epoch=100) == 0


def test_text_windows_cover_the_file_and_share_one_token(example, tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(100)))
    text = example("data").Text(tmp_path / "text", length=10)
    assert len(text) == 9
    tokens = [text[index]["tokens"].tolist() for index in range(len(text))]
    assert [window[0] for window in tokens[1:]] == [window[-1] for window in tokens[:-1]]
    assert {len(window) for window in tokens} == {11}


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_batches_put_together_from_any_number_of_hosts_are_the_same(example, hosts):
    import grain

    data = example("data")
    batch, per_host = 8, 8 // hosts
    sequences = grain.MapDataset.source(data.Synthetic(40, 256, 4)).seed(1).shuffle().repeat()[: 10 * batch]
    parts = [data.Rows(sequences, batch, list(range(h * per_host, (h + 1) * per_host))) for h in range(hosts)]
    for number in range(10):
        whole = [int(index) for part in parts for index in part[number]["index"]]
        assert whole == [int(sequences[number * batch + row]["index"]) for row in range(batch)]
    epoch = [int(index) for number in range(5) for part in parts for index in part[number]["index"]]
    assert sorted(epoch) == list(range(40)), "an epoch has every window once"


CHECK_SPREADING = """
import sys
import jax, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
import train
from config import parse
from data import Batches

config = parse([
    *sys.argv[1:], "--config.model.remat=dots", "--config.model.loss_chunks=2", "--config.training.z_loss=1e-3",
])

def learn(data, fsdp, tensor):
    devices = np.array(jax.devices()[: data * fsdp * tensor]).reshape(data, fsdp, tensor)
    mesh = Mesh(devices, ("data", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        optimizer = train.make_optimizer(config.training, 60)
        init, abstract = train.make_init(config, optimizer, mesh)
        step = train.make_train_step(config, optimizer, abstract, mesh)
        batches, state, losses = Batches(config, 60, NamedSharding(mesh, train.BATCH)), init(), []
        for _ in range(3):
            state, measured = step(state, next(batches))
            losses.append(float(measured["loss"]))
    return losses, jax.tree.map(np.asarray, state.params)

alone, spread = learn(1, 1, 1), learn(2, 2, 2)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), alone, spread)
assert alone[0][-1] < alone[0][0]
"""


@pytest.mark.jax
def test_training_spread_over_data_fsdp_and_tensor_learns_what_one_chip_learns():
    env = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": compiling.QUICK}
    env["PYTHONPATH"] = f"{EXAMPLE}:{EXAMPLE.parents[1] / 'tools'}"
    flags = [f"--config.{name}={value}" for name, value in compiling.SMALL.items()]
    done = subprocess.run(
        [sys.executable, "-c", CHECK_SPREADING, *flags], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.jax
def test_hello_alone_says_all_is_well(tmp_path):
    hello = EXAMPLE.parent / "01-hello-tpu" / "hello.py"
    env = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    env |= {"PYTHONPATH": str(EXAMPLE.parents[1] / "tools"), "TPUKIT_WORKDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, hello], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "4 chips on 1 slices add up to 10" in done.stdout
