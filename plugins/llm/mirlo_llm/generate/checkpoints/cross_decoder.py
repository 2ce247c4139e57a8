"""A decoder whose layers attend to the states of an encoder as well."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Dim, GraphBuilder, Tensor, TensorType
from mirlo.extend.library import join_heads, split_heads
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions
from mirlo_llm.generate.checkpoints.decoder import DecoderGraph, TokenPlaces
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph, CheckpointWeights


def state_types(options: DecoderOptions, size: Dim) -> dict[str, TensorType]:
    """Return the types of keys and values of an encoder's states of one text per decoder layer, by names."""
    kind = TensorType.of((1, options.heads, size, options.size), "f32")
    return {f"states.{i}.{part}": kind for i in range(len(options.layers)) for part in ("key", "value")}


def keys_and_values(
    graph: CheckpointGraph, options: DecoderOptions, states: Tensor, prefix: str, size: Dim
) -> dict[str, Tensor]:
    """Return keys and values of states for each layer, by names; those of its weights begin with a prefix."""
    names = [f"{prefix}.{i}.encoder_attn.{part}_proj" for i in range(len(options.layers)) for part in "kv"]
    parts = (graph.product(name, states, options.heads * options.size) for name in names)
    heads = [split_heads(part, options.heads, options.size) for part in parts]
    return dict(zip(state_types(options, size), heads, strict=True))


class CrossDecoderGraph(DecoderGraph):
    """The graph of a decoder whose layers attend to states between attention and products."""

    def __init__(
        self, builder: GraphBuilder, options: DecoderOptions, weights: CheckpointWeights, states: Sequence[Tensor]
    ) -> None:
        super().__init__(builder, options, weights, states)
        self._states = list(zip(states[::2], states[1::2], strict=True))

    def see(self, layer: int, query: Tensor) -> None:
        """Take the queries of a layer for cross-attention, [batch, heads, length, size]."""

    def between(self, name: str, x: Tensor, places: TokenPlaces) -> Tensor:
        """Add the result of cross-attention to the states."""
        layer = int(name.rpartition(".")[2])
        options, (key, value) = self.options, self._states[layer]
        norm = f"{name}.encoder_attn_layer_norm"
        read = x if options.norms_sums else self.norm(norm, x)
        query = self._heads(self.product(f"{name}.encoder_attn.q_proj", read, options.heads * options.size))
        self.see(layer, query)
        shape = (query.shape[0], *key.shape[1:])
        attended = self.builder.emit(
            "attention", query, key.expand(shape), value.expand(shape), None, scale=options.scale
        )
        x = x + self.product(f"{name}.encoder_attn.out_proj", join_heads(attended), options.hidden)
        return self.norm(norm, x) if options.norms_sums else x
