"""Extraction of activations with examples/04-activations: the same numbers as transformers, independent of batching."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "04-activations"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "activations"
MODULES = ("checkpoint", "extract", "make_tiny", "qwen2", "samples", "tensors")
HOOKS = "residual,attention,mlp,embedding,final_norm,logits"


@pytest.fixture(scope="module")
def example():
    """Yield the modules of the example, imported as it imports them and forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        patch.setenv("JAX_PLATFORMS", "cpu")
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        yield SimpleNamespace(**{name: __import__(name) for name in MODULES})
        for name in MODULES:
            sys.modules.pop(name, None)


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def checkpoint(example, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    load(FIXTURES / "write.py").checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def tokens() -> list[list[int]]:
    return json.loads((FIXTURES / "tokens.json").read_text())


def extracted(example, folder: Path, samples: list[dict], **options: str) -> dict[str, np.ndarray]:
    program = example.extract.make({"batch_tokens": "64", **options}, lambda _: None)
    (folder / "shard").write_bytes(program(samples))
    return example.tensors.mapped(folder / "shard")


@pytest.mark.jax
def test_every_hook_of_every_layer_has_the_numbers_of_transformers(example, checkpoint, tokens, tmp_path):
    golden = example.tensors.mapped(FIXTURES / "golden.safetensors")
    samples = [{"tokens": one} for one in tokens]
    exact = extracted(example, tmp_path, samples, model=str(checkpoint), hooks=HOOKS, dtype="float32")
    assert exact.keys() - golden.keys() == {"tokens", "offsets"}
    assert len(golden) == 3 * 3 + 3
    for name, values in golden.items():
        np.testing.assert_allclose(
            exact[name], values, atol=1e-5 * np.sqrt(np.mean(values**2)), rtol=1e-5, err_msg=name
        )


@pytest.mark.jax
def test_computed_in_bfloat16_it_is_within_its_tolerance_of_transformers(example, checkpoint, tokens, tmp_path):
    golden = example.tensors.mapped(FIXTURES / "golden.safetensors")
    samples = [{"tokens": one} for one in tokens]
    made = extracted(example, tmp_path, samples, model=str(checkpoint), hooks=HOOKS, compute="bfloat16")
    for name, values in golden.items():
        assert made[name].dtype == ml_dtypes.bfloat16
        off = made[name].astype(np.float32) - values
        assert np.sqrt(np.mean(off**2)) < 4 * 2**-8 * np.sqrt(np.mean(values**2)), name


@pytest.mark.jax
def test_what_a_sample_gets_does_not_depend_on_its_company(example, checkpoint, tmp_path):
    draw = np.random.RandomState(1)
    samples = [{"id": n, "tokens": draw.randint(0, 128, 1 + n * 5 % 23).tolist()} for n in range(24)]
    samples[5]["tokens"] = []
    program = example.extract.make({"model": str(checkpoint), "layers": "0,-1", "batch_tokens": "64"}, lambda _: None)

    def by_id(chosen: list[dict]) -> dict[int, bytes]:
        (tmp_path / "shard").write_bytes(program(chosen))
        arrays = example.tensors.mapped(tmp_path / "shard")  # read completely before the next shard is written
        assert [name for name in arrays if "." in name] == ["residual.0", "residual.2"]
        ids = json.loads(example.tensors.header(tmp_path / "shard")[0]["__metadata__"]["ids"])
        rows = zip(arrays["offsets"], arrays["offsets"][1:], strict=False)
        return {
            number: b"".join(arrays[name][begin:end].tobytes() for name in ("residual.0", "residual.2", "tokens"))
            for number, (begin, end) in zip(ids, rows, strict=True)
        }

    together = by_id(samples)
    assert len(together) == 24
    assert by_id(samples[::-1]) == together
    assert by_id(samples[3:4]) == {3: together[3]}
    assert program(samples) == program(samples)


def test_batches_have_every_sample_once_and_few_shapes(example):
    draw = np.random.RandomState(2)
    tokens = [np.ones(length, np.int32) for length in draw.randint(0, 700, 500)]
    made = list(example.samples.batches(tokens, 1024, 4))
    assert sorted(number for batch in made for number in batch.samples) == [
        n for n, one in enumerate(tokens) if one.size
    ]
    shapes = {batch.tokens.shape for batch in made}
    assert len(shapes) == len({length for _, length in shapes}) <= 13
    assert all(rows % 4 == 0 for rows, _ in shapes)
    few = {batch.tokens.shape for batch in example.samples.batches(tokens[:3], 1024, 4)}
    assert few <= shapes, "a length has the same shape where there are few of it"
    for batch in made:
        assert [int(row.sum()) for row in batch.tokens[: len(batch.samples)]] == [tokens[n].size for n in batch.samples]
        assert all(batch.tokens.shape[1] <= max(16, 1.5 * tokens[number].size) for number in batch.samples)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layer": "1"}, "there is no option layer; layers?"),
        ({"hooks": "residual,keys"}, "hooks=residual,keys: there are residual, attention"),
        ({"layers": "3"}, "there is no layer 3, the model has 0 to 2"),
        ({"layers": "first"}, "write all, or numbers"),
        ({"dtype": "int8"}, "dtype=int8: write bfloat16, float32"),
        ({"batch_tokens": "0"}, "batch_tokens=0: write a number"),
        ({"model": "/nowhere"}, "model=/nowhere: there is no such folder"),
    ],
)
def test_options_that_cannot_be_are_refused_with_a_sentence(example, checkpoint, options, words):
    with pytest.raises((SystemExit, OSError)) as refused:
        example.extract.make({"model": str(checkpoint), **options}, lambda _: None)
    assert words in str(refused.value)


def test_samples_that_cannot_be_are_refused_with_a_sentence(example, checkpoint):
    tokens = example.samples.Tokens(checkpoint, "text", 8, 128)
    with pytest.raises(SystemExit, match="sample 1 of the shard has neither tokens nor text in 'text'"):
        tokens.of([{"tokens": [1]}, {"words": "one"}])
    with pytest.raises(SystemExit, match="has token 128, the model has 128"):
        tokens.of([{"tokens": [1, 128]}])
    assert [one.tolist() for one in tokens.of([{"tokens": list(range(20))}])] == [list(range(8))]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rotary positions are scaled"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ],
)
def test_config_of_another_architecture_is_refused(example, checkpoint, changed, words):
    raw = json.loads((checkpoint / "config.json").read_text())
    assert example.qwen2.config(raw).rope_base == 1e6
    assert (
        example.qwen2.config({**raw, "rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}}).rope_base == 5.0
    )
    with pytest.raises(OSError, match=words):
        example.qwen2.config({**raw, **changed})


def test_checkpoint_in_several_files_is_the_same_and_a_damaged_one_is_refused(example, checkpoint, tmp_path):
    example.make_tiny.make(tmp_path, layers=3, width=32, head_dim=8, vocabulary=128, tied=False, seed=7, files=3)
    one, several = example.checkpoint.weights(checkpoint), example.checkpoint.weights(tmp_path)
    assert one.keys() == several.keys()
    assert all(np.array_equal(one[name], several[name]) for name in one)
    file = next(tmp_path.glob("model-00002*"))
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(OSError, match="is cut off"):
        example.checkpoint.weights(tmp_path)
    file.write_bytes(b"not a file of this kind")
    with pytest.raises(OSError, match="is cut short, or is no safetensors file"):
        example.checkpoint.weights(tmp_path)
