"""Architectures of encoder-decoder models: each `config.json` is read as the options of both parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mirlo_llm.generate.checkpoints.architectures import (
    ACTIVATIONS,
    MAX_LAYERS,
    DecoderOptions,
    LayerOptions,
    Names,
    read_activation,
    read_size,
    require_heads,
)
from mirlo_llm.generate.checkpoints.encoder_options import Distances, EncoderOptions, read_distances
from mirlo_llm.generate.json_file import JsonObject


@dataclass(frozen=True)
class Seq2SeqOptions:
    """The options of an encoder-decoder model."""

    decoder: DecoderOptions
    encoder: EncoderOptions | DecoderOptions
    """The encoder's options, those of a decoder with norms before attention."""
    longest: int
    """Most tokens of the input text; 0 without a limit."""
    distances: Distances | None = None


def read_seq2seq_options(config: JsonObject) -> Seq2SeqOptions:
    """Return the options of the architecture that a configuration names."""
    kind = config.text("model_type")
    if kind not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise config.refuse("model_type", f"'{kind:.40}' is not an encoder with a decoder that is read: {known}")
    return ARCHITECTURES[kind](config)


def _t5_names(part: str, products: int, is_gated: bool) -> Names:
    """Return the tensor names of a file; `products` is the index of the MLP in a layer."""
    feed = f".layer.{products}.DenseReluDense"
    return (
        ("model.layers.", f"{part}.block."), ("model.embed_tokens.", "shared."),
        ("model.norm.", f"{part}.final_layer_norm."),
        *((f".self_attn.{each}_proj.", f".layer.0.SelfAttention.{each}.") for each in "qkvo"),
        *((f".encoder_attn.{each}_proj.", f".layer.1.EncDecAttention.{each}.") for each in "qkv"),
        (".encoder_attn.out_proj.", ".layer.1.EncDecAttention.o."),
        (".input_layernorm.", ".layer.0.layer_norm."), (".encoder_attn_layer_norm.", ".layer.1.layer_norm."),
        (".post_attention_layernorm.", f".layer.{products}.layer_norm."), (".mlp.gate_proj.", f"{feed}.wi_0."),
        (".mlp.up_proj.", f"{feed}.wi_1." if is_gated else f"{feed}.wi."), (".mlp.down_proj.", f"{feed}.wo."),
    )  # fmt: skip


def _t5(config: JsonObject) -> Seq2SeqOptions:
    hidden, heads, size = read_size(config, "d_model"), read_size(config, "num_heads"), read_size(config, "d_kv")
    gate, _, function = config.text("feed_forward_proj", "relu").rpartition("-")
    function = {"gelu": "gelu_new"}.get(function, function) if gate == "gated" else function
    if function not in ACTIVATIONS or gate not in ("", "gated"):
        raise config.refuse("feed_forward_proj", f"expected a function, or 'gated-' before it, found {gate}-{function}")
    layers, tied = read_size(config, "num_layers", most=MAX_LAYERS), config.flag("tie_word_embeddings", True)
    encoder = DecoderOptions(
        read_size(config, "vocab_size"), hidden, read_size(config, "d_ff"), heads, heads, size,
        (LayerOptions(),) * layers,
        config.number("layer_norm_epsilon", 1e-6), ACTIVATIONS[function], tied, is_gated=gate == "gated", scale=1.0,
        is_causal=False, renamed=_t5_names("encoder", 1, gate == "gated"),
    )  # fmt: skip
    count = read_size(config, "num_decoder_layers", layers, MAX_LAYERS)
    decoder = replace(
        encoder, is_causal=True, layers=(LayerOptions(),) * count, renamed=_t5_names("decoder", 2, gate == "gated"),
        logit_scale=hidden**-0.5 if config.flag("scale_decoder_outputs", tied) else 1.0,
    )  # fmt: skip
    return Seq2SeqOptions(decoder, encoder, 0, read_distances(config))


_BART_DECODER: Names = (
    ("model.layers.", "model.decoder.layers."), ("model.embed_tokens.", "model.shared."),
    ("model.embed_positions.", "model.decoder.embed_positions."),
    ("embedding_norm", "model.decoder.layernorm_embedding"),
    (".input_layernorm.", ".self_attn_layer_norm."), (".post_attention_layernorm.", ".final_layer_norm."),
    (".self_attn.o_proj.", ".self_attn.out_proj."), (".mlp.up_proj.", ".fc1."), (".mlp.down_proj.", ".fc2."),
)  # fmt: skip
_BART_ENCODER: Names = (
    ("encoder.layer.", "model.encoder.layers."), ("embeddings.word_embeddings.", "model.shared."),
    ("embeddings.position_embeddings.", "model.encoder.embed_positions."),
    ("embeddings.LayerNorm.", "model.encoder.layernorm_embedding."),
    (".attention.self.query.", ".self_attn.q_proj."), (".attention.self.key.", ".self_attn.k_proj."),
    (".attention.self.value.", ".self_attn.v_proj."), (".attention.output.dense.", ".self_attn.out_proj."),
    (".attention.output.LayerNorm.", ".self_attn_layer_norm."), (".intermediate.dense.", ".fc1."),
    (".output.dense.", ".fc2."), (".output.LayerNorm.", ".final_layer_norm."),
)  # fmt: skip
BART_FIRST = 2
"""The position of the first token in BART's table of positions."""


def _bart(config: JsonObject) -> Seq2SeqOptions:
    hidden, vocabulary = read_size(config, "d_model"), read_size(config, "vocab_size")
    heads = require_heads(config, "decoder_attention_heads", hidden)
    activation = read_activation(config, "activation_function", "gelu")
    scale = math.sqrt(hidden) if config.flag("scale_embedding", False) else 1.0
    longest = read_size(config, "max_position_embeddings", 1024)
    encoder = EncoderOptions(
        vocabulary, hidden, read_size(config, "encoder_ffn_dim"),
        require_heads(config, "encoder_attention_heads", hidden),
        read_size(config, "encoder_layers", most=MAX_LAYERS), longest + BART_FIRST, 1e-5, activation,
        first=BART_FIRST, renamed=_BART_ENCODER, embedding_scale=scale,
    )  # fmt: skip
    decoder = DecoderOptions(
        vocabulary, hidden, read_size(config, "decoder_ffn_dim"), heads, heads, hidden // heads,
        (LayerOptions(),) * read_size(config, "decoder_layers", most=MAX_LAYERS), 1e-5, activation, True,
        is_layer_norm=True, is_gated=False, positions=longest, first_position=BART_FIRST, embedding_scale=scale,
        embedding_norm="embedding_norm", final_norm="", norms_sums=True, renamed=_BART_DECODER,
    )  # fmt: skip
    return Seq2SeqOptions(decoder, encoder, longest)


ARCHITECTURES: Mapping[str, Callable[[JsonObject], Seq2SeqOptions]] = {"t5": _t5, "bart": _bart}
"""The reader of each architecture's configuration, by `model_type`."""
