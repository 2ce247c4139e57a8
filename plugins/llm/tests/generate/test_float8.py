"""Folders with matrices of floats of 8 bits compute what their dequantized weights do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.packed import read_weights
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json
from safetensors_file import write_safetensors
from test_checkpoints import LATENT, SMALL, write_checkpoint

ml_dtypes = pytest.importorskip("ml_dtypes")
Arrays = dict[str, np.ndarray]
BY_BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [24, 32]}


def scheme(strategy: str, **keys: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, **keys}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": {"dynamic": True}}}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": groups}


SMALL_BLOCKS = "small blocks"
"""Columns of K in blocks of 24, that is in blocks of 8 with a scale: products take them dequantized, as f32."""
FORMS: dict[str, tuple[tuple[int, int], str, dict[str, Any]]] = {
    "blocks": ((24, 32), "weight_scale_inv", BY_BLOCK),
    "blocks of another size": ((128, 48), "weight_scale_inv", {**BY_BLOCK, "weight_block_size": [128, 48]}),
    SMALL_BLOCKS: ((128, 24), "weight_scale_inv", {**BY_BLOCK, "weight_block_size": [128, 24]}),
    "tensors": ((0, 0), "weight_scale", {"quant_method": "fp8", "activation_scheme": "static"}),
    "compressed tensors": ((0, 0), "weight_scale", scheme("tensor")),
    "compressed channels": ((1, 0), "weight_scale", scheme("channel")),
    "compressed blocks": ((24, 32), "weight_scale", scheme("block", block_structure=[24, 32])),
}
"""Rows and columns of a tile with a scale, 0 for all, the end of the names of scales, and `quantization_config`."""


def quantized(array: np.ndarray, tile: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a matrix as floats of 8 bits, its scales, and the values of both."""
    height, width = (side or dim for side, dim in zip(tile, array.shape, strict=True))
    tall, wide = (-(-dim // side) for dim, side in zip(array.shape, (height, width), strict=True))
    padded = np.pad(array, ((0, tall * height - array.shape[0]), (0, wide * width - array.shape[1])))
    largest = np.abs(padded.reshape(tall, height, wide, width)).max((1, 3))
    scales = (largest / 448).astype(np.float32)
    whole = np.kron(scales, np.ones((height, width), np.float32))[: array.shape[0], : array.shape[1]]
    codes = (array / whole).astype(ml_dtypes.float8_e4m3fn)
    return codes, scales, codes.astype(np.float32) * whole


def quantize_tensors(tensors: Arrays, name: str) -> tuple[Arrays, Arrays]:
    """Return tensors with products in a form, and what they stand for."""
    tile, end, config = FORMS[name]
    packed, plain = Arrays(), Arrays()
    for key, array in tensors.items():
        if not key.endswith(("_proj.weight", "_mqa.weight")):
            packed[key] = plain[key] = array
            continue
        codes, scales, plain[key] = quantized(array, tile)
        if tile == (0, 0):
            scales = scales.reshape(() if name == "tensors" else (1,))
        packed |= {key: codes, f"{key.removesuffix('.weight')}.{end}": scales}
        if config.get("activation_scheme") == "static":
            packed[key.replace("weight", "input_scale")] = np.ones((), np.float32)
    return packed, plain


def write_quantized(folder: Path, tensors: Arrays, name: str) -> tuple[Arrays, Arrays]:
    """Write tensors with products in a form beside a configuration."""
    packed, plain = quantize_tensors(tensors, name)
    write_safetensors(folder / "model.safetensors", packed)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": FORMS[name][2]}))
    return packed, plain


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, tmp_path: Path) -> None:
    """Matrices have the values of their codes by their scales, and stay floats of 8 bits."""
    packed, plain = write_quantized(tmp_path, write_checkpoint(tmp_path), name)
    tensors = read_weights(tmp_path / "model.safetensors", read_json(tmp_path / "config.json"))
    assert tensors.keys() == plain.keys() and len(packed) > len(plain)
    kinds = set()
    for key, expected in plain.items():
        weights = tensors[key]
        if isinstance(weights, BlockWeights):
            kinds.add(weights.codes.dtype.name)
            assert weights.dtype == "f8e4m3fn" and weights.shape[1] % weights.block == 0
            scales = np.repeat(weights.scales, weights.block, 1)
            np.testing.assert_array_equal(weights.codes.astype(np.float32) * scales, expected)
            np.testing.assert_array_equal(weights.values(), expected)
    assert kinds == {"float8_e4m3fn"}


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", FORMS)
def test_logits(name: str, tmp_path: Path) -> None:
    """Products read the floats of 8 bits, but in small blocks, and compute what those with dequantized matrices do."""
    plain_folder, folder = tmp_path / "plain", tmp_path / "quantized"
    tensors = write_checkpoint(plain_folder)
    write_checkpoint(folder)
    _, plain = write_quantized(folder, tensors, name)
    write_safetensors(plain_folder / "model.safetensors", plain)
    models = [generate.load(each, cache=False) for each in (folder, plain_folder)]
    rows = []
    for model in models:
        generator = model.generator(chunk_size=7)
        generator.append([5, 9, 33, 7, 2, 80, 41, 17, 6])
        rows.append(generator.logits().reshape(-1))
    np.testing.assert_allclose(*rows, rtol=1e-4, atol=1e-4)
    products = sum(each.nbytes for key, each in plain.items() if key.endswith("_proj.weight"))
    sizes = [model.executable.memory.weights_bytes for model in models]
    assert (sizes[0] < sizes[1] - 0.4 * products) == (name != SMALL_BLOCKS)


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["blocks", "compressed channels"])
def test_deepseek(name: str, tmp_path: Path) -> None:
    """Latent attention and experts of floats of 8 bits compute what transformers does with dequantized ones."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("deepseek_v3", **{**SMALL, **LATENT})
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    reference.save_pretrained(tmp_path)
    mapped = read_checkpoint(tmp_path / "model.safetensors")  # a file that is written again
    _, plain = write_quantized(tmp_path, {key: each.copy() for key, each in mapped.items()}, name)
    config.save_pretrained(tmp_path / "plain")
    write_safetensors(tmp_path / "plain" / "model.safetensors", plain)
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain").eval().float()
    prompt = [5, 9, 33, 7, 2, 80, 41]
    with torch.no_grad():
        expected = reference(torch.tensor([prompt])).logits[0, -1].numpy()
    generator = generate.load(tmp_path, cache=False).generator(chunk_size=4)
    generator.append(prompt)
    np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)


def test_what_is_refused(tmp_path: Path) -> None:
    packed, _ = write_quantized(tmp_path, write_checkpoint(tmp_path), "blocks")
    path, key = tmp_path / "config.json", "model.layers.0.self_attn.q_proj"
    config = json.loads(path.read_text())

    def refusal(stored: dict[str, Any], tensors: dict[str, np.ndarray | None] | None = None) -> str:
        changed = {**packed, **{f"{key}.{part}": each for part, each in (tensors or {}).items()}}
        kept = {name: each for name, each in changed.items() if each is not None}
        write_safetensors(tmp_path / "model.safetensors", kept)
        path.write_text(json.dumps({**config, "quantization_config": stored}), encoding="utf-8")
        with pytest.raises(ModelFolderError) as caught:
            generate.load(tmp_path, cache=False)
        return str(caught.value)

    scales = f"tensor '{key}.weight_scale_inv'"
    assert f"{scales}: expected float16 or bfloat16 or float32[4, 2], found float32[3, 2]" in refusal(
        {**BY_BLOCK, "weight_block_size": [16, 32]}
    )
    assert f"{scales}: expected float16 or bfloat16 or float32[3, 2], found float32[1, 1]" in refusal(
        BY_BLOCK, {"weight_scale_inv": np.ones((1, 1), np.float32)}
    )
    assert f"{scales}: a scale is not a finite number" in refusal(
        BY_BLOCK, {"weight_scale_inv": np.full((3, 2), np.nan, np.float32)}
    )
    assert f"tensor '{key}.weight': expected [64, 64] of f32, f16 or bf16, found float8_e4m3fn[64, 64]" in refusal(
        BY_BLOCK, {"weight_scale_inv": None}
    )
    assert f"tensor '{key}.weight': expected float8_e4m3fn[any, any], found float32[64, 64]" in refusal(
        BY_BLOCK, {"weight": np.ones((64, 64), np.float32)}
    )
    assert f"there is no tensor '{key}.weight'" in refusal(BY_BLOCK, {"weight": None})
    assert "'quantization_config.weight_block_size': expected the rows and the columns of a block, found [128]" in (
        refusal({**BY_BLOCK, "weight_block_size": [128]})
    )
    assert "'quantization_config.fmt': expected e4m3, found 'e5m2'" in refusal({**BY_BLOCK, "fmt": "e5m2"})
    assert "expected symmetric float of 8 bits by tensor, channel or block, found 'float', 8, 'group'" in refusal(
        scheme("group")
    )
    assert "weights.block_structure': expected the rows and the columns of a block, found None" in refusal(
        scheme("block")
    )
