"""Files of DeepSeek: the products of each head become those of the older form, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import decode, write_gguf
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions, LatentOptions, read_options
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import read_gguf
from mirlo_llm.generate.gguf.decoder import joined_latents
from mirlo_llm.generate.gguf.keys import decoder_keys

gguf = pytest.importorskip("gguf")

HEADS, RANK, PLAIN, ROTATED, VALUES = 3, 64, 32, 16, 96
LATENT = LatentOptions(RANK, 0, PLAIN, ROTATED, VALUES)
KEYS = {
    "embedding_length": 64, "feed_forward_length": 48, "block_count": 3, "context_length": 64,
    "attention.head_count": HEADS, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.kv_lora_rank": RANK, "attention.q_lora_rank": 24, "attention.key_length": RANK + ROTATED,
    "attention.value_length": RANK, "attention.key_length_mla": PLAIN + ROTATED, "attention.value_length_mla": VALUES,
    "rope.dimension_count": ROTATED, "rope.freq_base": 10000.0, "leading_dense_block_count": 1, "expert_count": 8,
    "expert_used_count": 2, "expert_shared_count": 1, "expert_feed_forward_length": 32, "expert_weights_scale": 2.5,
    "expert_weights_norm": True, "expert_gating_func": 2, "expert_group_count": 4, "expert_group_used_count": 2,
    "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.yarn_log_multiplier": 0.1,
    "rope.scaling.original_context_length": 32,
}  # fmt: skip


def options_of(path: Path, changes: dict[str, Any]) -> DecoderOptions:
    """Return what a file with other keys says; None leaves one out."""
    keys = {f"deepseek2.{key}": value for key, value in {**KEYS, **changes}.items() if value is not None}
    write_gguf(path, "deepseek2", keys, {"token_embd.weight": np.zeros((16, 64), np.float32)})
    return read_options(decoder_keys(read_gguf(path)))


def test_keys(tmp_path: Path) -> None:
    """Both versions, and lengths of heads of newer and older files, are distinguished."""
    options = options_of(tmp_path / "a.gguf", {})
    experts = options.layers[1].experts
    assert options.latent == LatentOptions(RANK, 24, PLAIN, ROTATED, VALUES) and options.size == RANK + ROTATED
    assert options.layers[0].experts is None and experts is not None and options.layers[0].rotation_scale == 1
    assert (experts.scores, experts.groups, experts.chosen_groups, experts.shared) == ("sigmoid", 4, 2, 32)
    assert experts.is_corrected and experts.is_normalized and experts.weight_scale == 2.5
    older = {
        "attention.key_length": PLAIN + ROTATED, "attention.value_length": VALUES, "attention.key_length_mla": None,
        "attention.value_length_mla": None, "attention.q_lora_rank": None, "attention.head_count_kv": HEADS,
        "expert_gating_func": None, "expert_weights_norm": None, "expert_group_count": None,
        "expert_group_used_count": None,
    }  # fmt: skip
    options = options_of(tmp_path / "b.gguf", older)
    experts = options.layers[1].experts
    assert options.latent == LATENT and experts is not None
    assert (experts.scores, experts.groups, experts.is_normalized, experts.is_corrected) == ("softmax", 1, False, False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"attention.key_length_mla": ROTATED}, "key_length_mla': expected more than the 16 elements that are rotated"),
        ({"attention.key_length_mla": "a"}, "'deepseek2.attention.key_length_mla': expected an integer from 1"),
        ({"attention.kv_lora_rank": None}, "'deepseek2.attention.kv_lora_rank' (an integer) is missing"),
        ({"rope.dimension_count": None}, "'deepseek2.rope.dimension_count' (an integer) is missing"),
        ({"rope.dimension_count": 3}, "'deepseek2.rope.freq_base': no rotation of 3 of 3 elements"),
        ({"expert_group_count": 3}, "'deepseek2.expert_group_count': 2 of 8 experts are not in 2 of 3 groups"),
        ({"expert_gating_func": -1.5}, "'deepseek2.expert_gating_func': expected an integer from 0"),
        ({"attention.value_length_mla": 0}, "'v_head_dim': expected an integer from 1"),
    ],
)
def test_keys_that_are_refused(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError) as caught:
        options_of(tmp_path / "a.gguf", changes)
    assert expected in str(caught.value) and "a.gguf" in str(caught.value)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_products_of_heads_are_joined(kind: str, tmp_path: Path) -> None:
    """Rows of the joined matrix are the keys, then the values of a head, as the package `gguf` decodes them."""
    random = np.random.default_rng(0)
    arrays = {
        "blk.0.attn_k_b.weight": random.standard_normal((HEADS, RANK, PLAIN)).astype(np.float32),
        "blk.0.attn_v_b.weight": random.standard_normal((HEADS, VALUES, RANK)).astype(np.float32),
    }
    path = write_gguf(tmp_path / "a.gguf", "deepseek2", {}, arrays, kind)
    stored = {tensor.name: decode(tensor.data, tensor.tensor_type.name) for tensor in gguf.GGUFReader(path).tensors}
    keys, values = stored.values()
    x = random.standard_normal(RANK).astype(np.float32)
    expected = np.concatenate([np.einsum("hrp,r->hp", keys, x), np.einsum("hvr,r->hv", values, x)], 1)
    tensors = {}
    for name, tensor in read_gguf(path).tensors.items():
        tensors[name] = tensor.kind.read(tensor.data, (tensor.shape[0] * tensor.shape[1], tensor.shape[2]))
    joined = dict(joined_latents(path, tensors, HEADS, LATENT))
    assert list(joined) == ["blk.0.attn_kv_b.weight"]
    found = joined["blk.0.attn_kv_b.weight"]
    assert isinstance(found, np.ndarray) and found.shape == (HEADS * (PLAIN + VALUES), RANK)
    np.testing.assert_allclose((found @ x).reshape(HEADS, -1), expected, rtol=1e-4, atol=1e-5)
    for changed, text in (
        ({"blk.0.attn_v_b.weight": tensors["blk.0.attn_k_b.weight"]}, r"attn_v_b\.weight': expected \[288, 64\]"),
        ({"blk.0.attn_k_b.weight": np.zeros((5, 32), np.float32)}, r"\[192, 32\] in its rows, found \[5, 32\]"),
    ):
        with pytest.raises(ModelFolderError, match=text):
            dict(joined_latents(path, {**tensors, **changed}, HEADS, LATENT))
    with pytest.raises(ModelFolderError, match=r"attn_v_b\.weight': expected \[288, 64\] in its rows, found none"):
        dict(joined_latents(path, {"blk.0.attn_k_b.weight": tensors["blk.0.attn_k_b.weight"]}, HEADS, LATENT))
