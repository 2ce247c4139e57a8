"""The metadata of a GGUF file under the names of `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import GgufFile, GgufTensor
from mirlo_llm.generate.json_file import JsonObject, RenamedObject, is_unsigned

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

ARCHITECTURE, EMBEDDING = "general.architecture", "token_embd.weight"
ARCHITECTURES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3": "gemma3_text", "granite": "granite", "olmo": "olmo", "olmo2": "olmo2", "smollm3": "smollm3",
    "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "stablelm": "stablelm", "gpt2": "gpt2",
    "deepseek2": "deepseek_v2", "qwen2vl": "qwen2_vl",
}  # fmt: skip
"""`model_type` of `config.json`, by the file's architecture."""
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
"""Tensors with divisors of rotation frequencies, for short and for long texts."""
SECTIONS = "rope.dimension_sections"
"""The key with the numbers of rotated pairs by time, row and column of images."""
MIXTURES = {"llama": "mixtral", "qwen2_moe": "qwen2_moe", "qwen3_moe": "qwen3_moe", "deepseek_v2": "deepseek_v2"}
"""`model_type` of files with experts, by that of the architecture without experts."""
INTERLEAVED = ("llama", "granite", "olmo", "smollm3")
"""Architectures whose files store rotated pairs of a head adjacently."""
_KEYS = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length", "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "sliding_window": "attention.sliding_window",
    "rope_theta": "rope.freq_base", "rope_local_base_freq": "rope.freq_base_swa",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention.scale", "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale", "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "use_parallel_residual": "use_parallel_residual", "clip_qkv": "attention.clamp_kqv",
}  # fmt: skip
"""Names of `config.json` by the suffix of the file's keys after the architecture."""
_LATENT_KEYS = {
    "head_dim": "rope.dimension_count", "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank", "n_routed_experts": "expert_count",
    "first_k_dense_replace": "leading_dense_block_count", "n_shared_experts": "expert_shared_count",
    "routed_scaling_factor": "expert_weights_scale", "norm_topk_prob": "expert_weights_norm",
    "n_group": "expert_group_count", "topk_group": "expert_group_used_count",
}  # fmt: skip
"""The same for architectures with latent attention."""
SIGMOID = 2
"""The value of `expert_gating_func` for DeepSeek-V3's scoring function (sigmoid)."""
LAYER_NORMS = ("stablelm", "gpt2", "olmo")
"""Architectures with LayerNorm."""
_WIDE = {"gemma2": 46, "gemma3_text": 62}
"""Layer counts of Gemma models whose scores are scaled by hidden / heads instead of the head size."""
_END_TEXTS = frozenset((
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
))  # fmt: skip
"""Texts of control tokens that end an answer, which files do not always list."""
NO_TOKEN = 0xFFFFFFFF
"""A placeholder that some files store for an absent token."""
CONTROL = 3
"""The value of control tokens in `tokenizer.ggml.token_type`."""


def decoder_keys(file: GgufFile) -> RenamedObject:
    """Return the configuration of a file's decoder."""
    metadata = file.metadata
    kind = metadata.text(ARCHITECTURE)
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise metadata.refuse(
            ARCHITECTURE, f"'{kind:.40}' is not an architecture that is read from GGUF files: {known}"
        )
    if metadata.count("split.count", 0) > 1:
        raise metadata.refuse("split.count", "the model is in several files: join them with 'llama-gguf-split --merge'")
    is_latent = ARCHITECTURES[kind] == "deepseek_v2"
    names = {name: f"{kind}.{key}" for name, key in {**_KEYS, **(_LATENT_KEYS if is_latent else {})}.items()}
    value = {name: metadata.value(key) for name, key in names.items() if metadata.has(key)}
    names |= {"model_type": ARCHITECTURE, "rope_scaling": f"{kind}.rope.scaling", "vocab_size": EMBEDDING}
    names["rope_scaling.mrope_section"] = f"{kind}.{SECTIONS}"
    if kind in LAYER_NORMS:
        names["rms_norm_eps"] = f"{kind}.attention.layer_norm_epsilon"
        value["rms_norm_eps"] = metadata.value(names["rms_norm_eps"])
    keys = RenamedObject(metadata.path, names, value)
    model_type = _model_type(keys, ARCHITECTURES[kind])
    if model_type in MIXTURES.values() and not is_latent:
        value["norm_topk_prob"] = model_type != "qwen2_moe"
    value |= {"model_type": model_type, "vocab_size": _vocabulary(file)}
    value["tie_word_embeddings"] = "output.weight" not in file.tensors
    heads = keys.count("num_attention_heads", least=1)
    size = keys.count("head_dim", keys.count("hidden_size", least=1) // heads)
    value |= _latents(keys, metadata, kind) if is_latent else _rotated_part(metadata, kind, size)
    rotation = _rotation(file, kind, is_latent)
    if rotation:
        value["rope_scaling"] = rotation
    if model_type == "gpt2":
        value["hidden_act"] = "gelu_new"
    if model_type.startswith("gemma"):
        layers, hidden = keys.count("num_hidden_layers", least=1), keys.count("hidden_size")
        value |= {"hidden_act": "gelu_pytorch_tanh", "rope_local_base_freq": keys.number("rope_local_base_freq", 1e4)}
        value["query_pre_attn_scalar"] = hidden // heads if layers == _WIDE.get(model_type) else size
    return keys


def _rotation(file: GgufFile, kind: str, is_latent: bool) -> dict[str, Json]:
    """Return the file's rotary scaling in the form of `rope_scaling`; empty if there is none."""
    metadata, prefix = file.metadata, f"{kind}.rope.scaling"
    # Files of Phi have the factors of "longrope" without saying so.
    scaling = metadata.text(f"{prefix}.type", "longrope" if SHORT_FACTORS in file.tensors else "none")
    rotation: dict[str, Json] = {}
    if scaling != "none":
        names = {"factor": "factor", "original_max_position_embeddings": "original_context_length"}
        places = {ours: f"{prefix}.{theirs}" for ours, theirs in {**names, "attention_factor": "attn_factor"}.items()}
        rotation = {ours: metadata.value(key) for ours, key in places.items() if metadata.has(key)}
        rotation["rope_type"] = scaling
        if SHORT_FACTORS in file.tensors:
            rotation["short_factor"] = _numbers(metadata.path, file.tensors[SHORT_FACTORS])
        if is_latent:  # files have a tenth of it, and rotated elements are not scaled
            growth = 10 * metadata.number(f"{prefix}.yarn_log_multiplier", 0.0)
            rotation |= {"mscale": growth, "mscale_all_dim": growth}
    sections = metadata.value(f"{kind}.{SECTIONS}")
    if isinstance(sections, np.ndarray):
        listed: list[Json] = sections.tolist()
        listed = listed[:3] if listed[3:] == [0] else listed  # the fourth one is of no position
        rotation = {"rope_type": "mrope", **rotation, "mrope_section": listed}
    return rotation


def _rotated_part(metadata: JsonObject, kind: str, size: int) -> dict[str, Json]:
    """Return the rotated part of heads of `size` elements, if not all of it."""
    other, rotated = (
        metadata.count(f"{kind}.{key}", size) for key in ("attention.value_length", "rope.dimension_count")
    )
    if other != size:
        what = f"heads of {size} elements in keys and {other} in values are not supported"
        raise metadata.refuse(f"{kind}.attention.value_length", what)
    return {"partial_rotary_factor": (rotated + 0.5) / size} if rotated < size else {}  # is rounded down


def _latents(keys: JsonObject, metadata: JsonObject, kind: str) -> dict[str, Json]:
    """Return the configuration of latent attention and of DeepSeek's routers."""
    # Lengths of heads are those of rows of latents in newer files, which have others for these.
    end = "_mla" if metadata.has(f"{kind}.attention.key_length_mla") else ""
    rotated, key = keys.count("head_dim", least=1), f"{kind}.attention.key_length{end}"
    length = metadata.count(key, least=1)
    if length <= rotated:
        raise metadata.refuse(key, f"expected more than the {rotated} elements that are rotated, found {length}")
    is_third = metadata.count(f"{kind}.expert_gating_func", 1) == SIGMOID
    groups = keys.count("n_group", 1, least=1)
    value: dict[str, Json] = {
        "qk_nope_head_dim": length - rotated, "v_head_dim": metadata.count(f"{kind}.attention.value_length{end}"),
        "n_group": groups, "topk_group": keys.count("topk_group", groups),
    }  # fmt: skip
    if is_third:
        return {**value, "model_type": "deepseek_v3"}
    return {**value, "topk_method": "greedy" if groups == 1 else "group_limited_greedy"}


def _model_type(keys: JsonObject, model_type: str) -> str:
    """Return the `model_type`, distinguishing those that share one architecture name in files."""
    if keys.count("num_local_experts", 0):
        if model_type not in MIXTURES:
            what = f"mixtures of experts of '{model_type}' are not supported: export to ONNX"
            raise keys.refuse("num_local_experts", what)
        return MIXTURES[model_type]
    # Files of Mistral have the architecture of Llama, and windows.
    return "mistral" if model_type == "llama" and keys.count("sliding_window", 0) else model_type


def _numbers(path: Path, tensor: GgufTensor) -> Json:
    """Return the elements of a small tensor as JSON."""
    array = tensor.kind.read(tensor.data, tensor.shape)
    if isinstance(array, BlockWeights) or array.ndim != 1:
        actual = f"{tensor.kind.name}{list(tensor.shape)}"
        raise ModelFolderError(f"{path}: tensor '{SHORT_FACTORS}': expected a vector of numbers, found {actual}")
    numbers: Json = array.tolist()
    return numbers


def _vocabulary(file: GgufFile) -> int:
    table = file.tensors.get(EMBEDDING)
    return 0 if table is None else table.shape[0]


def end_tokens(file: GgufFile) -> tuple[int, ...]:
    """Return the tokens that end an answer."""
    metadata = file.metadata
    tokens = [token for key in ("eos", "eot", "eom") if (token := special_token(file, key)) is not None]
    texts, kinds = metadata.value("tokenizer.ggml.tokens"), metadata.value("tokenizer.ggml.token_type")
    if isinstance(texts, list) and isinstance(kinds, np.ndarray):
        control = np.flatnonzero(kinds[: len(texts)] == CONTROL)
        tokens += [int(i) for i in control if texts[int(i)] in _END_TEXTS]
    return tuple(dict.fromkeys(tokens))


def special_token(file: GgufFile, name: str) -> int | None:
    """Return the token of a name such as "eos"; None if the file has none."""
    key = f"tokenizer.ggml.{name}_token_id"
    token = file.metadata.value(key)
    if token is None or (is_unsigned(token, 32) and token == NO_TOKEN):
        return None
    if not is_unsigned(token, 31):
        raise file.metadata.fail(key, "a token", token)
    return token
