"""GGUF files written by the package `gguf`: small ones of any type and architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_gguf(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    kind: str = "F32",
    others: Mapping[str, str] | None = None,
) -> Path:
    """Write tensors: matrices as `kind`, or as `others` says by name; the rest as f32."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        if isinstance(value, (list, tuple)):
            writer.add_array(key, value)
        else:
            kinds = {bool: "BOOL", str: "STRING", int: "UINT32", float: "FLOAT32"}
            writer.add_key_value(key, value, gguf.GGUFValueType[kinds[type(value)]])
    for name, array in tensors.items():
        chosen = gguf.GGMLQuantizationType[(others or {}).get(name, kind) if array.ndim > 1 else "F32"]
        raw = encode(array, chosen.name)
        writer.add_tensor(name, raw, raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def encode(array: np.ndarray, kind: str) -> np.ndarray:
    """Return an array as a type; types without a quantizer get random codes with small scales."""
    import gguf

    code = gguf.GGMLQuantizationType[kind]
    try:
        raw: np.ndarray = gguf.quants.quantize(array.astype(np.float32), code)
        return raw
    except NotImplementedError:
        return random_blocks(array.shape, kind, float(array.std()))


SCALES = {"Q2_K": ((80, 7.0), (82, 7.0)), "Q3_K": ((108, 80.0),), "Q4_K": ((0, 300.0), (2, 300.0)),
          "Q5_K": ((0, 600.0), (2, 300.0)), "Q6_K": ((208, 1500.0),), "IQ4_NL": ((0, 60.0),)}  # fmt: skip
"""Where f16 scales of a block are, and by how much values are larger."""


def random_blocks(shape: tuple[int, ...], kind: str, deviation: float, seed: int = 0) -> np.ndarray:
    """Return random blocks of a type whose values have about a standard deviation."""
    import gguf

    elements, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = np.random.default_rng(seed).integers(0, 256, (*shape[:-1], shape[-1] // elements, nbytes), dtype=np.uint8)
    for at, factor in SCALES[kind]:
        blocks[..., at : at + 2] = np.array([deviation / factor], np.float16).view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def decode(raw: np.ndarray, kind: str) -> np.ndarray:
    """Return the values of a tensor in f32."""
    import gguf

    with np.errstate(all="ignore"):
        values: np.ndarray = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    return values


_GPT2 = {
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip
INTERLEAVED = ("llama", "mistral", "mixtral", "granite", "olmo", "smollm3")
NORM_OFFSETS = ("gemma", "gemma2", "gemma3_text")
_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate": "ffn_gate_exps", "mlp.experts.up": "ffn_up_exps",
    "mlp.experts.down": "ffn_down_exps", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "self_attn.k_b_proj": "attn_k_b", "self_attn.v_b_proj": "attn_v_b",
}  # fmt: skip


CORRECTION = "e_score_correction_bias"


def tensors_of(state: Mapping[str, np.ndarray], kind: str, heads: int, kv_heads: int) -> dict[str, np.ndarray]:
    """Return a model's tensors as converters for llama.cpp write them."""
    result = {}
    is_around = any("pre_feedforward_layernorm" in name for name in state)
    is_behind = any("post_feedforward_layernorm" in name for name in state)
    behind = "post_attention_norm" if is_around or is_behind else "ffn_norm"
    names = {**_PARTS, "post_attention_layernorm": behind}
    for name, array in state.items():
        base, _, end = name.rpartition(".")
        if base.startswith("transformer."):
            parts = base.removeprefix("transformer.").split(".", 2)
            new = f"blk.{parts[1]}.{_GPT2[parts[2]]}.{end}" if parts[0] == "h" else f"{_GPT2[parts[0]]}.{end}"
            array = array.T if ".c_" in base and array.ndim == 2 else array
        elif base.startswith("model.layers."):
            _, _, layer, part = base.split(".", 3)
            if kind in INTERLEAVED and part in ("self_attn.q_proj", "self_attn.k_proj"):
                count = heads if "q_proj" in part else kv_heads
                halves = array.reshape(count, 2, len(array) // count // 2, *array.shape[1:])
                array = halves.swapaxes(1, 2).reshape(array.shape)
            new = f"blk.{layer}.{names[part]}.{end}" if end != CORRECTION else f"blk.{layer}.exp_probs_b.bias"
        else:
            new = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[base]
            new = f"{new}.{end}"
        result[new] = array + 1 if kind in NORM_OFFSETS and base.endswith("norm") else array
    return result


def _kv_heads(config: Any) -> int:
    """Return the number of heads of keys; GPT-2 has no such field."""
    return int(config.num_attention_heads if config.model_type == "gpt2" else config.num_key_value_heads)


def keys_of(config: Any, name: str) -> dict[str, Any]:
    """Return the keys of a decoder, by its configuration in transformers."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    theta = getattr(config, "rope_parameters", None) or {"rope_theta": 10000.0, "rope_type": "default"}
    theta = theta.get("full_attention", theta)
    inner = 4 * config.hidden_size if config.model_type == "gpt2" else config.intermediate_size
    epsilon = {"stablelm": "layer_norm_eps", "gpt2": "layer_norm_epsilon"}.get(config.model_type, "rms_norm_eps")
    key = f"attention.layer_norm_{'rms_' if epsilon == 'rms_norm_eps' and name != 'olmo' else ''}epsilon"
    keys = {
        "embedding_length": config.hidden_size, "feed_forward_length": inner, "block_count": config.num_hidden_layers,
        "attention.head_count": config.num_attention_heads, "attention.head_count_kv": _kv_heads(config),
        "attention.key_length": size, "attention.value_length": size, key: getattr(config, epsilon, 1e-5),
        "rope.dimension_count": int(size * theta.get("partial_rotary_factor", 1.0)),
        "context_length": config.max_position_embeddings,
    }  # fmt: skip
    keys["rope.freq_base"] = float(theta["rope_theta"])
    if theta["rope_type"] == "yarn":
        trained = theta["original_max_position_embeddings"]
        keys |= {"rope.scaling.type": "yarn", "rope.scaling.original_context_length": trained}
        keys["rope.scaling.factor"] = float(theta["factor"])
    if theta["rope_type"] == "longrope":
        keys["rope.scaling.original_context_length"] = theta["original_max_position_embeddings"]
    if theta["rope_type"] == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(theta["factor"])}
    fields = {
        "attention_multiplier": "attention.scale", "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale",
        "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
        "sliding_window": "attention.sliding_window", "clip_qkv": "attention.clamp_kqv",
        "use_parallel_residual": "use_parallel_residual", "num_local_experts": "expert_count",
        "num_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    }  # fmt: skip
    if name == "deepseek2":
        keys |= latent_keys(config, theta)
    keys |= {key: getattr(config, field) for field, key in fields.items() if getattr(config, field, None) is not None}
    ids = {"bos": config.bos_token_id, "eos": config.eos_token_id, "padding": config.pad_token_id}
    special = {f"tokenizer.ggml.{key}_token_id": token for key, token in ids.items() if token is not None}
    return {**{f"{name}.{key}": value for key, value in keys.items()}, **special}


def latent_keys(config: Any, theta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of DeepSeek, as converters for llama.cpp write them."""
    rotated, is_third = config.qk_rope_head_dim, config.model_type == "deepseek_v3"
    fields = {
        "kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank",
        "n_routed_experts": "expert_count", "n_shared_experts": "expert_shared_count",
        "routed_scaling_factor": "expert_weights_scale", "first_k_dense_replace": "leading_dense_block_count",
    }  # fmt: skip
    keys = {key: getattr(config, field) for field, key in fields.items() if getattr(config, field) is not None}
    keys |= {"expert_gating_func": 2 if is_third else 1, "expert_weights_norm": bool(config.norm_topk_prob)}
    if is_third or config.topk_method != "greedy":
        keys |= {"expert_group_count": config.n_group, "expert_group_used_count": config.topk_group}
    lengths = {"key": config.qk_nope_head_dim + rotated, "value": config.v_head_dim}
    if config.q_lora_rank is None:  # as files were before they had the products of each head
        keys |= {f"attention.{kind}_length": length for kind, length in lengths.items()}
    else:
        keys |= {f"attention.{kind}_length_mla": length for kind, length in lengths.items()}
        keys |= {"attention.key_length": config.kv_lora_rank + rotated, "attention.value_length": config.kv_lora_rank}
        keys["attention.head_count_kv"] = 1
    if theta.get("mscale_all_dim"):
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * theta["mscale_all_dim"]
    return {**keys, "rope.dimension_count": rotated}


def write_model(path: Path, reference: Any, name: str, kind: str = "F32", **others: str) -> Path:
    """Write a model of transformers as a file, and give the model the values that the file has."""
    import gguf
    import torch

    config, kind_name = reference.config, reference.config.model_type
    counts = (config.num_attention_heads, _kv_heads(config))
    state = _split({key: value.numpy() for key, value in reference.state_dict().items()}, config)
    if config.tie_word_embeddings:
        state.pop("lm_head.weight")
    tensors = tensors_of(state, kind_name, *counts)
    if (
        getattr(config, "rope_parameters", None) and config.rope_parameters.get("rope_type") == "llama3"
    ):  # files have the result
        turns = reference.model.rotary_emb.inv_freq.numpy()
        plain = config.rope_parameters["rope_theta"] ** -(np.arange(len(turns), dtype=np.float32) / len(turns))
        tensors["rope_freqs.weight"] = (plain / turns).astype(np.float32)
    for which in ("short", "long"):
        factors = (getattr(config, "rope_parameters", None) or {}).get(f"{which}_factor")
        if factors is not None:
            tensors[f"rope_factors_{which}.weight"] = np.array(factors, np.float32)
    write_gguf(path, name, keys_of(config, name), tensors, kind, others)
    stored = {tensor.name: decode(tensor.data, tensor.tensor_type.name) for tensor in gguf.GGUFReader(path).tensors}
    has_offsets = kind_name in NORM_OFFSETS
    elements = {key: np.arange(each.size).reshape(each.shape) for key, each in state.items()}
    places = tensors_of(elements, "" if has_offsets else kind_name, *counts)
    for key, (new, place) in zip(state, places.items(), strict=True):
        values = np.empty(state[key].size, np.float32)
        values[place.reshape(-1)] = stored[new].reshape(-1)
        state[key] = values.reshape(state[key].shape) - (has_offsets and key.endswith("norm.weight"))
    values = {key: torch.from_numpy(value) for key, value in _joined(state, config).items()}
    missing, unexpected = reference.load_state_dict(values, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    return path


def _split(state: Mapping[str, np.ndarray], config: Any) -> dict[str, np.ndarray]:
    """Return a state whose experts, and products of latents, have the tensors that files have."""
    result: dict[str, np.ndarray] = {}
    for name, array in state.items():
        base, _, part = name.rpartition(".")
        if part == "gate_up_proj" and base.endswith("experts"):
            result[f"{base}.gate.weight"], result[f"{base}.up.weight"] = np.split(array, 2, 1)
        elif part == "down_proj" and base.endswith("experts"):
            result[f"{base}.down.weight"] = array
        elif base.endswith("kv_b_proj") and config.q_lora_rank is not None:
            plain, heads = config.qk_nope_head_dim, config.num_attention_heads
            keys, values = np.split(array.reshape(heads, -1, array.shape[1]), [plain], 1)
            base = base.removesuffix("kv_b_proj")
            result |= {f"{base}k_b_proj.weight": keys.swapaxes(1, 2), f"{base}v_b_proj.weight": values}
        else:
            result[name] = array
    return result


def _joined(state: Mapping[str, np.ndarray], config: Any) -> dict[str, np.ndarray]:
    """Return the state of which another one was split."""
    result = dict(state)
    for name in [name for name in state if name.endswith("experts.gate.weight")]:
        base = name.removesuffix(".gate.weight")
        gate, up, down = (result.pop(f"{base}.{part}.weight") for part in ("gate", "up", "down"))
        result |= {f"{base}.gate_up_proj": np.concatenate([gate, up], 1), f"{base}.down_proj": down}
    for name in [name for name in state if name.endswith(".k_b_proj.weight")]:
        base = name.removesuffix("k_b_proj.weight")
        keys, values = (result.pop(f"{base}{part}_b_proj.weight") for part in "kv")
        both = np.concatenate([keys.swapaxes(1, 2), values], 1)
        result[f"{base}kv_b_proj.weight"] = both.reshape(-1, config.kv_lora_rank)
    return result
