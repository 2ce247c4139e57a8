"""What a `config.json` says of a Whisper model."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.generate.checkpoints.architectures import (
    MAX_LAYERS,
    DecoderOptions,
    LayerOptions,
    Names,
    read_activation,
    read_size,
    require_heads,
)
from mirlo.generate.json_file import JsonObject

EPSILON = 1e-5
NAMES: Names = (
    ("model.layers.", "model.decoder.layers."), ("model.embed_tokens.", "model.decoder.embed_tokens."),
    ("model.embed_positions.", "model.decoder.embed_positions."), ("model.norm.", "model.decoder.layer_norm."),
    (".input_layernorm.", ".self_attn_layer_norm."), (".post_attention_layernorm.", ".final_layer_norm."),
    (".self_attn.o_proj.", ".self_attn.out_proj."), (".mlp.up_proj.", ".fc1."), (".mlp.down_proj.", ".fc2."),
)  # fmt: skip
SPECTRUM = "input_features"


@dataclass(frozen=True)
class WhisperOptions:
    """The sizes of a model."""

    bands: int
    """Of the mel scale."""
    frames: int
    """States of the encoder; a spectrum has twice as many frames."""
    hidden: int
    layers: int
    """Of the encoder."""
    heads: int
    """Of the encoder."""
    inner: int
    """Of the encoder."""
    decoder: DecoderOptions


def read_whisper_options(config: JsonObject) -> WhisperOptions:
    """Read the sizes of a configuration."""
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
    )  # fmt: skip
