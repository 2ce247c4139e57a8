"""Whisper as two graphs: an encoder of spectra, and a decoder that attends to its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.foreign import ImportedModule
from mirlo.frontends.library.attention import join_heads, split_heads
from mirlo.frontends.library.normalizations import layer_norm
from mirlo.frontends.tensor import Tensor
from mirlo.generate.checkpoints.architectures import ACTIVATIONS, MAX_LAYERS, MAX_WIDTH, DecoderOptions, LayerOptions
from mirlo.generate.checkpoints.cross_decoder import CrossDecoderGraph
from mirlo.generate.checkpoints.decoder import decoder_inputs
from mirlo.generate.checkpoints.graph import CheckpointGraph, CheckpointWeights, import_graph
from mirlo.generate.checkpoints.safetensors import read_checkpoint
from mirlo.generate.json_file import JsonObject, read_json

EPSILON = 1e-5
_NAMES = (
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

    def states(self) -> dict[str, TensorType]:
        """Return the keys and values of the encoder's states for each layer of the decoder, by names."""
        d = self.decoder
        kind = TensorType.of((1, d.heads, self.frames, d.size), "f32")
        return {name: kind for i in range(len(d.layers)) for name in (f"states.{i}.key", f"states.{i}.value")}


def read_whisper_options(config: JsonObject) -> WhisperOptions:
    """Read the sizes of a configuration."""

    def size(key: str, default: int | None = None, most: int = MAX_WIDTH) -> int:
        return config.count(key, default, least=1, most=most)

    hidden, heads = size("d_model"), size("decoder_attention_heads")
    activation = config.text("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise config.refuse(
            "activation_function", f"expected one of {', '.join(ACTIVATIONS)}, found {activation!a:.40}"
        )
    options = WhisperOptions(
        size("num_mel_bins", 80), size("max_source_positions", 1500), hidden, size("encoder_layers", most=MAX_LAYERS),
        size("encoder_attention_heads"), size("encoder_ffn_dim"),
        DecoderOptions(
            size("vocab_size"), hidden, size("decoder_ffn_dim"), heads, heads, max(hidden // heads, 1),
            (LayerOptions(),) * size("decoder_layers", most=MAX_LAYERS), EPSILON, ACTIVATIONS[activation], True,
            is_layer_norm=True, is_gated=False, renamed=_NAMES, positions=size("max_target_positions", 448),
        ),
    )  # fmt: skip
    for key, count in (("decoder_attention_heads", heads), ("encoder_attention_heads", options.heads)):
        if hidden % count:
            raise config.refuse(key, f"{hidden} elements do not divide into {count} heads")
    return options


def _weights(path: Path, keeps_encoder: bool) -> CheckpointWeights:
    """Return the tensors of a file that the encoder, or the decoder, reads."""
    tensors: Mapping[str, np.ndarray] = {
        name if name.startswith(("model.", "proj_out.")) else f"model.{name}": tensor
        for name, tensor in read_checkpoint(path).items()
        if not name.startswith("proj_out.")  # has the rows of the tokens
    }

    def is_of_encoder(name: str) -> bool:
        return name.startswith("model.encoder.") or ".encoder_attn.k_proj." in name or ".encoder_attn.v_proj." in name

    def name_of(name: str) -> str:
        for ours, theirs in _NAMES:
            name = name.replace(ours, theirs)
        return name

    kept = {name: tensor for name, tensor in tensors.items() if is_of_encoder(name) == keeps_encoder}
    return CheckpointWeights(path, kept, name_of)


def import_speech_encoder(path: Path, config: Path) -> ImportedModule:
    """Return the graph from a spectrum to keys and values of its states."""
    options, weights = read_whisper_options(read_json(config)), _weights(path, True)
    inputs = {SPECTRUM: TensorType.of((1, options.bands, 2 * options.frames), "f32")}

    def build(builder: GraphBuilder, spectrum: Tensor) -> dict[str, Tensor]:
        parts = SpeechEncoderGraph(builder, options, weights).results(spectrum)
        weights.finish()
        return dict(zip(options.states(), parts, strict=True))

    return import_graph(weights, inputs, build)


def import_speech_decoder(path: Path, config: Path) -> ImportedModule:
    """Return the graph of the decoder: as of a language model, with the encoder's states as further inputs."""
    options, weights = read_whisper_options(read_json(config)), _weights(path, False)
    names, inputs = decoder_inputs(options.decoder)

    def build(builder: GraphBuilder, tokens: Tensor, mask: Tensor, *others: Tensor) -> dict[str, Tensor]:
        caches, states = others[: len(names)], others[len(names) :]
        graph = CrossDecoderGraph(builder, options.decoder, weights, states)
        logits, *after = graph.results(tokens, mask, *caches)
        return {"logits": logits, **{f"present.{name}": x for name, x in zip(names, after, strict=True)}}

    return import_graph(weights, {**inputs, **options.states()}, build)


class SpeechEncoderGraph(CheckpointGraph):
    """The graph of the encoder under construction."""

    def __init__(self, builder: GraphBuilder, options: WhisperOptions, weights: CheckpointWeights) -> None:
        super().__init__(builder, weights)
        self.options = options

    def results(self, spectrum: Tensor) -> list[Tensor]:
        """Return keys and values for each layer of the decoder."""
        options = self.options
        x = self._convolved("model.encoder.conv1", spectrum, 1)
        x = self._convolved("model.encoder.conv2", x, 2).permute([0, 2, 1])
        x = x + self.weight("model.encoder.embed_positions", options.frames, options.hidden)
        for i in range(options.layers):
            x = self._layer(f"model.encoder.layers.{i}", x)
        x = self._norm("model.encoder.layer_norm", x)
        decoder, result = options.decoder, list[Tensor]()
        for i in range(len(decoder.layers)):
            for part in ("k", "v"):
                made = self.product(f"model.decoder.layers.{i}.encoder_attn.{part}_proj", x, options.hidden)
                result.append(split_heads(made, decoder.heads, decoder.size))
        return result

    def _convolved(self, name: str, x: Tensor, stride: int) -> Tensor:
        """Return the activated result of a convolution of three frames."""
        channels, hidden = x.shape[1], self.options.hidden
        assert isinstance(channels, int)
        weight, bias = self.weight(name, hidden, channels, 3), self.weight(name, hidden, part="bias")
        return self._activated(self.builder.emit("conv", x, weight, bias, strides=[stride], padding=[1, 1]))

    def _layer(self, name: str, x: Tensor) -> Tensor:
        options = self.options
        normed = self._norm(f"{name}.self_attn_layer_norm", x)
        parts = [self.product(f"{name}.self_attn.{part}_proj", normed, options.hidden) for part in "qkv"]
        heads = [split_heads(part, options.heads, options.hidden // options.heads) for part in parts]
        attended = join_heads(self.builder.emit("attention", *heads, None))
        x = x + self.product(f"{name}.self_attn.out_proj", attended, options.hidden)
        inner = self.product(f"{name}.fc1", self._norm(f"{name}.final_layer_norm", x), options.inner)
        return x + self.product(f"{name}.fc2", self._activated(inner), options.hidden)

    def _activated(self, x: Tensor) -> Tensor:
        operator, _, approximate = self.options.decoder.activation.partition("_")
        return self.builder.emit(operator, x, **({"approximate": approximate} if approximate else {}))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale, bias = (self.weight(name, self.options.hidden, part=part) for part in ("weight", "bias"))
        return layer_norm(x, scale, bias, -1, EPSILON)
