"""Architectures of decoders: each `config.json` is read as the options of one decoder (`decoder.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo_llm.generate.json_file import JsonObject, RenamedObject, is_number

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

MAX_LAYERS, MAX_WIDTH, MAX_EXPERTS = 4096, 1 << 20, 4096
Norms = tuple[str, str, str, str]
"""The norms of a layer by the names of their weights: before and after attention, before and after the MLP.

An empty name means that there is no such norm.
"""
BEFORE: Norms = ("input_layernorm", "", "post_attention_layernorm", "")
BEHIND: Norms = ("", "post_attention_layernorm", "", "post_feedforward_layernorm")
AROUND: Norms = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)  # fmt: skip
Names = tuple[tuple[str, str], ...]
"""Replacements of parts of tensor names: checkpoint name to the name in a file."""
LAYER_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "relu": "relu", "quick_gelu": "quick_gelu",
}  # fmt: skip


@dataclass(frozen=True)
class ExpertOptions:
    """The options of a mixture of experts that replaces one gated MLP."""

    count: int
    chosen: int
    """Number of experts per token."""
    inner: int
    shared: int = 0
    """Width of the shared expert, which computes all tokens; 0 if there is none."""
    is_normalized: bool = True
    """Whether the weights of the chosen experts are normalized to a sum of 1."""
    is_shared_gated: bool = True
    """Whether the shared expert has a gate per token."""
    scores: str = "softmax"
    """The router's activation: "softmax" or "sigmoid"."""
    is_corrected: bool = False
    """Whether experts are chosen by scores plus a bias of the checkpoint."""
    groups: int = 1
    chosen_groups: int = 1
    """Number of groups that the experts of a token are chosen from."""
    group_members: int = 1
    """Number of largest scores that are added up to rank a group."""
    weight_scale: float = 1.0
    """Scale factor of the weights of the chosen experts."""
    scales_inputs: bool = False
    """Whether the weights multiply the experts' inputs; otherwise their results."""


@dataclass(frozen=True)
class LatentOptions:
    """Multi-head latent attention (MLA): keys and values of all heads are projections of one cached row per token.

    That row is called the latent. A part of each key is rotated and shared by all heads.
    """

    rank: int
    """Elements of a latent."""
    query_rank: int
    """Elements of the latent of queries; 0 if queries are projected from the tokens."""
    plain: int
    """Elements of a head of queries and keys that are not rotated."""
    rotated: int
    values: int
    """Elements of a head of values."""
    is_interleaved: bool = True
    """Whether adjacent elements are rotated together."""


@dataclass(frozen=True)
class LayerOptions:
    """Properties that differ between the layers of a model."""

    window: int = 0
    """Number of last tokens that are visible (sliding window); 0 for all."""
    frequencies: np.ndarray | None = None
    """The angle of each rotated pair from one position to the next; None without rotary embedding."""
    rotation_scale: float = 1.0
    """Scale factor of rotated elements."""
    experts: ExpertOptions | None = None
    chunk: int = 0
    """Tokens of a chunk: only tokens of the same chunk are visible; 0 for all."""
    temperature: tuple[float, float] | None = None
    """A weight and a number of tokens: queries are multiplied by 1 + weight * log(1 + position // tokens)."""

    @property
    def seen(self) -> int:
        """Return the most tokens that a token sees, itself among them; 0 for all."""
        return min((count for count in (self.window, self.chunk) if count), default=0)


@dataclass(frozen=True)
class DecoderOptions:
    """The options of a decoder with gated MLPs and grouped-query attention."""

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
    """Whether the output projection shares the weights of the embedding."""
    norms: Norms = BEFORE
    norm_offset: float = 0.0
    """The offset of the norms' weights: norms multiply by weight + offset."""
    head_norms: str = ""
    """Norms of queries and keys: of "each" head, of "all" heads together, or of each "rotated" head, without
    weights."""
    is_interleaved: bool = False
    """Whether adjacent elements of a head are rotated together."""
    fused: bool = False
    """Whether the file has one matrix for queries, keys and values, and one for both parts of the gated MLP."""
    scale: float | None = None
    """Scale of the attention scores; None for 1 / sqrt(size)."""
    score_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    is_layer_norm: bool = False
    """Whether norms subtract the mean and add a bias, if the checkpoint has one (LayerNorm)."""
    has_plain_norms: bool = False
    """Whether norms have no weights."""
    projection_limit: float = 0.0
    """Bound of the elements of queries, keys and values before they are rotated; 0 for none."""
    is_parallel: bool = False
    """Whether attention and MLP read the same input, and both results are added."""
    is_gated: bool = True
    is_transposed: bool = False
    """Whether the file stores matrices as [in, out]."""
    positions: int = 0
    """Rows of the table of position embeddings; 0 if there is none."""
    first_position: int = 0
    """The position of the first token."""
    embedding_norm: str = ""
    """The norm of the embeddings before the first layer; an empty name means that there is none."""
    final_norm: str = "model.norm"
    norms_sums: bool = False
    """Whether norms follow the residual additions (post-norm), as in the original transformer."""
    is_causal: bool = True
    """Whether attention is causal."""
    renamed: Names = ()
    """Parts of the names of tensors that a file has in place of others."""
    latent: LatentOptions | None = None
    """Latent attention; each layer then has one cache with one head of `size` elements."""
    unused: tuple[str, ...] = ()
    """Prefixes of tensors that generation does not need."""

    @property
    def cache_kinds(self) -> tuple[str, ...]:
        """Return the names of the caches of a layer."""
        return ("key", "value") if self.latent is None else ("key",)


def renamed(name: str, names: Names) -> str:
    """Return a checkpoint's tensor name with the replacements of a file."""
    for ours, theirs in names:
        name = name.replace(ours, theirs)
    return name


def has_architecture(config: JsonObject) -> bool:
    """Return whether the architecture of a configuration is one of these."""
    return config.value("model_type") in ARCHITECTURES


def unread_keys(config: JsonObject) -> list[str]:
    """Return the keys of a configuration that may change results and that no option reads."""
    config = JsonObject(config.path, config.key, config.content)
    read_options(config)
    rotation = next((key for key in ("rope_parameters", "rope_scaling") if config.has(key)), "")
    inner = config.content.get(rotation)
    without = NO_EFFECT.union(_NAMES.get(config.text("model_type"), ()))  # also what the architecture calls otherwise
    names = {key: each for key, each in config.content.items() if key not in without and each != NEUTRAL.get(key)}
    if isinstance(inner, dict):
        names |= {f"{rotation}.{key}": each for key, each in inner.items() if key not in NO_EFFECT_ON_ROTATIONS}
    prefix = f"{config.key}." if config.key else ""
    return [key for key, each in names.items() if each is not None and f"{prefix}{key}" not in config.read]


def read_options(config: JsonObject) -> DecoderOptions:
    """Return the options of the architecture that a configuration names."""
    kind = config.text("model_type")
    if kind not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise config.refuse(
            "model_type", f"'{kind:.40}' is not an architecture that is read from weights: {known}; export to ONNX"
        )
    config = under_common_names(config, kind)
    return ARCHITECTURES[kind](config, _common(config))


_NAMES = {
    "deepseek_v2": {"head_dim": "qk_rope_head_dim"},
    "deepseek_v3": {"head_dim": "qk_rope_head_dim"},
    "distilbert": {
        "hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers",
        "intermediate_size": "hidden_dim", "hidden_act": "activation",
    },
    "gpt2": {
        "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
        "max_position_embeddings": "n_positions", "intermediate_size": "n_inner", "hidden_act": "activation_function",
        "rms_norm_eps": "layer_norm_epsilon",
    },
    "stablelm": {"rms_norm_eps": "layer_norm_eps"},
}  # fmt: skip
"""The keys of each architecture that differ from the common ones."""


def under_common_names(config: JsonObject, kind: str) -> JsonObject:
    """Return a configuration with the key names that most architectures use."""
    names = _NAMES.get(kind, {})
    value: dict[str, Json] = {key: each for key, each in config.content.items() if each is not None}
    if not any(theirs in value for theirs in names.values()):
        return config
    value |= {ours: value[theirs] for ours, theirs in names.items() if theirs in value}
    if kind == "gpt2":
        value["intermediate_size"] = value.get("n_inner", 4 * config.count("n_embd", least=1, most=MAX_WIDTH))
        value["num_key_value_heads"] = config.count("n_head", least=1, most=MAX_WIDTH)
    return RenamedObject(config.path, names, value, read=config.read)


def _common(config: JsonObject) -> DecoderOptions:
    """Read the options that all architectures have."""
    heads = config.count("num_attention_heads", least=1, most=MAX_WIDTH)
    kv_heads = config.count("num_key_value_heads", heads, least=1, most=heads)
    hidden = config.count("hidden_size", least=1, most=MAX_WIDTH)
    size = config.count("head_dim", max(hidden // heads, 1), least=1, most=MAX_WIDTH)
    if heads % kv_heads:
        raise config.refuse("num_key_value_heads", f"{heads} heads do not divide into {kv_heads} groups")
    activation = read_activation(config, "hidden_act" if config.has("hidden_act") else "hidden_activation", "silu")
    return DecoderOptions(
        config.count("vocab_size", least=1, most=MAX_WIDTH), hidden,
        config.count("intermediate_size", least=1, most=MAX_WIDTH), heads, kv_heads, size, _layers(config, size),
        config.number("rms_norm_eps", 1e-6), activation, config.flag("tie_word_embeddings", False),
    )  # fmt: skip


def read_size(config: JsonObject, key: str, default: int | None = None, most: int = MAX_WIDTH) -> int:
    """Return a size, which must not be 0."""
    return config.count(key, default, least=1, most=most)


def read_activation(config: JsonObject, key: str, default: str) -> str:
    """Return the operator of an activation function, and its approximation after "_"."""
    name = config.text(key, default)
    if name not in ACTIVATIONS:
        raise config.refuse(key, f"expected one of {', '.join(ACTIVATIONS)}, found {name!a:.40}")
    return ACTIVATIONS[name]


def require_heads(config: JsonObject, key: str, hidden: int) -> int:
    """Return a number of heads that divides the elements of a token."""
    heads = read_size(config, key)
    if hidden % heads:
        raise config.refuse(key, f"{hidden} elements do not divide into {heads} heads")
    return heads


def _layers(config: JsonObject, size: int, windowed: Callable[[int], bool] | None = None) -> tuple[LayerOptions, ...]:
    """Read the windows and the rotary embeddings of the layers; `windowed` selects layers where the file does not."""
    count = config.count("num_hidden_layers", least=1, most=MAX_LAYERS)
    window = config.count("sliding_window", 0)
    window = window if config.flag("use_sliding_window", True) else 0
    kinds = config.value("layer_types")
    if kinds is None:
        in_windows, kinds = [window > 0 and (windowed is None or windowed(i)) for i in range(count)], [""] * count
    elif isinstance(kinds, list) and len(kinds) == count and all(kind in LAYER_KINDS for kind in kinds):
        in_windows = [kind == "sliding_attention" for kind in kinds]
    else:
        raise config.fail("layer_types", f"'full_attention' or 'sliding_attention' for {count} layers", kinds)
    rotations = {each: _frequencies(config, size, each) for each in set(in_windows)}
    chunk = config.count("attention_chunk_size", least=1) if "chunked_attention" in kinds else 0
    return tuple(
        LayerOptions(window if each else 0, *rotations[each], chunk=chunk if kind == "chunked_attention" else 0)
        for each, kind in zip(in_windows, kinds, strict=True)
    )


def _frequencies(config: JsonObject, size: int, in_window: bool) -> tuple[np.ndarray, float]:
    """Return the angles between positions, for layers with or without windows, and the scale of rotated elements."""
    rotation = config.object("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    of_kind = "sliding_attention" if in_window else "full_attention"
    if rotation.has(of_kind):
        rotation = rotation.object(of_kind)
    theta = config.number("rope_theta", 10000.0)
    if in_window and config.has("rope_local_base_freq"):
        theta, rotation = config.number("rope_local_base_freq", theta), JsonObject(config.path, "", {})
    theta = rotation.number("rope_theta", theta)
    part = rotation.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    rotated = int(size * part)
    if not 1e-30 < theta < 1e30 or not 0 < part <= 1 or rotated % 2 or not rotated:
        raise config.refuse("rope_theta", f"no rotation of {rotated} of {size} elements with base {theta}")
    plain: np.ndarray = np.float32(1) / np.float32(theta) ** (
        np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated)
    )
    kind = rotation.text("rope_type", rotation.text("type", "default"))
    if kind in ("default", "mrope"):  # which differ in the positions only
        return plain, 1.0
    factor = rotation.number("factor", 1.0)
    if not 0 < factor < 1e30:
        raise rotation.refuse("factor", f"must be above 0 and below 1e30, found {factor}")
    if kind == "linear":
        slower: np.ndarray = plain / np.float32(factor)
        return slower, 1.0
    if kind == "llama3":
        return _llama3(plain, rotation, factor), 1.0
    if kind == "yarn":
        return _yarn(plain, rotation, factor, theta, config.count("max_position_embeddings", 8192, least=1))
    if kind in LONG_ROTATIONS:
        slower = plain / _factors_of_short_texts(rotation, len(plain))
        return slower, rotation.number("attention_factor", _long_scale(config, rotation))
    raise rotation.refuse("rope_type", f"expected default, linear, llama3, longrope, mrope or yarn, found {kind!a:.40}")


LONG_ROTATIONS = ("longrope", "su")
"""Kinds of rotary scaling that change beyond the length of pretraining."""


def positions(config: JsonObject) -> int:
    """Return the number of positions of a configuration; 0 if unknown."""
    keys = ("max_position_embeddings", "n_positions", "n_ctx")
    return next((config.count(key) for key in keys if config.has(key)), 0)


def longest_text(config: JsonObject) -> int:
    """Return the maximum number of tokens of a checkpoint; 0 if unknown.

    Cached keys are already rotated when a text becomes long, so only the rotation for short texts is used.
    """
    longest = positions(config)
    rotation = config.object("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    kind = rotation.value("rope_type") or rotation.value("type")
    return _trained_text(config, rotation, longest) if kind in LONG_ROTATIONS else longest


def _trained_text(config: JsonObject, rotation: JsonObject, longest: int) -> int:
    key = "original_max_position_embeddings"
    return rotation.count(key, config.count(key, longest), least=2) if longest else 0


def _factors_of_short_texts(rotation: JsonObject, count: int) -> np.ndarray:
    value = rotation.value("short_factor")
    listed = value if isinstance(value, list) else []
    numbers = [each for each in listed if is_number(each) and each > 0]
    if not len(numbers) == len(listed) == count:
        raise rotation.fail("short_factor", f"{count} numbers above 0", value)
    return np.array(numbers, np.float32)


def _long_scale(config: JsonObject, rotation: JsonObject) -> float:
    """Return the attention scale that compensates for longer contexts."""
    longest = config.count("max_position_embeddings", least=2)
    trained = _trained_text(config, rotation, longest)
    factor = rotation.number("factor", longest / trained)
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))


def _llama3(plain: np.ndarray, rotation: JsonObject, factor: float) -> np.ndarray:
    """Divide the frequencies with wavelengths beyond the pretraining length (Llama 3)."""
    low, high = rotation.number("low_freq_factor", 1.0), rotation.number("high_freq_factor", 4.0)
    trained = rotation.count("original_max_position_embeddings", 8192, least=1)
    if not 0 < low < high:
        raise rotation.refuse("low_freq_factor", f"must be above 0 and below high_freq_factor, found {low} and {high}")
    turns = trained * plain / np.float32(2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    mixed: np.ndarray = ((1 - share) * plain / factor + share * plain).astype(np.float32)
    return mixed


def _yarn(
    plain: np.ndarray, rotation: JsonObject, factor: float, theta: float, context: int
) -> tuple[np.ndarray, float]:
    """Divide the frequencies by their number of turns within the pretraining length (YaRN)."""
    trained, pairs = rotation.count("original_max_position_embeddings", context, least=1), len(plain)

    def pair_of(turns: float) -> float:
        """Return the pair with this number of turns."""
        return pairs * math.log(trained / (turns * 2 * math.pi)) / math.log(theta)

    fast, slow = _positive(rotation, "beta_fast", 32.0), _positive(rotation, "beta_slow", 1.0)
    if theta <= 1:
        raise rotation.refuse("rope_theta", f"must be above 1 with 'yarn', found {theta}")
    low, high = pair_of(fast), pair_of(slow)
    if rotation.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    share = np.clip((np.arange(pairs, dtype=np.float32) - low) / (high - low or 0.001), 0, 1)
    mixed: np.ndarray = (plain / factor * share + plain * (1 - share)).astype(np.float32)
    above, below = rotation.number("mscale", 0.0), rotation.number("mscale_all_dim", 0.0)
    scale = _grown(factor, above) / _grown(factor, below) if above and below else _grown(factor, 1.0)
    return mixed, rotation.number("attention_factor", scale)


def _grown(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _llama(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(options, layers=tuple(replace(layer, window=0) for layer in options.layers))


def _mistral(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return options


def _qwen2(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    first = config.count("max_window_layers", 0)
    if config.flag("use_sliding_window", False):
        return replace(options, layers=_layers(config, options.size, lambda layer: layer >= first))
    return _llama(config, options)


def _qwen3(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(_qwen2(config, options), head_norms="each")


def _phi3(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(options, fused=True)


def _gemma(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    tied = config.flag("tie_word_embeddings", True)
    activation = "gelu_tanh" if options.activation == "gelu" else options.activation
    return replace(
        _llama(config, options), norm_offset=1.0, embedding_scale=options.hidden**0.5, tied=tied, activation=activation
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
        _llama(config, options), scale=config.number("attention_multiplier", 1.0),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logit_scale=1 / _positive(config, "logits_scaling", 1.0),
    )  # fmt: skip


def _olmo2(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return replace(_llama(config, options), norms=BEHIND, head_norms="all")


def _olmo(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    limit = config.number("clip_qkv", 0.0)
    if limit < 0:
        raise config.fail("clip_qkv", "a number above 0", limit)
    return replace(
        _llama(config, options), is_layer_norm=True, has_plain_norms=True, epsilon=1e-5, projection_limit=limit
    )  # fmt: skip


def _smollm3(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return _partly_rotated(config, _qwen2(config, options))


def _partly_rotated(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    """Disable rotary embedding in some layers."""
    pattern, every = config.value("no_rope_layers"), config.count("no_rope_layer_interval", 4, least=1)
    default = [(i + 1) % every != 0 for i in range(len(options.layers))]
    rotates = pattern if isinstance(pattern, list) and pattern else default
    if len(rotates) != len(options.layers):
        raise config.fail("no_rope_layers", f"a number for each of {len(options.layers)} layers", pattern)
    pairs = zip(options.layers, rotates, strict=True)
    return replace(options, layers=tuple(each if on else replace(each, frequencies=None) for each, on in pairs))


def _llama4(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    options = _partly_rotated(config, _llama(config, options))
    count = config.count("num_local_experts", 16, least=1, most=MAX_EXPERTS)
    chosen = config.count("num_experts_per_tok", 1, least=1, most=count)
    experts = ExpertOptions(
        count, chosen, options.inner, options.inner, False, is_shared_gated=False, scores="sigmoid", scales_inputs=True
    )
    step, mixed = config.count("interleave_moe_layer_step", 1, least=1), config.value("moe_layers")
    if mixed is not None and not isinstance(mixed, list):
        raise config.fail("moe_layers", "a list of layers", mixed)
    size, tuned = config.count("attention_chunk_size", 0), config.value("attn_temperature_tuning")
    temperature = (config.number("attn_scale", 0.1), _positive(config, "floor_scale", 8192.0))

    def layer(i: int, each: LayerOptions) -> LayerOptions:
        is_mixed = (i + 1) % step == 0 if mixed is None else i in mixed
        is_plain = each.frequencies is None
        chunk = each.chunk if config.has("layer_types") or is_plain else size
        heated = temperature if is_plain and (tuned is None or tuned) else None
        return replace(each, experts=experts if is_mixed else None, chunk=chunk, temperature=heated)

    return replace(
        options, layers=tuple(layer(i, each) for i, each in enumerate(options.layers)), is_interleaved=True,
        inner=read_size(config, "intermediate_size_mlp"),
        renamed=(("mlp.gate.", "mlp.router."), (".mlp.", ".feed_forward.")),
        head_norms="rotated" if config.flag("use_qk_norm", True) else "",
    )  # fmt: skip


def _mixtral(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    names = (
        ("mlp.", "block_sparse_moe."), (".gate_proj.", ".w1."), (".up_proj.", ".w3."), (".down_proj.", ".w2.")
    )  # fmt: skip
    count = config.count("num_local_experts", 8, least=1, most=MAX_EXPERTS)
    experts = ExpertOptions(count, config.count("num_experts_per_tok", 2, least=1, most=count), options.inner)
    layers = tuple(replace(each, experts=experts) for each in options.layers)
    return replace(options, layers=layers, renamed=names)


def _qwen_mixture(config: JsonObject, options: DecoderOptions, shared: int = 0) -> DecoderOptions:
    key = "num_experts" if config.has("num_experts") else "num_local_experts"
    count = config.count(key, least=1, most=MAX_EXPERTS)
    experts = ExpertOptions(
        count, config.count("num_experts_per_tok", least=1, most=count),
        config.count("moe_intermediate_size", least=1, most=MAX_WIDTH), shared, config.flag("norm_topk_prob", False),
    )  # fmt: skip
    step, plain = config.count("decoder_sparse_step", 1, least=1), config.value("mlp_only_layers") or []
    if not isinstance(plain, list):
        raise config.fail("mlp_only_layers", "a list of layers", plain)
    layers = enumerate(options.layers)
    is_mixed = (((i + 1) % step == 0 and i not in plain, each) for i, each in layers)
    return replace(options, layers=tuple(replace(each, experts=experts if mixed else None) for mixed, each in is_mixed))


def _qwen2_moe(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    shared = config.count("shared_expert_intermediate_size", least=1, most=MAX_WIDTH)
    return _qwen_mixture(config, _qwen2(config, options), shared)


def _qwen3_moe(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    return _qwen_mixture(config, _qwen3(config, options))


def _deepseek(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    options = replace(_llama(config, options), renamed=((".shared_expert.", ".shared_experts."),))
    query_rank = read_size(config, "q_lora_rank") if config.has("q_lora_rank") else 0
    plain, values = read_size(config, "qk_nope_head_dim"), read_size(config, "v_head_dim")
    is_interleaved = config.flag("rope_interleave", True)
    latent = LatentOptions(read_size(config, "kv_lora_rank"), query_rank, plain, options.size, values, is_interleaved)
    rotation = config.object("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    grown = _grown(rotation.number("factor", 1.0), rotation.number("mscale_all_dim", 0.0))
    dense, count = config.count("first_k_dense_replace", 0), len(options.layers)
    if config.count("moe_layer_freq", 1) != 1:
        raise config.refuse("moe_layer_freq", "only 1 is supported: export to ONNX")
    experts = _deepseek_experts(config) if dense < count else None
    # Layers after the last one predict further tokens.
    predicting = range(count, count + config.count("num_nextn_predict_layers", 0, most=MAX_LAYERS))
    return replace(
        options, kv_heads=1, size=latent.rank + latent.rotated, latent=latent,
        scale=(plain + latent.rotated) ** -0.5 * grown**2, unused=tuple(f"model.layers.{i}." for i in predicting),
        layers=tuple(replace(each, experts=experts if i >= dense else None) for i, each in enumerate(options.layers)),
    )  # fmt: skip


def _deepseek_experts(config: JsonObject) -> ExpertOptions:
    is_third = config.text("model_type") == "deepseek_v3"
    kinds, scores = (("noaux_tc",), "sigmoid") if is_third else (("greedy", "group_limited_greedy"), "softmax")
    kind = config.text("topk_method", kinds[0])
    function = config.text("scoring_func", scores)
    for key, value, known in (("topk_method", kind, kinds), ("scoring_func", function, (scores,))):
        if value not in known:
            raise config.refuse(key, f"expected {' or '.join(known)}, found {value!a:.40}")
    count = config.count("n_routed_experts", least=1, most=MAX_EXPERTS)
    inner = read_size(config, "moe_intermediate_size")
    chosen = config.count("num_experts_per_tok", least=1, most=count)
    groups = config.count("n_group", 1, least=1, most=count)
    groups = 1 if kind == "greedy" else groups
    chosen_groups = config.count("topk_group", 1, least=1)
    chosen_groups = 1 if kind == "greedy" else chosen_groups
    if chosen_groups > groups:
        raise config.fail("topk_group", f"an integer from 1 to {groups}", chosen_groups)
    members = 2 if is_third else 1
    if count % groups or count // groups < members or chosen > chosen_groups * (count // groups):
        what = f"{chosen} of {count} experts are not in {chosen_groups} of {groups} groups"
        raise config.refuse("n_group", what)
    if not is_third and config.flag("norm_topk_prob", False):
        raise config.refuse("norm_topk_prob", "only false is supported: export to ONNX")
    return ExpertOptions(
        count, chosen, inner, inner * config.count("n_shared_experts", 0, most=MAX_EXPERTS),
        is_third and config.flag("norm_topk_prob", True), False, scores, is_third, groups, chosen_groups, members,
        config.number("routed_scaling_factor", 2.5 if is_third else 1.0),
    )  # fmt: skip


def _stablelm(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    if config.flag("qk_layernorm", False):
        raise config.refuse("qk_layernorm", "norms of queries and keys are not supported: export to ONNX")
    options = _llama(config, options)
    return replace(options, is_layer_norm=True, is_parallel=config.flag("use_parallel_residual", False))


def _gpt2(config: JsonObject, options: DecoderOptions) -> DecoderOptions:
    for key, supported in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if config.flag(key, supported) != supported:
            raise config.refuse(key, f"only {str(supported).lower()} is supported: export to ONNX")
    names = (
        ("model.layers.", "transformer.h."), ("model.embed_tokens", "transformer.wte"), (".input_layernorm.", ".ln_1."),
        ("model.embed_positions", "transformer.wpe"), ("model.norm", "transformer.ln_f"), (".self_attn.", ".attn."),
        (".post_attention_layernorm.", ".ln_2."), (".qkv_proj.", ".c_attn."), (".o_proj.", ".c_proj."),
        (".up_proj.", ".c_fc."), (".down_proj.", ".c_proj."),
    )  # fmt: skip
    return replace(
        options, layers=tuple(replace(layer, frequencies=None) for layer in options.layers), is_layer_norm=True,
        is_gated=False, fused=True, is_transposed=True, tied=config.flag("tie_word_embeddings", True), renamed=names,
        positions=config.count("max_position_embeddings", least=1, most=MAX_WIDTH),
    )  # fmt: skip


def _positive(config: JsonObject, key: str, default: float) -> float:
    value = config.number(key, default)
    if value <= 0:
        raise config.fail(key, "a number above 0", value)
    return value


NO_EFFECT = frozenset({
    "_attn_implementation_autoset", "_name_or_path", "_sliding_window_pattern", "architectures", "attention_bias",
    "attention_dropout", "attn_implementation", "attn_pdrop", "auto_map", "aux_loss_alpha", "bos_token_id",
    "cache_implementation", "chunk_size_feed_forward", "dtype", "embd_pdrop", "eos_token_id", "ep_size",
    "finetuning_task", "for_llm_compressor", "gradient_checkpointing", "hidden_activation", "hidden_dropout",
    "id2label", "image_token_id", "initializer_range", "is_decoder", "is_encoder_decoder", "label2id",
    "max_position_embeddings", "mlp_bias", "model_type", "n_ctx", "n_positions", "num_labels",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states", "output_router_logits",
    "pad_token_id", "pretraining_tp", "problem_type", "qk_head_dim", "qkv_bias", "quantization",
    "quantization_config", "reorder_and_upcast_attn", "resid_pdrop", "return_dict", "router_aux_loss_coef",
    "router_jitter_noise", "seq_aux", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "task_specific_params", "tokenizer_class", "torch_dtype", "torchscript",
    "transformers_version", "use_cache", "use_qkv_bias", "video_token_id", "vision_end_token_id",
    "vision_start_token_id", "vision_token_id",
})  # fmt: skip
"""Keys that do not change what a decoder computes, such as training settings and labels."""
NO_EFFECT_ON_ROTATIONS = frozenset({
    "full_attention", "long_factor", "mrope_section", "original_max_position_embeddings", "rope_theta", "rope_type",
    "sliding_attention", "type",
})  # fmt: skip
"""Keys of rotary embeddings that are read elsewhere, or that concern only long texts and images."""
NEUTRAL: dict[str, Json] = {
    "add_cross_attention": False, "is_causal": True, "partial_rotary_factor": 1.0, "rope_theta": 10000.0,
    "tie_encoder_decoder": False, "use_bidirectional_attention": False, "use_mrope": False, "use_qk_norm": False,
    "use_sliding_window": False,
}  # fmt: skip
"""Values with which keys of other architectures have no effect."""
Reader = Callable[[JsonObject, DecoderOptions], DecoderOptions]
ARCHITECTURES: dict[str, Reader] = {
    "llama": _llama, "mistral": _mistral, "qwen2": _qwen2, "qwen3": _qwen3, "phi3": _phi3, "gemma": _gemma,
    "gemma2": _gemma2, "gemma3_text": _gemma3, "granite": _granite, "olmo": _olmo, "olmo2": _olmo2, "smollm3": _smollm3,
    "gpt2": _gpt2, "stablelm": _stablelm, "mixtral": _mixtral, "qwen2_moe": _qwen2_moe, "qwen3_moe": _qwen3_moe,
    "qwen2_vl": _qwen2, "qwen2_vl_text": _qwen2, "qwen2_5_vl": _qwen2, "qwen2_5_vl_text": _qwen2,
    "llama4_text": _llama4, "deepseek_v2": _deepseek, "deepseek_v3": _deepseek,
}  # fmt: skip
"""The reader of each architecture's configuration, by `model_type`."""
