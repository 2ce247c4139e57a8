"""Whisper as two graphs: an encoder of spectra, and a decoder with cross-attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType, concat
from mirlo.extend.library import join_heads, layer_norm, split_heads
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions, renamed
from mirlo_llm.generate.checkpoints.cross_decoder import CrossDecoderGraph, keys_and_values, state_types
from mirlo_llm.generate.checkpoints.decoder import import_decoder
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph, CheckpointWeights, import_graph
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.checkpoints.whisper_options import (
    ALIGNMENT,
    EPSILON,
    NAMES,
    SPECTRUM,
    WhisperOptions,
    read_whisper_options,
)
from mirlo_llm.generate.config import read_generation
from mirlo_llm.generate.json_file import read_json


def _weights(path: Path, keeps_encoder: bool) -> CheckpointWeights:
    """Return the tensors that the encoder, or the decoder, reads."""
    tensors: Mapping[str, np.ndarray] = {
        name if name.startswith(("model.", "proj_out.")) else f"model.{name}": tensor
        for name, tensor in read_checkpoint(path).items()
        if not name.startswith("proj_out.")  # has the rows of the tokens
    }

    def is_of_encoder(name: str) -> bool:
        return name.startswith("model.encoder.") or ".encoder_attn.k_proj." in name or ".encoder_attn.v_proj." in name

    kept = {name: tensor for name, tensor in tensors.items() if is_of_encoder(name) == keeps_encoder}
    return CheckpointWeights(path, kept, lambda name: renamed(name, NAMES))


def import_speech_encoder(path: Path, config: Path) -> ImportedModule:
    """Import the encoder: a spectrum to cross-attention keys and values."""
    options, weights = _read_options(config), _weights(path, True)
    inputs = {SPECTRUM: TensorType.of((1, options.bands, 2 * options.frames), "f32")}

    def build(builder: GraphBuilder, spectrum: Tensor) -> dict[str, Tensor]:
        return SpeechEncoderGraph(builder, options, weights).results(spectrum)

    return import_graph(weights, inputs, build)


def import_speech_decoder(path: Path, config: Path) -> ImportedModule:
    """Import the decoder: a language model with cross-attention keys and values as further inputs."""
    options = _read_options(config)

    def make_graph(
        builder: GraphBuilder, decoder: DecoderOptions, weights: CheckpointWeights, states: Sequence[Tensor]
    ) -> SpeechDecoderGraph:
        return SpeechDecoderGraph(builder, decoder, weights, states, options.alignment)

    states = state_types(options.decoder, options.frames)
    return import_decoder(options.decoder, _weights(path, False), states, make_graph)


def _read_options(config: Path) -> WhisperOptions:
    root = read_json(config)
    return read_whisper_options(root, read_generation(root))


class SpeechDecoderGraph(CrossDecoderGraph):
    """The graph of the decoder, which also returns the queries of the heads that align tokens."""

    def __init__(
        self,
        builder: GraphBuilder,
        options: DecoderOptions,
        weights: CheckpointWeights,
        states: Sequence[Tensor],
        alignment: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__(builder, options, weights, states)
        self._alignment = alignment
        self._queries: list[Tensor] = []

    def receive_queries(self, layer: int, query: Tensor) -> None:
        self._queries.append(query)

    def further_results(self) -> dict[str, Tensor]:
        if not self._alignment:
            return {}
        heads = [self._queries[layer].slice(1, head, 1) for layer, head in self._alignment]
        return {ALIGNMENT: concat(heads, 1)}


class SpeechEncoderGraph(CheckpointGraph):
    """The graph of the encoder under construction."""

    def __init__(self, builder: GraphBuilder, options: WhisperOptions, weights: CheckpointWeights) -> None:
        super().__init__(builder, weights)
        self.options = options

    def results(self, spectrum: Tensor) -> dict[str, Tensor]:
        """Return cross-attention keys and values for each layer of the decoder."""
        options = self.options
        x = self._convolved("model.encoder.conv1", spectrum, 1)
        x = self._convolved("model.encoder.conv2", x, 2).permute([0, 2, 1])
        x = x + self.weight("model.encoder.embed_positions", options.frames, options.hidden)
        for i in range(options.layers):
            x = self._layer(f"model.encoder.layers.{i}", x)
        x = self._norm("model.encoder.layer_norm", x)
        return keys_and_values(self, options.decoder, x, "model.decoder.layers", options.frames)

    def _convolved(self, name: str, x: Tensor, stride: int) -> Tensor:
        """Return a convolution over three frames, and its activation."""
        channels, hidden = x.shape[1], self.options.hidden
        assert isinstance(channels, int)
        weight, bias = self.weight(name, hidden, channels, 3), self.weight(name, hidden, part="bias")
        convolved = self.builder.emit("conv", x, weight, bias, strides=[stride], padding=[1, 1])
        return self.activated(convolved, self.options.decoder.activation)

    def _layer(self, name: str, x: Tensor) -> Tensor:
        options = self.options
        normed = self._norm(f"{name}.self_attn_layer_norm", x)
        parts = [self.product(f"{name}.self_attn.{part}_proj", normed, options.hidden) for part in "qkv"]
        heads = [split_heads(part, options.heads, options.hidden // options.heads) for part in parts]
        attended = join_heads(self.builder.emit("attention", *heads, None))
        x = x + self.product(f"{name}.self_attn.out_proj", attended, options.hidden)
        inner = self.product(f"{name}.fc1", self._norm(f"{name}.final_layer_norm", x), options.inner)
        return x + self.product(f"{name}.fc2", self.activated(inner, options.decoder.activation), options.hidden)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale, bias = (self.weight(name, self.options.hidden, part=part) for part in ("weight", "bias"))
        return layer_norm(x, scale, bias, -1, EPSILON)
