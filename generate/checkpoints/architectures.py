"""Architectures of decoders: what a `config.json` says of each, as the options of one definition (`decoder.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mirlo.generate.json_file import JsonObject

MAX_LAYERS, MAX_WIDTH = 4096, 1 << 20
Norms = tuple[str, str, str, str]
"""The norms of a layer, by the names of their weights: before and behind attention, before and behind the products.

An empty name stands for none.
"""
BEFORE: Norms = ("input_layernorm", "", "post_attention_layernorm", "")
BEHIND: Norms = ("", "post_attention_layernorm", "", "post_feedforward_layernorm")
AROUND: Norms = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)  # fmt: skip
LAYER_KINDS = ("full_attention", "sliding_attention")
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "relu": "relu",
}  # fmt: skip


@dataclass(frozen=True)
class LayerOptions:
    """What differs between the layers of a model."""

    window: int = 0
    """How many last tokens are seen; 0 for all."""
    frequencies: np.ndarray | None = None
    """The angle of each pair of elements from one position to the next; None without rotation."""


@dataclass(frozen=True)
class DecoderOptions:
    """A decoder of gated layers with grouped-query attention."""

    vocabulary: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    size: int
    layers: tuple[LayerOptions, ...]
    epsilon: float
    activation: str
    tied: bool
    """Whether the products of the logits have the embedding's weights."""
    norms: Norms = BEFORE
    norm_offset: float = 0.0
    """Added to the weights of norms."""
    head_norms: str = ""
    """Norms of queries and keys: of each head, or of "all" at once."""
    fused: bool = False
    """Whether queries, keys and values are one product, and both parts of the gated one."""
    scale: float | None = None
    """Of the scores of attention; None for 1 / sqrt(size)."""
    score_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0


def read_options(config: JsonObject) -> DecoderOptions:
    """Return the options of the architecture that a configuration names."""
    kind = config.text("model_type")
    if kind not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise config.refuse(
            "model_type", f"'{kind:.40}' is not an architecture that is read from weights: {known}; export to ONNX"
        )
    return ARCHITECTURES[kind](config, _common(config))


def _common(config: JsonObject) -> DecoderOptions:
    """Read what all architectures have."""
    heads = config.count("num_attention_heads", least=1, most=MAX_WIDTH)
    kv_heads = config.count("num_key_value_heads", heads, least=1, most=heads)
    hidden = config.count("hidden_size", least=1, most=MAX_WIDTH)
    size = config.count("head_dim", max(hidden // heads, 1), least=1, most=MAX_WIDTH)
    if heads % kv_heads:
        raise config.refuse("num_key_value_heads", f"{heads} heads do not divide into {kv_heads} groups")
    key = "hidden_act" if config.has("hidden_act") else "hidden_activation"
    activation = config.text(key, "silu")
    if activation not in ACTIVATIONS:
        raise config.refuse(key, f"expected one of {', '.join(ACTIVATIONS)}, found {activation!a:.40}")
    return DecoderOptions(
        config.count("vocab_size", least=1, most=MAX_WIDTH), hidden,
        config.count("intermediate_size", least=1, most=MAX_WIDTH), heads, kv_heads, size, _layers(config, size),
        config.number("rms_norm_eps", 1e-6), ACTIVATIONS[activation], config.flag("tie_word_embeddings", False),
    )  # fmt: skip


def _layers(config: JsonObject, size: int, windowed: Callable[[int], bool] | None = None) -> tuple[LayerOptions, ...]:
    """Read the windows and the rotations of the layers; `windowed` says which have windows where the file does not."""
    count = config.count("num_hidden_layers", least=1, most=MAX_LAYERS)
    window = config.count("sliding_window", 0) if config.flag("use_sliding_window", True) else 0
    kinds = config.value("layer_types")
    if kinds is None:
        in_windows = [window > 0 and (windowed is None or windowed(i)) for i in range(count)]
    elif isinstance(kinds, list) and len(kinds) == count and all(kind in LAYER_KINDS for kind in kinds):
        in_windows = [kind == "sliding_attention" for kind in kinds]
    else:
        raise config.fail("layer_types", f"'full_attention' or 'sliding_attention' for {count} layers", kinds)
    rotations = {each: _frequencies(config, size, each) for each in set(in_windows)}
    return tuple(LayerOptions(window if each else 0, rotations[each]) for each in in_windows)


def _frequencies(config: JsonObject, size: int, in_window: bool) -> np.ndarray:
    """Return the angles between positions, of layers with or without windows."""
    given = config.object("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    of_kind = "sliding_attention" if in_window else "full_attention"
    if given.has(of_kind):
        given = given.object(of_kind)
    theta = config.number("rope_theta", 10000.0)
    if in_window and config.has("rope_local_base_freq"):
        theta, given = config.number("rope_local_base_freq", theta), JsonObject(config.path, "", {})
    theta = given.number("rope_theta", theta)
    part = given.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    rotated = int(size * part)
    if not 0 < theta < 1e30 or not 0 < part <= 1 or rotated % 2 or not rotated:
        raise config.refuse("rope_theta", f"no rotation of {rotated} of {size} elements with base {theta}")
    plain: np.ndarray = np.float32(1) / np.float32(theta) ** (
        np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated)
    )
    kind = given.text("rope_type", given.text("type", "default"))
    if kind == "default":
        return plain
    factor = given.number("factor", 1.0)
    if factor <= 0:
        raise given.refuse("factor", f"must be above 0, found {factor}")
    if kind == "linear":
        slower: np.ndarray = plain / np.float32(factor)
        return slower
    if kind == "llama3":
        return _llama3(plain, given, factor)
    raise given.refuse("rope_type", f"expected default, linear or llama3, found {kind!a:.40}")


def _llama3(plain: np.ndarray, given: JsonObject, factor: float) -> np.ndarray:
    """Slow down rotations that are slower than the text that the model was first trained on is long."""
    low, high = given.number("low_freq_factor", 1.0), given.number("high_freq_factor", 4.0)
    trained = given.count("original_max_position_embeddings", 8192, least=1)
    if not 0 < low < high:
        raise given.refuse("low_freq_factor", f"must be above 0 and below high_freq_factor, found {low} and {high}")
    turns = trained * plain / np.float32(2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    mixed: np.ndarray = ((1 - share) * plain / factor + share * plain).astype(np.float32)
    return mixed


def _llama(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return options


def _qwen2(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    first = config.count("max_window_layers", 0)
    if config.flag("use_sliding_window", False):
        return replace(options, layers=_layers(config, options.size, lambda layer: layer >= first))
    return replace(options, layers=tuple(replace(layer, window=0) for layer in options.layers))


def _qwen3(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(_qwen2(config, options), head_norms="each")


def _phi3(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(options, fused=True)


def _gemma(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    tied = config.flag("tie_word_embeddings", True)
    activation = "gelu_tanh" if options.activation == "gelu" else options.activation
    return replace(
        options, norm_offset=1.0, embedding_scale=options.hidden**0.5, tied=tied, activation=activation
    )  # fmt: skip


def _gemma2(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(
        _gemma(config, options), norms=AROUND, scale=_positive(config, "query_pre_attn_scalar", 256.0) ** -0.5,
        score_cap=config.number("attn_logit_softcapping", 0.0) or None,
        logit_cap=config.number("final_logit_softcapping", 0.0) or None,
        layers=_layers(config, options.size, lambda layer: layer % 2 == 0),
    )  # fmt: skip


def _gemma3(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    every = config.count("sliding_window_pattern", 6, least=1)
    layers = _layers(config, options.size, lambda layer: (layer + 1) % every != 0)
    return replace(_gemma2(config, options), head_norms="each", layers=layers)


def _granite(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(
        options, scale=config.number("attention_multiplier", 1.0),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logit_scale=1 / _positive(config, "logits_scaling", 1.0),
    )  # fmt: skip


def _olmo2(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(options, norms=BEHIND, head_norms="all")


def _smollm3(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    options, every = _qwen2(config, options), config.count("no_rope_layer_interval", 4, least=1)
    given = config.value("no_rope_layers")
    rotates = given if isinstance(given, list) else [(i + 1) % every != 0 for i in range(len(options.layers))]
    if len(rotates) != len(options.layers):
        raise config.fail("no_rope_layers", f"a number for each of {len(options.layers)} layers", given)
    pairs = zip(options.layers, rotates, strict=True)
    return replace(options, layers=tuple(each if on else replace(each, frequencies=None) for each, on in pairs))


def _positive(config: JsonObject, key: str, default: float) -> float:
    value = config.number(key, default)
    if value <= 0:
        raise config.fail(key, "a number above 0", value)
    return value


Reader = Callable[[JsonObject, DecoderOptions], DecoderOptions]
ARCHITECTURES: dict[str, Reader] = {
    "llama": _llama, "mistral": _llama, "qwen2": _qwen2, "qwen3": _qwen3, "phi3": _phi3, "gemma": _gemma,
    "gemma2": _gemma2, "gemma3_text": _gemma3, "granite": _granite, "olmo2": _olmo2, "smollm3": _smollm3,
}  # fmt: skip
"""What reads the configuration of an architecture, by `model_type`."""
