"""Folders of decoders with a number of equal layers, and with experts, which cost no time to write."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors_file import write_safetensors

HIDDEN, HEAD, VOCABULARY = 32, 16, 64


def write_layers(
    folder: Path, layers: int, experts: int = 0, chosen: int = 2, seed: int = 0, kind: str = "qwen3"
) -> Path:
    """Write a model of an architecture, with this many experts a layer if there are any."""
    config = {
        "model_type": "qwen3_moe" if experts else kind, "hidden_size": HIDDEN, "num_hidden_layers": layers,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HEAD, "intermediate_size": 64,
        "vocab_size": VOCABULARY, "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    if experts:
        config |= {
            "num_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": 32, "norm_topk_prob": True,
            "decoder_sparse_step": 1, "mlp_only_layers": [],
        }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }  # fmt: skip
    for i in range(layers):
        for name, shape in _layer(experts).items():
            if kind == "qwen3" or name not in ("self_attn.q_norm.weight", "self_attn.k_norm.weight"):
                shapes[f"model.layers.{i}.{name}"] = shape
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: rng.standard_normal(shape).astype(np.float32) * 0.2 for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def _layer(experts: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (2 * HEAD, HIDDEN), "self_attn.k_proj.weight": (HEAD, HIDDEN),
        "self_attn.v_proj.weight": (HEAD, HIDDEN), "self_attn.o_proj.weight": (HIDDEN, 2 * HEAD),
        "self_attn.q_norm.weight": (HEAD,), "self_attn.k_norm.weight": (HEAD,),
    }  # fmt: skip
    inner = 32 if experts else 64
    parts = {"gate_proj": (inner, HIDDEN), "up_proj": (inner, HIDDEN), "down_proj": (HIDDEN, inner)}
    if not experts:
        return shapes | {f"mlp.{part}.weight": shape for part, shape in parts.items()}
    shapes["mlp.gate.weight"] = (experts, HIDDEN)
    for i in range(experts):
        shapes |= {f"mlp.experts.{i}.{part}.weight": shape for part, shape in parts.items()}
    return shapes
