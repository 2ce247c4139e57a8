"""Operators that transformers models call during export: attention, caches, experts, scans, layers.

They have shape functions and no kernels: programs with them are compiled (`converters.py`), not run by PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NAMESPACE = "mirlo"
Tensor = Any
"""A tensor of PyTorch, for which no types are installed."""


def _operator(name: str, arguments: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an operator; the decorated function computes shapes."""

    def define(shapes: Callable[..., Any]) -> Callable[..., Any]:
        torch.library.define(f"{NAMESPACE}::{name}", arguments)
        torch.library.register_fake(f"{NAMESPACE}::{name}", shapes)
        packet = getattr(getattr(torch.ops, NAMESPACE), name)
        operator: Callable[..., Any] = packet.default
        return operator

    return define


@_operator(
    "attention",
    "(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? sinks, float scale, float softcap, bool is_causal) "
    "-> Tensor",
)
def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor, scale: float, softcap: float,
    is_causal: bool,
) -> Tensor:  # fmt: skip
    """Attend [batch, heads, length, size] to keys and values; the mask is added to scores.

    `sinks` are scores of one more key for each head, whose value is 0. With `is_causal` the queries are those of the
    last keys, and the mask hides all keys after a query.
    """
    return query.new_empty((*query.shape[:3], value.shape[3]))


@_operator("low_rank", "(Tensor x, Tensor down, Tensor up) -> Tensor")
def low_rank(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Multiply rows by the matrices of an adapter, [depth, rank] and [rank, columns], whose rank is dynamic."""
    return x.new_empty((*x.shape[:-1], up.shape[1]))


@_operator("cache_write", "(Tensor cache, Tensor new, Tensor places, Tensor mask) -> Tensor")
def cache_write(cache: Tensor, new: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    """Write new rows at their places; return as many rows as `mask` has columns, or as before."""
    rows = torch.sym_max(cache.shape[2], mask.shape[1])
    return cache.new_empty((new.shape[0], new.shape[1], rows, new.shape[3]))


@_operator("cache_rows", "(Tensor cache, Tensor mask) -> Tensor")
def cache_rows(cache: Tensor, mask: Tensor) -> Tensor:
    """Return the rows of a cache that hold tokens: as many as `mask` has columns."""
    return cache.new_empty((cache.shape[0], cache.shape[1], mask.shape[1], cache.shape[3]))


@_operator("ring_places", "(Tensor ring, Tensor positions, Tensor mask, int window) -> (Tensor, Tensor)")
def ring_places(ring: Tensor, positions: Tensor, mask: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return the rows of new tokens in a ring, and the position of the token of each row that is read.

    A ring keeps the rows of a window of tokens, each at its position modulo the rows. As many are read as `mask` has
    columns, or all; positions are [batch, rows], and negative for rows without a token.
    """
    rows = torch.sym_min(ring.shape[2], mask.shape[1])
    return torch.empty_like(positions), positions.new_empty((positions.shape[0], rows))


@_operator("page_places", "(Tensor tokens, Tensor ends, Tensor past, Tensor table, Tensor cache) -> (Tensor, Tensor)")
def page_places(tokens: Tensor, ends: Tensor, past: Tensor, table: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of packed tokens [1, tokens], and where their sequences' rows are in pages.

    `ends` [sequences + 1] are the ends of the sequences among the tokens, `past` [sequences] the tokens of each before,
    and `table` [sequences, pages] its pages. The second result is for the operators below only.
    """
    return torch.empty_like(tokens), tokens.new_empty((1,))


@_operator("page_write", "(Tensor cache, Tensor new, Tensor places) -> Tensor")
def page_write(cache: Tensor, new: Tensor, places: Tensor) -> Tensor:
    """Write new rows [1, heads, tokens, size] to a cache [pages, rows, heads, size]."""
    return torch.empty_like(cache)


@_operator("page_rows", "(Tensor cache) -> Tensor")
def page_rows(cache: Tensor) -> Tensor:
    """Return the rows of all pages, [1, heads, rows, size], for `page_attention` only."""
    pages, rows, heads, size = cache.shape
    return cache.new_empty((1, heads, pages * rows, size))


@_operator("page_mask", "(Tensor tokens, int window) -> Tensor")
def page_mask(tokens: Tensor, window: int) -> Tensor:
    """Return a causal mask for `page_attention` only; a window of 0 is one of all tokens."""
    return tokens.new_empty((1, 1, tokens.shape[1], 1), dtype=torch.float32)


@_operator(
    "page_attention",
    "(Tensor query, Tensor key, Tensor value, Tensor mask, Tensor? sinks, Tensor places, float scale, float softcap) "
    "-> Tensor",
)
def page_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor, places: Tensor, scale: float,
    softcap: float,
) -> Tensor:  # fmt: skip
    """Attend packed tokens [1, heads, tokens, size] to the rows of their sequences in pages."""
    return query.new_empty((*query.shape[:3], value.shape[3]))


@_operator(
    "experts",
    "(Tensor rows, Tensor chosen, Tensor factors, Tensor up, Tensor down, Tensor? up_bias, Tensor? down_bias, "
    "str gate, bool transposed, float limit, float alpha) -> Tensor",
)
def experts(
    rows: Tensor, chosen: Tensor, factors: Tensor, up: Tensor, down: Tensor, up_bias: Tensor, down_bias: Tensor,
    gate: str, transposed: bool, limit: float, alpha: float,
) -> Tensor:  # fmt: skip
    """Add up what the chosen experts compute of rows [tokens, width], times their factors [tokens, chosen].

    `gate` names what is computed between the two products (`GATES`). `transposed` matrices have the columns of
    products as columns.
    """
    return torch.empty_like(rows)


@_operator("gated_scan", "(Tensor state, Tensor decay, Tensor key, Tensor value, Tensor query) -> (Tensor, Tensor)")
def gated_scan(state: Tensor, decay: Tensor, key: Tensor, value: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Apply a gated linear recurrence to a state [batch, heads, size, width], token by token.

    The state decays, then key times value is added. `decay` is [batch, length, heads], key and query [batch, length,
    heads, size], value [batch, length, heads, width]. Return rows [batch, length, heads, width], and the state after
    the last token.
    """
    return torch.empty_like(value), torch.empty_like(state)


@_operator(
    "delta_scan",
    "(Tensor state, Tensor decay, Tensor key, Tensor value, Tensor query, Tensor rate) -> (Tensor, Tensor)",
)
def delta_scan(
    state: Tensor, decay: Tensor, key: Tensor, value: Tensor, query: Tensor, rate: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply the delta rule to a state: the value stored for a key moves towards a new one by a rate.

    `decay` is [batch, length, heads], or one number for each element of a key; `rate` is [batch, length, heads].
    """
    return torch.empty_like(value), torch.empty_like(state)


@_operator(
    "channel_scan", "(Tensor state, Tensor rates, Tensor steps, Tensor x, Tensor key, Tensor query) -> (Tensor, Tensor)"
)
def channel_scan(
    state: Tensor, rates: Tensor, steps: Tensor, x: Tensor, key: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply a selective scan to a state [batch, channels, size]: state * exp(rates * step) + step * x * key.

    `rates` is [channels, size], steps and x are [batch, length, channels], key and query [batch, length, size]. Return
    rows [batch, length, channels], the sums of state times query, and the state after the last token.
    """
    return torch.empty_like(x), torch.empty_like(state)


@_operator("layer_begin", "(Tensor[] inputs, int index, int number) -> Tensor[]")
def layer_begin(inputs: list[Tensor], index: int, number: int) -> list[Tensor]:
    """Return the inputs of a layer; mark the beginning of its graph."""
    return [each.new_empty(each.shape) for each in inputs]


@_operator("layer_end", "(Tensor[] outputs, int index, int number) -> Tensor[]")
def layer_end(outputs: list[Tensor], index: int, number: int) -> list[Tensor]:
    """Return the outputs of a layer; mark the end of its graph."""
    return [each.new_empty(each.shape) for each in outputs]


@_operator("layer_again", "(Tensor[] inputs, Tensor[] like, int index, int number) -> Tensor[]")
def layer_again(inputs: list[Tensor], like: list[Tensor], index: int, number: int) -> list[Tensor]:
    """Stand for another equal layer; the outputs have the types of `like`."""
    return [each.new_empty(each.shape) for each in like]
