"""Folders with experts in MXFP4 compute what transformers does with dequantized weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.packed import read_weights
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json
from safetensors_file import write_safetensors

pytest.importorskip("mirlo.benchmarks", reason="needs a clone of the repository")

from mirlo.benchmarks.llm.architectures import tiny_model  # noqa: E402

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
LAYERS, EXPERTS, HIDDEN, INNER = 3, 4, 64, 96
PROMPT = [5, 9, 33, 7, 2, 80, 41, 17, 6]
VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
Arrays = dict[str, np.ndarray]
CONFIG = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}


def write_packed(folder: Path) -> Arrays:
    """Write a model whose experts have random codes; return its tensors."""
    model = tiny_model(
        "gpt_oss", hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, num_local_experts=EXPERTS
    )
    model.save_pretrained(folder)
    random, tensors = np.random.default_rng(0), Arrays()
    for name, tensor in model.state_dict().items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            tensors[name] = tensor.numpy()
            continue
        depth, rows = tensor.shape[1:]
        tensors[f"{name}_blocks"] = random.integers(0, 256, (EXPERTS, rows, depth // 32, 16), dtype=np.uint8)
        tensors[f"{name}_scales"] = random.integers(120, 126, (EXPERTS, rows, depth // 32), dtype=np.uint8)
    write_safetensors(folder / "model.safetensors", tensors)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": CONFIG}))
    return tensors


def test_matrices_are_those_of_the_file(tmp_path: Path) -> None:
    tensors = write_packed(tmp_path)
    read = read_weights(tmp_path / "model.safetensors", read_json(tmp_path / "config.json"))
    name = "model.layers.1.mlp.experts.down_proj"
    for expert in range(EXPERTS):
        matrix = read[f"{name}.{expert}.weight"]
        assert isinstance(matrix, BlockWeights) and matrix.codes.base is not None
        codes = tensors[f"{name}_blocks"][expert].reshape(HIDDEN, -1)
        both = np.stack([codes & 15, codes >> 4], -1).reshape(HIDDEN, INNER)
        numbers = np.array(VALUES)[both & 7] * np.where(both & 8, -1, 1)
        scales = 2.0 ** (tensors[f"{name}_scales"][expert].astype(int) - 127)
        np.testing.assert_array_equal(matrix.values(), numbers * np.repeat(scales, 32, 1))


def test_logits_are_those_of_dequantized_weights(tmp_path: Path) -> None:
    tensors = write_packed(tmp_path)
    model = generate.load(tmp_path, cache=False)
    generator = model.generator(chunk_size=4)
    generator.append(PROMPT)
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=transformers.Mxfp4Config(dequantize=True), dtype=torch.float32,
        attn_implementation="eager",
    )  # fmt: skip
    with torch.no_grad():
        expected = reference(torch.tensor([PROMPT])).logits[0, -1].numpy()
    np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)
    packed = sum(array.nbytes for name, array in tensors.items() if name.endswith("_blocks"))
    others = sum(array.nbytes for name, array in tensors.items() if not name.endswith(("_blocks", "_scales")))
    assert model.executable.memory.weights_bytes < others + 1.6 * packed  # with scales of 32 bits; dequantized: 8 times


DOWN = "model.layers.2.mlp.experts.down_proj"
BLOCKS, SCALES = f"{DOWN}_blocks", f"{DOWN}_scales"


def read(folder: Path) -> None:
    read_weights(folder / "model.safetensors", read_json(folder / "config.json"))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (SCALES, lambda array: None, rf"there is no tensor '{DOWN}.0.scales' \(uint8\[64, 3\]\)"),
        (BLOCKS, lambda array: array[..., :8], r"expected uint8\[any, any, 16\], found uint8\[64, 3, 8"),
        (BLOCKS, lambda array: array.astype(np.int8), r"expected uint8\[any, any, 16\], found int8"),
        (BLOCKS, lambda array: array[:, :, :0], "tensor .*: rows of 0 elements do not divide into groups of 32"),
        (SCALES, lambda array: array[:, :, :2], r"expected uint8\[64, 3\], found uint8\[64, 2\]"),
        (SCALES, lambda array: array | 255, "a scale is not a finite number"),
    ],
)
def test_wrong_tensors(
    name: str, change: Callable[[np.ndarray], np.ndarray | None], message: str, tmp_path: Path
) -> None:
    tensors = write_packed(tmp_path)
    array = change(tensors.pop(name))
    write_safetensors(tmp_path / "model.safetensors", tensors if array is None else tensors | {name: array})
    with pytest.raises(ModelFolderError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda array: array[:3], f"'{DOWN}': expected 4 experts, found 3"),
        (lambda array: array[:, :63], rf"tensor '{DOWN}': expected \[64, 96\], found \[63, 96\]"),
    ],
)
def test_experts_that_do_not_fit(change: Callable[[np.ndarray], np.ndarray], message: str, tmp_path: Path) -> None:
    tensors = write_packed(tmp_path)
    write_safetensors(
        tmp_path / "model.safetensors", tensors | {name: change(tensors[name]) for name in (BLOCKS, SCALES)}
    )
    with pytest.raises(ModelFolderError, match=message):
        generate.load(tmp_path, cache=False)
