"""The keys of a GGUF file, under the names that `config.json` has for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.generate.checkpoints.block_weights import BlockWeights
from mirlo.generate.errors import ModelFolderError
from mirlo.generate.gguf.container import GgufFile, GgufTensor
from mirlo.generate.json_file import JsonObject, RenamedObject, is_unsigned

if TYPE_CHECKING:
    from mirlo.runtime.fields import Json

ARCHITECTURE, EMBEDDING = "general.architecture", "token_embd.weight"
ARCHITECTURES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3": "gemma3_text", "granite": "granite", "olmo": "olmo", "olmo2": "olmo2", "smollm3": "smollm3",
    "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "stablelm": "stablelm", "gpt2": "gpt2",
}  # fmt: skip
"""`model_type` of `config.json`, by the architecture of a file."""
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
"""By what the angles between positions are divided, in short texts and in long ones."""
MIXTURES = {"llama": "mixtral", "qwen2_moe": "qwen2_moe", "qwen3_moe": "qwen3_moe"}
"""`model_type` of files with experts, by that of others of the architecture."""
INTERLEAVED = ("llama", "granite", "olmo", "smollm3")
"""Architectures whose files have the elements of a head that are rotated together side by side."""
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
"""Names of `config.json` by what follows the architecture in the keys of a file."""
LAYER_NORMS = ("stablelm", "gpt2", "olmo")
"""Architectures whose norms subtract the mean."""
_WIDE = {"gemma2": 46, "gemma3_text": 62}
"""How many layers the Gemmas have whose scores are scaled by hidden / heads in place of the size of a head."""
_END_TEXTS = frozenset((
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
))  # fmt: skip
"""Texts of control tokens that end an answer, which files do not always name."""
NO_TOKEN = 0xFFFFFFFF
"""What some files have in place of a token that they do not have."""
CONTROL = 3
"""The type of tokens that control, in `tokenizer.ggml.token_type`."""


def decoder_keys(file: GgufFile) -> RenamedObject:
    """Return what a file says of its decoder."""
    metadata = file.metadata
    kind = metadata.text(ARCHITECTURE)
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise metadata.refuse(
            ARCHITECTURE, f"'{kind:.40}' is not an architecture that is read from GGUF files: {known}"
        )
    if metadata.count("split.count", 0) > 1:
        raise metadata.refuse("split.count", "the model is in several files: join them with 'llama-gguf-split --merge'")
    names = {name: f"{kind}.{key}" for name, key in _KEYS.items()}
    value = {name: metadata.value(key) for name, key in names.items() if metadata.has(key)}
    names |= {"model_type": ARCHITECTURE, "rope_scaling": f"{kind}.rope.scaling", "vocab_size": EMBEDDING}
    if kind in LAYER_NORMS:
        names["rms_norm_eps"] = f"{kind}.attention.layer_norm_epsilon"
        value["rms_norm_eps"] = metadata.value(names["rms_norm_eps"])
    keys = RenamedObject(metadata.path, names, value)
    model_type = _model_type(keys, ARCHITECTURES[kind])
    if model_type in MIXTURES.values():
        value["norm_topk_prob"] = model_type != "qwen2_moe"
    value |= {"model_type": model_type, "vocab_size": _vocabulary(file)}
    value["tie_word_embeddings"] = "output.weight" not in file.tensors
    heads = keys.count("num_attention_heads", least=1)
    size = keys.count("head_dim", keys.count("hidden_size", least=1) // heads)
    other, rotated = (
        metadata.count(f"{kind}.{key}", size) for key in ("attention.value_length", "rope.dimension_count")
    )
    if other != size:
        what = f"heads of {size} elements in keys and {other} in values are not supported"
        raise metadata.refuse(f"{kind}.attention.value_length", what)
    if rotated < size:
        value["partial_rotary_factor"] = (rotated + 0.5) / size  # is rounded down
    # Files of Phi have the factors of "longrope" without saying so.
    default = "longrope" if SHORT_FACTORS in file.tensors else "none"
    scaling = metadata.text(f"{kind}.rope.scaling.type", default)
    if scaling != "none":
        names_of = {"factor": "factor", "original_max_position_embeddings": "original_context_length"}
        names_of["attention_factor"] = "attn_factor"
        places = {ours: f"{kind}.rope.scaling.{theirs}" for ours, theirs in names_of.items()}
        scaled: dict[str, Json] = {ours: metadata.value(key) for ours, key in places.items() if metadata.has(key)}
        scaled["rope_type"] = scaling
        if SHORT_FACTORS in file.tensors:
            scaled["short_factor"] = _numbers(metadata.path, file.tensors[SHORT_FACTORS])
        value["rope_scaling"] = scaled
    if model_type == "gpt2":
        value["hidden_act"] = "gelu_new"
    if model_type.startswith("gemma"):
        layers, hidden = keys.count("num_hidden_layers", least=1), keys.count("hidden_size")
        value |= {"hidden_act": "gelu_pytorch_tanh", "rope_local_base_freq": keys.number("rope_local_base_freq", 1e4)}
        value["query_pre_attn_scalar"] = hidden // heads if layers == _WIDE.get(model_type) else size
    return keys


def _model_type(keys: JsonObject, model_type: str) -> str:
    """Return the architecture, of those that have one name in files."""
    if keys.count("num_local_experts", 0):
        if model_type not in MIXTURES:
            what = f"mixtures of experts of '{model_type}' are not supported: export to ONNX"
            raise keys.refuse("num_local_experts", what)
        return MIXTURES[model_type]
    # Files of Mistral have the architecture of Llama, and windows.
    return "mistral" if model_type == "llama" and keys.count("sliding_window", 0) else model_type


def _numbers(path: Path, tensor: GgufTensor) -> Json:
    """Return the numbers of a small tensor, as JSON has them."""
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
