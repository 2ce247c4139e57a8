"""GGUF files of models of text and images, as converters for llama.cpp write them: the text, and an encoder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf_files import keys_of, tensors_of, write_gguf
from grid_models import PATCH, STOP, VOCABULARY, write_grid_model
from mirlo_llm.generate.checkpoints.image_options import split_tensors
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint

PROJECTORS = {"llava": "mlp", "gemma3": "gemma3", "qwen2_vl": "qwen2vl_merger", "qwen2_5_vl": "qwen2.5vl_merger"}
TEXTS = {"llava": "llama", "gemma3": "gemma3", "qwen2_vl": "qwen2vl", "qwen2_5_vl": "qwen2vl"}
TEXT_KINDS = {"llava": "llama", "gemma3": "gemma3_text", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2"}
AROUND = {"llava": ("<s>", "</s>", "<image>"), "gemma3": ("<start_of_image>", "<end_of_image>", "<image_soft_token>")}
GRID_AROUND = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
MEAN, DEVIATION = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]
GRID_KEYS: dict[str, dict[str, Any]] = {
    kind: {
        "embedding_length": 32, "feed_forward_length": 32, "block_count": depth, "attention.head_count": 2,
        "image_size": 560, "patch_size": PATCH, "projection_dim": 32, "attention.layer_norm_epsilon": 1e-6,
        "image_min_pixels": 64, "image_max_pixels": 2000,
    }
    for kind, depth in (("qwen2_vl", 2), ("qwen2_5_vl", 3))
}  # fmt: skip
GRID_KEYS["qwen2_5_vl"] |= {"n_wa_pattern": 2, "window_size": 16}


def tokens_of(kind: str, count: int, first_control: int = 60) -> dict[str, Any]:
    """Return the keys of a tokenizer of single characters, with tokens for images after them."""
    texts = ["\u0120", "\u010a", *map(chr, range(ord("A"), ord("A") + first_control - 3)), "AB"]
    texts += [*AROUND.get(kind, GRID_AROUND), *(f"<extra {i}>" for i in range(count))]
    kinds = [1] * first_control + [3] * (count - first_control)
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": texts[:count],
        "tokenizer.ggml.token_type": kinds[:count], "tokenizer.ggml.merges": [f"{texts[2]} {texts[3]}"],
    }  # fmt: skip


def write_text(
    path: Path, kind: str, tensors: Mapping[str, np.ndarray], keys: Mapping[str, Any], **others: Any
) -> Path:
    """Write the file of the text; `keys` are those of its decoder, without the architecture."""
    decoder, _ = split_tensors(dict(tensors))
    name = TEXTS[kind]
    heads, groups = (keys[f"{name}.attention.head_count{end}"] for end in ("", "_kv"))
    return write_gguf(path, name, {**keys, **others}, tensors_of(decoder, TEXT_KINDS[kind], heads, groups))


def text_keys(kind: str, config: Any) -> dict[str, Any]:
    """Return the keys of a decoder, by its configuration in transformers."""
    keys = keys_of(config, TEXTS[kind])
    rotation = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if "mrope_section" in rotation:
        keys[f"{TEXTS[kind]}.rope.dimension_sections"] = [*rotation["mrope_section"], 0]
    return {key: value for key, value in keys.items() if key != f"{TEXTS[kind]}.use_parallel_residual"}


def write_projector(
    path: Path, kind: str, tensors: Mapping[str, np.ndarray], keys: Mapping[str, Any], stored: str = "F32"
) -> Path:
    """Write the file of the encoder; `keys` are those of `clip.vision`."""
    _, tower = split_tensors(dict(tensors))
    layers = keys["block_count"]
    whole: dict[str, Any] = {
        "clip.has_vision_encoder": True, "clip.projector_type": PROJECTORS[kind], "clip.use_gelu": kind == "gemma3",
        "clip.use_silu": kind == "qwen2_5_vl", "clip.vision.image_mean": MEAN, "clip.vision.image_std": DEVIATION,
        **{f"clip.vision.{key}": value for key, value in keys.items()},
    }  # fmt: skip
    names = legacy_names(tower) if kind == "llava" else mapped_names(tower, layers)
    return write_gguf(path, "clip", whole, names, stored, dict.fromkeys(PLAIN, "F32"))


PLAIN = ("v.patch_embd.weight", "v.patch_embd.weight.1", "v.position_embd.weight", "mm.input_projection.weight")
"""Tensors whose rows are not whole blocks."""


def mapped_names(tower: Mapping[str, np.ndarray], layers: int) -> dict[str, np.ndarray]:
    """Return tensors under the names that the package `gguf` has for them."""
    import gguf

    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(layers, 3))
    result: dict[str, np.ndarray] = {}
    for name, array in tower.items():
        if name.startswith("vision_tower.head."):
            continue
        if "patch_embed.proj" in name:
            pictures = ("v.patch_embd.weight", "v.patch_embd.weight.1")
            result |= {picture: array[:, :, i] for i, picture in enumerate(pictures)}
            continue
        parts = np.split(array, 3) if ".qkv." in name else [array]
        for part, each in zip("qkv", parts, strict=False):
            full = name.replace("qkv", part).replace("_weight", ".weight")
            full = full.replace("vision_tower.", "vision_tower.vision_model.")
            mapped = known.get_name(full, try_suffixes=(".weight", ".bias"))
            assert mapped is not None, full
            result[mapped] = each + 1 if "soft_emb_norm" in name else each
    return result


def legacy_names(tower: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return tensors under the names of the converter for LLaVA, which gives the products of layers each other's."""
    renamed = (
        (r"^vision_tower\.", "v."), (r"^multi_modal_projector\.", "mm."), ("linear_1", "0"), ("linear_2", "2"),
        (r"encoder\.layers", "blk"), (r"embeddings\.", ""), (r"_proj\b", ""), (r"self_attn\.", "attn_"),
        ("layer_norm", "ln"), ("layernorm", "ln"), (r"mlp\.fc1", "ffn_down"), (r"mlp\.fc2", "ffn_up"),
        ("embedding", "embd"), ("layrnorm", "ln"),
    )  # fmt: skip
    result = {}
    for name, array in tower.items():
        if "post_layernorm" in name:
            continue
        for pattern, text in renamed:
            name = re.sub(pattern, text, name)
        result[name] = array
    return result


def write_grid_files(folder: Path, **others: Any) -> tuple[Path, Path]:
    """Write the files of the text and of the encoder with the weights of the tests' Qwen2.5-VL; return their paths."""
    tensors = {
        name: np.asarray(each) for name, each in read_checkpoint(write_grid_model(folder) / "model.safetensors").items()
    }
    name = "qwen2vl"
    keys = {
        "embedding_length": 32, "feed_forward_length": 48, "block_count": 2, "attention.head_count": 2,
        "attention.head_count_kv": 1, "context_length": 256, "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 10000.0, "rope.dimension_sections": [2, 3, 3, 0],
    }  # fmt: skip
    others = {"tokenizer.ggml.eos_token_id": STOP, **tokens_of("qwen2_5_vl", VOCABULARY), **others}
    text = write_text(folder / "a.gguf", "qwen2_5_vl", tensors, {f"{name}.{k}": v for k, v in keys.items()}, **others)
    return text, write_projector(folder / "mmproj.gguf", "qwen2_5_vl", tensors, GRID_KEYS["qwen2_5_vl"])
