"""A decoder with cross-attention to the states of an encoder."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Dim, GraphBuilder, Tensor, TensorType
from mirlo.extend.library import join_heads, split_heads
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions
from mirlo_llm.generate.checkpoints.decoder import DecoderGraph, TokenPlaces
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph, CheckpointWeights


def state_types(options: DecoderOptions, size: Dim) -> dict[str, TensorType]:
    """Return the types of the cross-attention keys and values of one text, by input name."""
    kind = TensorType.of((1, options.heads, size, options.size), "f32")
    return {f"states.{i}.{part}": kind for i in range(len(options.layers)) for part in ("key", "value")}


def keys_and_values(
    graph: CheckpointGraph, options: DecoderOptions, states: Tensor, prefix: str, size: Dim
) -> dict[str, Tensor]:
    """Return the cross-attention keys and values of encoder states for each layer, by name.

    `prefix` is the prefix of the layers' weights.
    """
    names = [f"{prefix}.{i}.encoder_attn.{part}_proj" for i in range(len(options.layers)) for part in "kv"]
    parts = (graph.product(name, states, options.heads * options.size) for name in names)
    heads = [split_heads(part, options.heads, options.size) for part in parts]
    return dict(zip(state_types(options, size), heads, strict=True))


class CrossDecoderGraph(DecoderGraph):
    """The graph of a decoder with cross-attention between attention and MLP."""

    def __init__(
        self, builder: GraphBuilder, options: DecoderOptions, weights: CheckpointWeights, states: Sequence[Tensor]
    ) -> None:
        super().__init__(builder, options, weights, states)
        self._states = list(zip(states[::2], states[1::2], strict=True))

    def receive_queries(self, layer: int, query: Tensor) -> None:
        """Receive the cross-attention queries of a layer, [batch, heads, length, size]; a hook for subclasses."""

    def between(self, name: str, x: Tensor, places: TokenPlaces) -> Tensor:
        """Add the result of cross-attention to the states."""
        layer = int(name.rpartition(".")[2])
        options, (key, value) = self.options, self._states[layer]
        norm = f"{name}.encoder_attn_layer_norm"
        read = x if options.norms_sums else self.norm(norm, x)
        query = self._heads(self.product(f"{name}.encoder_attn.q_proj", read, options.heads * options.size))
        self.receive_queries(layer, query)
        shape = (query.shape[0], *key.shape[1:])
        attended = self.builder.emit(
            "attention", query, key.expand(shape), value.expand(shape), None, scale=options.scale
        )
        x = x + self.product(f"{name}.encoder_attn.out_proj", join_heads(attended), options.hidden)
        return self.norm(norm, x) if options.norms_sums else x
