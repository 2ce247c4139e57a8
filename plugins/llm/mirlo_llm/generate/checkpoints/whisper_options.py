"""Options of Whisper models, read from `config.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from mirlo_llm.generate.checkpoints.architectures import (
    MAX_LAYERS,
    DecoderOptions,
    LayerOptions,
    Names,
    read_activation,
    read_size,
    require_heads,
)
from mirlo_llm.generate.json_file import JsonObject, is_count

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

EPSILON = 1e-5
NAMES: Names = (
    ("model.layers.", "model.decoder.layers."), ("model.embed_tokens.", "model.decoder.embed_tokens."),
    ("model.embed_positions.", "model.decoder.embed_positions."), ("model.norm.", "model.decoder.layer_norm."),
    (".input_layernorm.", ".self_attn_layer_norm."), (".post_attention_layernorm.", ".final_layer_norm."),
    (".self_attn.o_proj.", ".self_attn.out_proj."), (".mlp.up_proj.", ".fc1."), (".mlp.down_proj.", ".fc2."),
)  # fmt: skip
SPECTRUM = "input_features"
ALIGNMENT = "alignment"
"""The output with the queries of the alignment heads, [batch, heads, length, size]."""
ALIGNMENT_HEADS = "alignment_heads"


@dataclass(frozen=True)
class WhisperOptions:
    """The sizes of a model."""

    bands: int
    """Number of mel bands."""
    frames: int
    """Length of the encoder's result; a spectrum has twice as many frames."""
    hidden: int
    layers: int
    """Heads of the encoder."""
    heads: int
    """Of the encoder."""
    inner: int
    """Of the encoder."""
    decoder: DecoderOptions
    alignment: tuple[tuple[int, int], ...]
    """Alignment heads as pairs of decoder layer and head; empty if unknown."""
    median_width: int
    """Width of the median filter over time in alignment."""


def read_whisper_options(config: JsonObject, generation: JsonObject) -> WhisperOptions:
    """Read the sizes from a configuration, and the alignment heads from a generation configuration."""
    hidden, activation = read_size(config, "d_model"), read_activation(config, "activation_function", "gelu")
    heads = require_heads(config, "decoder_attention_heads", hidden)
    layers = read_size(config, "decoder_layers", most=MAX_LAYERS)
    decoder = DecoderOptions(
        read_size(config, "vocab_size"), hidden, read_size(config, "decoder_ffn_dim"), heads, heads, hidden // heads,
        (LayerOptions(),) * layers, EPSILON, activation, True, is_layer_norm=True, is_gated=False, renamed=NAMES,
        positions=read_size(config, "max_target_positions", 448),
    )  # fmt: skip
    return WhisperOptions(
        read_size(config, "num_mel_bins", 80), read_size(config, "max_source_positions", 1500), hidden,
        read_size(config, "encoder_layers", most=MAX_LAYERS),
        require_heads(config, "encoder_attention_heads", hidden), read_size(config, "encoder_ffn_dim"), decoder,
        _read_alignment(generation, layers, heads), _read_width(config),
    )  # fmt: skip


def _read_alignment(generation: JsonObject, layers: int, heads: int) -> tuple[tuple[int, int], ...]:
    value = generation.value(ALIGNMENT_HEADS)
    if value is None:
        return ()
    pairs = value if isinstance(value, list) else []
    result = [(pair[0], pair[1]) for pair in pairs if _is_head(pair, layers, heads)]
    if not result or len(result) != len(pairs) or len(result) > layers * heads:
        expected = f"a list of pairs: a layer below {layers} and a head of it below {heads}"
        raise generation.fail(ALIGNMENT_HEADS, expected, value)
    return tuple(result)


def _is_head(pair: Json, layers: int, heads: int) -> TypeGuard[tuple[int, int]]:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return all(is_count(number, 0, count - 1) for number, count in zip(pair, (layers, heads), strict=True))


def _read_width(config: JsonObject) -> int:
    width = config.count("median_filter_width", 7, least=1, most=99)
    if width % 2 == 0:
        raise config.fail("median_filter_width", "an odd number", width)
    return width
