"""Latent attention: caches hold one row per token, from which the keys and values of all heads are projected.

The projection of keys is moved to the queries, q . (U c) = (U^T q) . c, so that all heads attend to the same rows. The
projection of values is applied to the attended latents.
"""

from __future__ import annotations

from mirlo.extend.frontend import Tensor, concat
from mirlo.extend.library import rms_norm, split_heads
from mirlo_llm.generate.checkpoints.architectures import LatentOptions
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph

EPSILON = 1e-6
"""The epsilon of the norms of latents, independent of that of other norms."""
Angles = tuple[Tensor, Tensor]
"""cos and sin of the angles of positions."""


class LatentProjections:
    """The projections of a layer's latents."""

    def __init__(self, graph: CheckpointGraph, name: str, heads: int, options: LatentOptions) -> None:
        self.graph, self.name, self.heads, self.options = graph, name, heads, options
        widths = (options.plain, options.values)
        self._keys, self._values = graph.parts(f"{name}.kv_b_proj", heads, widths, options.rank)

    def project(self, x: Tensor, angles: Angles | None) -> list[Tensor]:
        """Return the queries, [batch, heads, length, size], and one row per token, with one head."""
        options, name = self.options, self.name
        source, read = ("q_b_proj", self._latent("q_a", x, options.query_rank)) if options.query_rank else ("q_proj", x)
        size = options.plain + options.rotated
        query = split_heads(self.graph.product(f"{name}.{source}", read, self.heads * size), self.heads, size)
        plain, rotary = query.split((options.plain, options.rotated), -1)
        width = options.rank + options.rotated
        both = self.graph.product(f"{name}.kv_a_proj_with_mqa", x, width).expand_dims(1)
        latent, shared = both.split((options.rank, options.rotated), -1)
        latent = self._norm("kv_a_layernorm", latent)
        queries = concat([plain.matmul(self._keys), self._rotated(rotary, angles)], -1)
        return [queries, concat([latent, self._rotated(shared, angles)], -1)]

    def values(self, attended: Tensor) -> Tensor:
        """Return the attended values, [batch, heads, length, values], from the attended rows."""
        return attended.slice(3, 0, self.options.rank).matmul(self._values, transpose_rhs=True)

    def _latent(self, part: str, x: Tensor, rank: int) -> Tensor:
        return self._norm(f"{part}_layernorm", self.graph.product(f"{self.name}.{part}_proj", x, rank))

    def _norm(self, part: str, x: Tensor) -> Tensor:
        width = x.shape[-1]
        assert isinstance(width, int)
        return rms_norm(x, self.graph.weight(f"{self.name}.{part}", width), -1, EPSILON)

    def _rotated(self, x: Tensor, angles: Angles | None) -> Tensor:
        if angles is None:
            return x
        return self.graph.builder.emit("rotary_embedding", x, *angles, interleaved=self.options.is_interleaved)
