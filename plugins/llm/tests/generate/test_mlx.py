"""Folders of MLX: codes of any bits with scales and biases of groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.packed import read_weights
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json
from ml_dtypes import bfloat16
from safetensors_file import write_safetensors
from test_checkpoints import write_checkpoint
from test_packed import Arrays, words

GROUP = 32
OWN = "model.layers.0.mlp.down_proj"
"""A matrix with bits of its own."""


def affine(random: np.random.Generator, shape: tuple[int, ...], bits: int, kind: Any = np.float16) -> Arrays:
    """Return the tensors of a matrix with random codes, and its values: scale * code + bias of each group."""
    groups = (*shape[:-1], shape[-1] // GROUP)
    codes = random.integers(0, 1 << bits, shape)
    sign = random.choice([-1, 1], groups)
    scales = (random.uniform(0.5, 1.5, groups) * sign * 0.3 / (1 << bits)).astype(kind)
    biases = (-sign * random.uniform(0.1, 0.2, groups)).astype(kind)
    scales[..., 0, :1] = 0  # of a group whose elements are equal
    wide = [np.repeat(x.astype(np.float32), GROUP, -1) for x in (scales, biases)]
    packed = words(codes.reshape(-1, shape[-1]), bits).view(np.uint32)
    return {
        "weight": packed.reshape(*shape[:-1], -1), "scales": scales, "biases": biases,
        "values": wide[0] * codes.astype(np.float32) + wide[1],
    }  # fmt: skip


def write_mlx(folder: Path, bits: int, kind: Any = np.float16) -> tuple[Arrays, Arrays]:
    """Write one layer of the example's model in the form of MLX; return its tensors and the dequantized ones."""
    random, packed, plain = np.random.default_rng(0), {}, {}
    for key, array in write_checkpoint(folder).items():
        if ".layers.1." in key:
            continue
        if array.ndim != 2:
            packed[key] = plain[key] = array
            continue
        name = key.removesuffix(".weight")
        tensors = affine(random, array.shape, 8 if name == OWN else bits, kind)
        plain[key] = tensors.pop("values")
        packed |= {f"{name}.{part}": each for part, each in tensors.items()}
    write_safetensors(folder / "model.safetensors", packed)
    keys = {**json.loads((folder / "config.json").read_text()), "num_hidden_layers": 1}
    stored = {"group_size": GROUP, "bits": bits, OWN: {"group_size": GROUP, "bits": 8}, "model.norm": False}
    # mlx-lm writes the same object under the key of transformers.
    write_config(folder, {**keys, "quantization": stored, "quantization_config": stored})
    return packed, plain


def write_config(folder: Path, keys: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(keys), encoding="utf-8")


@pytest.mark.parametrize(
    ("bits", "kind", "dtype"),
    [(2, np.float16, "u2"), (3, np.float32, "u4"), (4, bfloat16, "u4"), (5, np.float16, "i8"), (6, np.float16, "i8"),
     (8, np.float16, "u8")],
)  # fmt: skip
def test_values(bits: int, kind: Any, dtype: str, tmp_path: Path) -> None:
    """Matrices have the values that the format defines."""
    _, plain = write_mlx(tmp_path, bits, kind)
    tensors = read_weights(tmp_path / "model.safetensors", read_json(tmp_path / "config.json"))
    assert tensors.keys() == plain.keys()
    for key, expected in plain.items():
        weights = tensors[key]
        if isinstance(weights, BlockWeights):
            assert weights.dtype == ("u8" if key.startswith(OWN) else dtype) and weights.scales.all()
            weights = weights.values()
        np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_values_of_mlx(bits: int, tmp_path: Path) -> None:
    """What MLX itself quantizes is read as MLX dequantizes it."""
    mx = pytest.importorskip("mlx.core")
    random = np.random.default_rng(0)
    matrix = random.standard_normal((6, 128)).astype(np.float32)
    parts = mx.quantize(mx.array(matrix), group_size=64, bits=bits)
    names = [f"a.{part}" for part in ("weight", "scales", "biases")]
    write_safetensors(tmp_path / "model.safetensors", dict(zip(names, map(np.array, parts), strict=True)))
    write_config(tmp_path, {"quantization": {"group_size": 64, "bits": bits}})
    weights = read_weights(tmp_path / "model.safetensors", read_json(tmp_path / "config.json"))["a.weight"]
    assert isinstance(weights, BlockWeights) and weights.block == 64
    expected = np.array(mx.dequantize(*parts, group_size=64, bits=bits))
    np.testing.assert_allclose(weights.values(), expected, rtol=0, atol=1e-6)
    assert abs(expected - matrix).max() < 8 / 2**bits


@pytest.mark.sample(0)
@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_logits(bits: int, tmp_path: Path) -> None:
    """Products, rows of the embedding and logits read the packed matrices."""
    _, plain = write_mlx(tmp_path / "packed", bits)
    write_checkpoint(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", plain)
    keys = json.loads((tmp_path / "packed" / "config.json").read_text())
    write_config(tmp_path, {key: keys[key] for key in keys if not key.startswith("quantization")})
    models = [generate.load(folder, cache=False) for folder in (tmp_path / "packed", tmp_path)]
    generators = [model.generator(chunk_size=7) for model in models]
    for generator in generators:
        generator.append([5, 9, 33, 7, 2, 80, 41, 17, 6])
    found, expected = (generator.logits() for generator in generators)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    packed, whole = (model.executable.memory.weights_bytes for model in models)
    assert packed < whole * (0.55 if bits in (6, 8) else 0.4)


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("model.layers.0.mlp", ("gate_proj", "down_proj", "up_proj")),
        ("model.layers.0.block_sparse_moe", ("w1", "w2", "w3")),
    ],
)
def test_experts(before: str, names: tuple[str, ...], tmp_path: Path) -> None:
    """The matrices of all experts of a layer are one tensor, which may have bits of its own."""
    random, packed, plain = np.random.default_rng(0), {}, {}
    own = f"{before}.switch_mlp.down_proj"
    for part, name in zip(("gate_proj", "down_proj", "up_proj"), names, strict=True):
        tensors = affine(random, (3, 8, 64), 6 if part == "down_proj" else 4)
        plain |= {f"{before}.experts.{i}.{name}.weight": each for i, each in enumerate(tensors.pop("values"))}
        packed |= {f"{before}.switch_mlp.{part}.{kind}": each for kind, each in tensors.items()}
    write_safetensors(tmp_path / "model.safetensors", packed)
    stored = {"group_size": GROUP, "bits": 4, own: {"group_size": GROUP, "bits": 6}}
    write_config(tmp_path, {"quantization": stored})
    tensors = read_weights(tmp_path / "model.safetensors", read_json(tmp_path / "config.json"))
    assert tensors.keys() == plain.keys()
    for key, expected in plain.items():
        weights = tensors[key]
        assert isinstance(weights, BlockWeights)
        np.testing.assert_array_equal(weights.values(), expected)


Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("changes", "tensors", "text"),
    [
        ({"bits": 7}, {}, "'quantization.bits': expected 2 or 3 or 4 or 5 or 6 or 8, found 7"),
        ({"bits": None}, {}, r"'quantization.bits' \(an integer\) is missing"),
        ({"group_size": 0}, {}, "'quantization.group_size': expected an integer"),
        ({"group_size": 24}, {}, "rows of 64 elements do not divide into groups of 24, as 'quantization' says"),
        ({"mode": "mxfp4"}, {}, "'quantization.mode': expected affine, found 'mxfp4'"),
        ({OWN: {"bits": 4}}, {}, rf"'quantization.{OWN}.group_size'"),
        ({"bits": 3}, {}, r"8 words of a row hold no whole codes of 3 bits"),
        ({}, {"biases": None}, rf"no tensor '{Q}.biases' \(.*\[64, 2\]\), which 'quantization' requires"),
        ({}, {"weight": np.ones((64, 8), np.float32)}, r"expected uint32\[any, any\], found float32\[64, 8\]"),
        ({}, {"weight": np.ones((2, 64, 8), np.uint32)}, r"expected uint32\[any, any\], found uint32\[2, 64, 8\]"),
        ({}, {"scales": np.full((64, 2), np.inf, np.float16)}, "a scale is not a finite number"),
        ({}, {"biases": np.full((64, 2), np.nan, np.float16)}, "a scale is not a finite number"),
        ({}, {"scales": np.ones((64, 3), np.float16)}, r"expected .*\[64, 2\], found float16\[64, 3\]"),
        ({}, {"weight": np.ones((32, 8), np.uint32)}, r"expected .*\[32, 2\], found float16\[64, 2\]"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], tensors: dict[str, Any], text: str, tmp_path: Path) -> None:
    packed, _ = write_mlx(tmp_path, 4)
    changed = {**packed, **{f"{Q}.{part}": each for part, each in tensors.items()}}
    write_safetensors(
        tmp_path / "model.safetensors", {name: each for name, each in changed.items() if each is not None}
    )
    keys = json.loads((tmp_path / "config.json").read_text())
    write_config(tmp_path, {**keys, "quantization": {**keys["quantization"], **changes}})
    with pytest.raises(ModelFolderError, match=text):
        generate.load(tmp_path, cache=False)


def test_a_config_that_is_no_object(tmp_path: Path) -> None:
    write_mlx(tmp_path, 4)
    keys = json.loads((tmp_path / "config.json").read_text())
    write_config(tmp_path, {**keys, "quantization": [4]})
    with pytest.raises(ModelFolderError, match="'quantization'"):
        generate.load(tmp_path, cache=False)
