"""T5 and BART as two graphs: an encoder of the input text, and a decoder of the output text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType
from mirlo.extend.frontend import dims as D
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions, LayerOptions, Names, renamed
from mirlo_llm.generate.checkpoints.cross_decoder import CrossDecoderGraph, keys_and_values, state_types
from mirlo_llm.generate.checkpoints.decoder import TokenPlaces, import_decoder
from mirlo_llm.generate.checkpoints.distances import scores_of
from mirlo_llm.generate.checkpoints.encoder import EncoderGraph
from mirlo_llm.generate.checkpoints.encoder_options import Distances, EncoderOptions
from mirlo_llm.generate.checkpoints.graph import (
    BATCH,
    LENGTH,
    CheckpointGraph,
    CheckpointWeights,
    import_graph,
    present,
)
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.checkpoints.seq2seq_options import read_seq2seq_options
from mirlo_llm.generate.json_file import read_json

SOURCE = D.symbol("source")
BIAS = "final_logits_bias"
_CROSS = (".encoder_attn.k_proj.", ".encoder_attn.v_proj.", ".EncDecAttention.k.", ".EncDecAttention.v.")


def _weights(path: Path, names: Names, keeps_encoder: bool) -> CheckpointWeights:
    """Return the tensors that the encoder, or the decoder, reads; both read the embedding."""
    tensors = dict(read_checkpoint(path))
    for name in list(tensors):
        plain = name.removeprefix("model.")
        if plain.endswith("embed_tokens.weight"):  # has the rows of the tokens
            table = tensors.pop(name)
            tensors.setdefault("model.shared.weight" if name.startswith("model.") else "shared.weight", table)

    def is_kept(name: str) -> bool:
        plain = name.removeprefix("model.")
        if plain == "shared.weight":
            return True
        return (plain.startswith("encoder.") or any(each in name for each in _CROSS)) == keeps_encoder

    def name_of(name: str) -> str:
        name = renamed(name, names)
        return present((name, name.removeprefix("model.")), tensors)

    return CheckpointWeights(path, {name: tensor for name, tensor in tensors.items() if is_kept(name)}, name_of)


def import_text_encoder(path: Path, config: Path) -> ImportedModule:
    """Import the encoder: tokens to cross-attention keys and values."""
    options = read_seq2seq_options(read_json(config))
    names = (*options.encoder.renamed, ("cross.layers.", "model.layers."), *options.decoder.renamed)
    weights = _weights(path, names, True)
    inputs = {name: TensorType.of((BATCH, LENGTH), "i64") for name in ("input_ids", "attention_mask")}

    def build(builder: GraphBuilder, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
        if isinstance(options.encoder, EncoderOptions):
            states = EncoderGraph(builder, options.encoder, weights).hidden_states(tokens, mask)
        else:
            graph = DistanceGraph(builder, options.encoder, weights, (), options.distances, "encoder")
            states, _ = graph.hidden_states(tokens, mask)
        return keys_and_values(CheckpointGraph(builder, weights), options.decoder, states, "cross.layers", LENGTH)

    return import_graph(weights, inputs, build)


def import_text_decoder(path: Path, config: Path) -> ImportedModule:
    """Import the decoder: a language model with cross-attention keys and values as further inputs."""
    options = read_seq2seq_options(read_json(config))
    weights, states = _weights(path, options.decoder.renamed, False), state_types(options.decoder, SOURCE)
    make_graph = partial(DistanceGraph, distances=options.distances, part="decoder")
    return import_decoder(options.decoder, weights, states, make_graph)


class DistanceGraph(CrossDecoderGraph):
    """Layers with relative position biases, if the model has any."""

    def __init__(
        self, builder: GraphBuilder, options: DecoderOptions, weights: CheckpointWeights, states: Sequence[Tensor],
        distances: Distances | None, part: str,
    ) -> None:  # fmt: skip
        super().__init__(builder, options, weights, states)
        self._distances, self._part = distances, part

    def results(self, tokens: Tensor, mask: Tensor, *caches: Tensor) -> list[Tensor]:
        """Return the logits, plus a bias if the checkpoint has one, and the updated caches."""
        bias = self._weights.take(BIAS, 1, self.options.vocabulary) if BIAS in self._weights else None
        logits, *after = super().results(tokens, mask, *caches)
        return [logits if bias is None else logits + self.matrix(bias), *after]

    def between(self, name: str, x: Tensor, places: TokenPlaces) -> Tensor:
        """Add cross-attention to the encoder's states."""
        return super().between(name, x, places) if self._part == "decoder" else x

    def mask(self, layer: LayerOptions, places: TokenPlaces) -> Tensor:
        """Return the attention mask plus the position bias."""
        key = layer.window, layer.chunk
        if key in self._masks:
            return self._masks[key]
        zero = self.builder.constant(0, "f32").reshape((1, 1, 1, 1))
        result = places.mask(layer) if self.options.is_causal else zero
        if self._distances is not None:
            result = result + self._of_distances(places, self._distances)
        self._masks[key] = result
        return result

    def _of_distances(self, places: TokenPlaces, distances: Distances) -> Tensor:
        """Return the relative position bias, [batch, heads, length, total]."""
        name = f"{self._part}.block.0.layer.0.SelfAttention.relative_attention_bias"
        apart = places.keys.squeeze(1) - places.tokens.expand_dims(2)
        added = scores_of(self, name, self.options.heads, apart, distances, not self.options.is_causal)
        return added.permute([0, 3, 1, 2])
