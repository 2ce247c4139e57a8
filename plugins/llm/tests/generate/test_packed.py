"""Folders in the forms of GPTQ, AWQ and compressed-tensors of integers compute what their dequantized weights do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.packed import read_weights
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json
from safetensors_file import write_safetensors
from test_checkpoints import write_checkpoint
from test_gguf_container import values_of

GROUP = 32
Arrays = dict[str, np.ndarray]
Packer = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Arrays]
"""Takes codes [columns, K], scales and codes of 0 [columns, groups], and the group of each element of K."""


def words(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return rows of codes as one stream of bits in words of 32, the lowest first."""
    fields = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8).reshape(len(codes), -1)
    padded = np.pad(fields, ((0, 0), (0, -fields.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view("<i4")


def gptq(bits: int, offset: int) -> Packer:
    def pack(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, groups: np.ndarray) -> Arrays:
        return {
            "qweight": words(codes, bits).T, "scales": scales.T.astype(np.float16), "g_idx": groups.astype(np.int32),
            "qzeros": words((zeros.T - offset) & ((1 << bits) - 1), bits),
        }  # fmt: skip

    return pack


def awq(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, groups: np.ndarray) -> Arrays:
    def shuffled(rows: np.ndarray) -> np.ndarray:
        return words(rows.reshape(len(rows), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(rows.shape), 4)

    return {"qweight": shuffled(codes.T), "qzeros": shuffled(zeros.T), "scales": scales.T.astype(np.float16)}


def awq_rows(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, groups: np.ndarray) -> Arrays:
    """Pack in the layout `gemv`: with groups of 32, rows are padded to four words of codes of 0, and as many scales."""

    def padded(rows: np.ndarray) -> np.ndarray:
        return np.pad(rows, ((0, 0), (0, -rows.shape[1] % 32)))

    return {
        "qweight": words(codes, 4), "qzeros": words(padded(zeros), 4), "scales": padded(scales).astype(np.float16)
    }  # fmt: skip


def compressed(bits: int, symmetric: bool) -> Packer:
    def pack(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, groups: np.ndarray) -> Arrays:
        tensors = {
            "weight_packed": words(codes, bits), "weight_scale": scales.astype(np.float16),
            "weight_shape": np.array(codes.shape, np.int64), "weight_g_idx": groups.astype(np.int32),
        }  # fmt: skip
        return tensors if symmetric else {**tensors, "weight_zero_point": words(zeros.T, bits).T}

    return pack


def gptq_config(bits: int, form: str) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "checkpoint_format": form}


def compressed_config(bits: int, symmetric: bool) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": symmetric}
    groups = {"group_0": {"weights": weights, "targets": ["Linear"]}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}


AWQ_CONFIG = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
FORMS: dict[str, tuple[int, Packer, dict[str, Any]]] = {
    **{f"gptq {bits}": (bits, gptq(bits, 1), gptq_config(bits, "gptq")) for bits in (2, 3, 4, 8)},
    "gptq_v2 4": (4, gptq(4, 0), gptq_config(4, "gptq_v2")),
    "gptq in order": (4, gptq(4, 1), gptq_config(4, "gptq")),
    "gptq 3 in order": (3, gptq(3, 1), gptq_config(3, "gptq")),
    "awq": (4, awq, AWQ_CONFIG),
    "awq gemv": (4, awq_rows, {**AWQ_CONFIG, "version": "gemv"}),
    "compressed 4": (4, compressed(4, True), compressed_config(4, True)),
    "compressed 8": (8, compressed(8, False), compressed_config(8, False)),
    "compressed in order": (4, compressed(4, False), compressed_config(4, False)),
}


def write_packed(folder: Path, name: str) -> tuple[Arrays, Arrays]:
    """Write one layer of the example's model with products in a form; return its tensors and the dequantized ones."""
    tensors = {key: array for key, array in write_checkpoint(folder).items() if ".layers.1." not in key}
    write_keys(folder, num_hidden_layers=1)
    return write_form(folder, name, tensors)


def write_form(folder: Path, name: str, tensors: Arrays) -> tuple[Arrays, Arrays]:
    """Write a model with products in a form; return its tensors and the dequantized ones."""
    bits, pack, config = FORMS[name]
    random, packed, plain = np.random.default_rng(0), {}, {}
    for key, array in tensors.items():
        if not key.endswith("_proj.weight"):
            packed[key] = plain[key] = array
            continue
        columns, depth = array.shape
        index = np.arange(depth) // GROUP
        if "in order" in name:
            index = random.permutation(index)
        groups = depth // GROUP
        zeros = random.integers(1, 1 << bits, (columns, groups))
        if name == "compressed 4":
            zeros[:] = 8
        scales = (random.uniform(0.5, 1.5, (columns, groups)) * 0.3 / (1 << bits)).astype(np.float16)
        codes = random.integers(0, 1 << bits, array.shape)
        values = (codes - zeros[:, index]) * scales.astype(np.float32)[:, index]
        packed |= {key.replace("weight", part): each for part, each in pack(codes, scales, zeros, index).items()}
        plain[key] = values.astype(np.float32)
    write_safetensors(folder / "model.safetensors", packed)
    write_keys(folder, quantization_config=config)
    return packed, plain


def write_keys(folder: Path, **keys: Any) -> None:
    """Write keys of a configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}), encoding="utf-8")


def logits(folder: Path, **options: Any) -> np.ndarray:
    generator = generate.load(folder, cache=False, **options).generator(chunk_size=7)
    generator.append([5, 9, 33, 7, 2, 80, 41, 17, 6])
    return generator.logits().reshape(-1)


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, tmp_path: Path) -> None:
    """Matrices have the values that the form defines."""
    packed, plain = write_packed(tmp_path, name)
    tensors = read_weights(tmp_path / "model.safetensors", read_json(tmp_path / "config.json"))
    assert tensors.keys() == plain.keys() and len(packed) > len(plain)
    for key, expected in plain.items():
        weights = tensors[key]
        if isinstance(weights, BlockWeights):
            zeros = 0 if weights.zeros is None else np.repeat(weights.zeros.astype(np.float32), weights.block, 1)
            scales = np.repeat(weights.scales.astype(np.float32), weights.block, 1)
            values = values_of(replace(weights, scales=np.ones_like(weights.scales)))
            weights = (values - zeros) * scales
            if tensors[key].order is not None:
                weights = weights[:, np.argsort(tensors[key].order)]
            np.testing.assert_array_equal(tensors[key].values(), expected)
        np.testing.assert_array_equal(weights, expected)


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ("gptq in order", "awq", "awq gemv", "gptq 3", "compressed 8"))
def test_logits(name: str, tmp_path: Path) -> None:
    """Products read the packed matrices and compute what those with the dequantized ones do."""
    _, plain = write_packed(tmp_path / "packed", name)
    write_safetensors(tmp_path / "model.safetensors", plain)
    keys = json.loads((tmp_path / "packed" / "config.json").read_text())
    del keys["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(keys), encoding="utf-8")
    generators = [
        generate.load(folder, cache=False).generator(chunk_size=7) for folder in (tmp_path / "packed", tmp_path)
    ]
    for generator in generators:
        generator.append([5, 9, 33, 7, 2, 80, 41, 17, 6])
    found, expected = (generator.logits() for generator in generators)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"qzeros": np.zeros((64, 0), np.int32)}, "qzeros': expected 2 codes of 0 of each row, found 0"),
        ({"qzeros": np.zeros((8, 4), np.int32)}, r"qzeros': expected int32\[64, any\], found int32\[8, 4\]"),
        ({"scales": np.zeros((64, 2), np.float16)}, r"scales': expected .*\[64, 32\], found float16\[64, 2\]"),
        ({"qweight": np.zeros((64, 7), np.int32)}, "rows of 56 elements do not divide into groups of 32"),
    ],
)
def test_damaged_rows_of_awq(changes: Arrays, text: str, tmp_path: Path) -> None:
    packed, _ = write_packed(tmp_path, "awq gemv")
    changed = {f"model.layers.0.self_attn.q_proj.{part}": array for part, array in changes.items()}
    write_safetensors(tmp_path / "model.safetensors", {**packed, **changed})
    with pytest.raises(ModelFolderError, match=text):
        generate.load(tmp_path, cache=False)


def test_what_is_refused(tmp_path: Path) -> None:
    packed, _ = write_packed(tmp_path, "gptq 4")
    path, key = tmp_path / "config.json", "model.layers.0.self_attn.q_proj"
    config = json.loads(path.read_text())

    def refusal(changes: dict[str, Any], tensors: dict[str, np.ndarray | None] | None = None) -> str:
        changed = {**packed, **{f"{key}.{part}": each for part, each in (tensors or {}).items()}}
        kept = {name: each for name, each in changed.items() if each is not None}
        write_safetensors(tmp_path / "model.safetensors", kept)
        stored = {**config["quantization_config"], **changes}
        path.write_text(json.dumps({**config, "quantization_config": stored}), encoding="utf-8")
        with pytest.raises(ModelFolderError) as caught:
            generate.load(tmp_path, cache=False)
        return str(caught.value)

    methods = "gptq, awq, compressed-tensors, fp8, mxfp4"
    wanted = f"'quantization_config.quant_method': expected {methods}, found 'bits'"
    assert wanted in refusal({"quant_method": "bits"})
    assert "'quantization_config.bits': expected 2 or 3 or 4 or 8, found 5" in refusal({"bits": 5})
    assert "'quantization_config.bits': expected an integer from 1 to 32, found '4'" in refusal({"bits": "4"})
    assert "'quantization_config.group_size': expected an integer" in refusal({"group_size": 0})
    assert f"tensor '{key}': rows of 64 elements do not divide into groups of 24" in refusal({"group_size": 24})
    assert f"tensor '{key}.scales': expected float16 or bfloat16 or float32[4, 64], found float16[2, 64]" in refusal(
        {"group_size": 16}
    )
    assert "'quantization_config.checkpoint_format': expected gptq or gptq_v2, found 'marlin'" in refusal(
        {"checkpoint_format": "marlin"}
    )
    assert f"there is no tensor '{key}.qzeros' (int32[2, 8]), which 'quantization_config' requires" in refusal(
        {}, {"qzeros": None}
    )
    assert f"tensor '{key}.qweight': expected int32[any, any], found float32[8, 64]" in refusal(
        {}, {"qweight": np.ones((8, 64), np.float32)}
    )
    assert f"tensor '{key}.g_idx': expected each of 2 groups 32 times" in refusal({}, {"g_idx": np.ones(64, np.int32)})
    infinite = np.full((2, 64), np.inf, np.float16)
    assert f"tensor '{key}.scales': a scale is not a finite number" in refusal({}, {"scales": infinite})
    assert (
        f"tensor '{key}.weight': expected [64, 64] of f32, f16 or bf16, found u4 in blocks of 32: [32, 64]"
        in refusal(
            {},
            {
                "qweight": packed[f"{key}.qweight"][:, :32],
                "qzeros": packed[f"{key}.qzeros"][:, :4],
                "scales": packed[f"{key}.scales"][:, :32],
            },
        )
    )
    assert "'quantization_config.version': expected gemm or gemv, found 'gemv_fast'" in refusal(
        {"quant_method": "awq", "version": "gemv_fast"}
    )
    assert "'quantization_config.format': expected pack-quantized or float-quantized, found 'marlin-24'" in refusal(
        {"quant_method": "compressed-tensors", "format": "marlin-24"}
    )
