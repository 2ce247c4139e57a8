"""Keys and shapes of tensors of GGUF files: what is refused, and hostile values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import write_gguf
from mirlo_llm.generate.config import read_config
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.decoder import import_gguf

pytest.importorskip("gguf")

KEYS = {
    "llama.embedding_length": 64, "llama.feed_forward_length": 32, "llama.block_count": 1, "llama.context_length": 64,
    "llama.attention.head_count": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.eos_token_id": 1, "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0,
    "llama.attention.value_length": 32, "llama.rope.dimension_count": 32,
}  # fmt: skip
SHAPES = {
    "token_embd.weight": (16, 64), "output_norm.weight": (64,), "blk.0.attn_norm.weight": (64,),
    "blk.0.ffn_norm.weight": (64,), "rope_freqs.weight": (16,),
    **{f"blk.0.attn_{part}.weight": (64, 64) for part in ("q", "k", "v", "output")},
    "blk.0.ffn_gate.weight": (32, 64), "blk.0.ffn_up.weight": (32, 64), "blk.0.ffn_down.weight": (64, 32),
}  # fmt: skip


def write_small(path: Path, changes: dict[str, Any]) -> Path:
    """Write a model with other keys and shapes of tensors; None leaves one out."""
    keys = {**KEYS, **{key: value for key, value in changes.items() if not key.endswith(".weight")}}
    shapes = {**SHAPES, **{key: shape for key, shape in changes.items() if key.endswith(".weight")}}
    tensors = {key: np.ones(shape, np.float32) for key, shape in shapes.items() if shape is not None}
    name = keys.pop("general.architecture", "llama")
    return write_gguf(path, name, keys, tensors, "Q8_0", {"blk.0.ffn_up.weight": "F32"})


def read_graph(path: Path) -> None:
    config = read_config(path)
    assert config.gguf is not None
    import_gguf(config.model, config.gguf)


HEADS, VALUES = "llama.attention.head_count", "llama.attention.value_length"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": (
        {"general.architecture": "bert"}, "'bert' is not an architecture that is read from GGUF files: llama, qwen2"
    ),
    "experts": (
        {"general.architecture": "phi3", "phi3.expert_count": 8},
        "'phi3.expert_count': mixtures of experts of 'phi3' are not supported",
    ),
    "several files": ({"split.count": 3}, "'split.count': the model is in several files: join them"),
    "heads": ({HEADS: 0}, f"'{HEADS}': expected an integer from 1"),
    "groups": ({f"{HEADS}_kv": 3}, f"'{HEADS}_kv': expected an integer"),
    "heads of each layer": ({HEADS: [2, 2]}, f"'{HEADS}': expected an integer from 1"),
    "values": ({VALUES: 16}, f"'{VALUES}': heads of 32 elements in keys and 16 in values are not supported"),
    "rotations": ({"llama.rope.scaling.type": "no"}, "expected default, linear, llama3, longrope, mrope or yarn"),
    "an end": ({"tokenizer.ggml.eos_token_id": "a"}, "'tokenizer.ggml.eos_token_id': expected a token, found 'a'"),
    "a tensor that is missing": ({"blk.0.ffn_up.weight": None}, "there is no tensor 'blk.0.ffn_up.weight'"),
    "a tensor too many": ({"more.weight": (2,)}, "1 tensors are not those of the architecture, such as 'more.weight'"),
    "another shape": (
        {"blk.0.attn_q.weight": (32, 64)},
        "tensor 'blk.0.attn_q.weight': expected [64, 64] of f32, f16 or bf16, found i8 in blocks of 32: [32, 64]",
    ),
    "no embedding": ({"token_embd.weight": None}, "'token_embd.weight': expected an integer from 1"),
    "factors": ({"rope_freqs.weight": (8,)}, "'rope_freqs.weight': expected 16 elements, found 8"),
    "factors of short texts": (
        {"rope_factors_short.weight": (8,), "llama.rope.scaling.type": "longrope"}, "expected 16 numbers above 0"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    changes, expected = REFUSED[name]
    path = write_small(tmp_path / "a.gguf", changes)
    with pytest.raises(ModelFolderError) as caught:
        read_graph(path)
    assert expected in str(caught.value) and str(path) in str(caught.value)


def test_hostile_keys(tmp_path: Path) -> None:
    """A file with other values of its keys gives a graph or is refused with our error."""
    path = tmp_path / "a.gguf"
    read_graph(write_small(path, {}))
    random, refused = np.random.default_rng(0), 0
    values: list[Any] = [0, 1, 3, 2**31, 1e30, -0.5, float("nan"), True, "", "linear", [2, 2], ["a"], [0.5]]
    for key in KEYS:
        for value in random.permutation(np.array(values, object))[:6]:
            try:
                read_graph(write_small(path, {key: value}))
            except ModelFolderError as error:
                refused += 1
                assert str(path) in str(error)
    assert refused > 40
