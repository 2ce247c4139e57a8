"""A decoder whose layers attend to the states of an encoder as well."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.library.attention import join_heads
from mirlo.frontends.tensor import Tensor
from mirlo.generate.checkpoints.architectures import DecoderOptions
from mirlo.generate.checkpoints.decoder import DecoderGraph, TokenPlaces
from mirlo.generate.checkpoints.graph import CheckpointWeights


class CrossDecoderGraph(DecoderGraph):
    """The graph of a decoder whose layers attend to states between attention and products."""

    def __init__(
        self, builder: GraphBuilder, options: DecoderOptions, weights: CheckpointWeights, states: Sequence[Tensor]
    ) -> None:
        """`states` are keys and values of one text, for each layer."""
        super().__init__(builder, options, weights)
        self._states = dict(enumerate(zip(states[::2], states[1::2], strict=True)))

    def between(self, name: str, x: Tensor, places: TokenPlaces) -> Tensor:
        """Add what the tokens see of the states."""
        options, (key, value) = self.options, self._states[int(name.rpartition(".")[2])]
        norm = f"{name}.encoder_attn_layer_norm"
        read = x if options.norms_sums else self.norm(norm, x)
        query = self._heads(self.product(f"{name}.encoder_attn.q_proj", read, options.heads * options.size))
        shape = (query.shape[0], *key.shape[1:])
        attended = self.builder.emit(
            "attention", query, key.expand(shape), value.expand(shape), None, scale=options.scale
        )
        x = x + self.product(f"{name}.encoder_attn.out_proj", join_heads(attended), options.hidden)
        return self.norm(norm, x) if options.norms_sums else x
