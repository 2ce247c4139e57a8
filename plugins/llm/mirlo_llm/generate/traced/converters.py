"""Conversion of the operators of `operators.py` to relax."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mirlo_torch.registry import OperatorValue
from mirlo_torch.registry import converter as aten_converter

from mirlo.extend.frontend import Tensor, TensorType, where
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import PackedSequences, RingCache, mix_experts, row_at, scan_rows
from mirlo_llm.generate.checkpoints.graph import HIDDEN, chosen_tensor
from mirlo_llm.generate.traced.interfaces import CLAMPED
from mirlo_llm.generate.traced.operators import NAMESPACE
from mirlo_llm.generate.traced.weights import ExpertMatrices, stored_tensor

Operation = Any
"""The interface of a node that converters use."""


@aten_converter("mirlo.attention.default")
def attention(
    op: Operation, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sinks: Tensor | None, scale: float,
    softcap: float, is_causal: bool,
) -> Tensor:  # fmt: skip
    """Convert attention; with `causal`, kernels skip keys that the mask hides, too."""
    named = {"scale": scale, "softcap": softcap or None, "causal": is_causal, "at_end": is_causal}
    if sinks is not None:
        result: Tensor = op.emit("attention_with_sinks", query, key, value, mask, sinks, **named)
    else:
        result = op.emit("attention", query, key, value, mask, **named)
    return result


@aten_converter("mirlo.low_rank.default")
def low_rank(op: Operation, x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Convert the product with the matrices of an adapter."""
    return x.matmul(down).matmul(up)


@aten_converter("mirlo.cache_write.default")
def cache_write(op: Operation, cache: Tensor, new: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    """Convert a write of rows to a cache."""
    shape = (*new.shape[:2], D.maximum(cache.shape[2], mask.shape[1]), new.shape[3])
    result: Tensor = op.emit("cache_write", cache, new, places, shape=shape)
    return result


@aten_converter("mirlo.cache_rows.default")
def cache_rows(op: Operation, cache: Tensor, mask: Tensor) -> Tensor:
    """Convert the selection of a cache's rows."""
    return cache.part((0, 0, 0, 0), (*cache.shape[:2], mask.shape[1], cache.shape[3]))


@aten_converter("mirlo.ring_places.default")
def ring_places(op: Operation, ring: Tensor, positions: Tensor, mask: Tensor, window: int) -> list[Tensor]:
    """Convert the places of tokens in a ring; the call is checked to have few enough new ones."""
    length, total = positions.shape[1], mask.shape[1]
    places = RingCache(op.builder, ring.shape[2], total, mask.sum(1, keepdims=True) - 1)
    places.require_room("the cache of a layer with a sliding window", window, length, total)
    return [places.row_of(positions), places.key_positions()]


@dataclass(frozen=True)
class PagePlaces(OperatorValue):
    """Where the rows of packed tokens are in pages."""

    namespace, what = NAMESPACE, "places in pages"
    sequences: PackedSequences
    slots: Tensor
    """The row of all pages that each token is written to."""


@dataclass(frozen=True)
class PageRows(OperatorValue):
    """The rows of a cache in pages."""

    namespace, what = NAMESPACE, "the rows of caches in pages"
    cache: Tensor


@dataclass(frozen=True)
class PageMask(OperatorValue):
    """A causal mask; a window of 0 is one of all tokens."""

    namespace, what = NAMESPACE, "a mask for caches in pages"
    window: int


@aten_converter("mirlo.page_places.default")
def page_places(
    op: Operation, tokens: Tensor, ends: Tensor, past: Tensor, table: Tensor, cache: Tensor
) -> list[Tensor | PagePlaces]:
    """Convert the places of packed tokens."""

    def bind(sizes: Tensor, what: str, bounds: Sequence[D.Dim]) -> tuple[D.Dim, ...]:
        result: tuple[D.Dim, ...] = op.builder.bind(sizes, "pages", what, bounds=bounds)
        return result

    count = tokens.shape[1]
    sequences = PackedSequences(op.builder, bind, op.index_vector, count, ends, past, table, cache.shape[1])
    return [sequences.position.expand_dims(0), PagePlaces(sequences, sequences.slots())]


@aten_converter("mirlo.page_write.default")
def page_write(op: Operation, cache: Tensor, new: Tensor, places: PagePlaces) -> Tensor:
    """Convert a write of rows to pages."""
    return places.sequences.written(cache, new, places.slots)


@aten_converter("mirlo.page_rows.default")
def page_rows(op: Operation, cache: Tensor) -> PageRows:
    """Convert the selection of a cache's rows."""
    return PageRows(cache)


@aten_converter("mirlo.page_mask.default")
def page_mask(op: Operation, tokens: Tensor, window: int) -> PageMask:
    """Convert a mask."""
    return PageMask(window)


@aten_converter("mirlo.page_attention.default")
def page_attention(
    op: Operation, query: Tensor, key: PageRows, value: PageRows, mask: PageMask, sinks: Tensor | None,
    places: PagePlaces, scale: float, softcap: float,
) -> Tensor:  # fmt: skip
    """Convert attention of packed tokens to rows in pages."""
    sequences = places.sequences
    own = sequences.by_sequence(query)
    hidden = where(sequences.seen(True, mask.window), op.constant(0, own.dtype), op.constant(HIDDEN, own.dtype))
    result = op.emit(
        "paged_attention", own, key.cache, value.cache, sequences.used_table(), sequences.totals, hidden, None, None,
        sinks, scale=scale, softcap=softcap or None,
    )  # fmt: skip
    heads, size = result.shape[1], result.shape[3]
    rows = sequences.packed(result).reshape((1, sequences.count, heads, size))
    converted: Tensor = rows.permute((0, 2, 1, 3))
    return converted


@aten_converter("mirlo.experts.default")
def experts(
    op: Operation, rows: Tensor, chosen: Tensor, factors: Tensor, up: ExpertMatrices, down: ExpertMatrices,
    up_bias: Tensor | None, down_bias: Tensor | None, gate: str, transposed: bool, limit: float, alpha: float,
) -> Tensor:  # fmt: skip
    """Convert a mixture of experts to products of the rows of each expert."""
    numbers = op.constant(np.arange(up.count)[None], chosen.dtype)

    def bound(sizes: Tensor, bounds: list[D.Dim]) -> tuple[D.Dim, ...]:
        result: tuple[D.Dim, ...] = op.builder.bind(sizes, "rows", "rows of an expert", bounds=bounds)
        return result

    def product(own: Tensor, matrices: ExpertMatrices, members: tuple[int, ...], part: int, position: Tensor) -> Tensor:
        stored = [matrices.experts[each][part] for each in members]
        matrix = chosen_tensor(op.builder, stored, position) if len(stored) > 1 else stored_tensor(op.builder, *stored)
        return own.matmul(matrix, **({} if matrices.transposed else {"transpose_rhs": True}))

    def products(
        own: Tensor, matrices: ExpertMatrices, bias: Tensor | None, members: tuple[int, ...], position: Tensor
    ) -> list[Tensor]:
        parts = [product(own, matrices, members, part, position) for part in range(len(matrices.experts[0]))]
        if bias is None:
            return parts
        expert = position if len(members) == up.count else op.constant(members, "i64").gather(position)
        begin, result, added = 0, [], bias.gather(expert)
        for part in parts:
            width = int(part.shape[-1])
            result.append(part + added.slice(0, begin, width))
            begin += width
        return result

    def compute(members: tuple[int, ...], position: Tensor, own: Tensor) -> Tensor:
        made = products(own, up, up_bias, members, position)
        if gate == CLAMPED:
            (both,) = made
            inner = int(both.shape[-1]) // 2
            first, value = (both.slice(1, begin, inner, 2) for begin in (0, 1))
            first, value = first.clip(most=limit), value.clip(-limit, limit)
            activated = (value + 1) * first * (first * alpha).sigmoid()
        else:
            first, value = made if len(made) == 2 else made[0].halves(-1)
            name, _, approximate = gate.partition("_")
            activated = op.emit(name, first, **({"approximate": approximate} if approximate else {})) * value
        (result,) = products(activated, down, down_bias, members, position)
        return result

    groups: dict[Hashable, list[int]] = {}
    for expert in range(up.count):
        groups.setdefault((up.form(expert), down.form(expert)), []).append(expert)
    return mix_experts(
        op.builder, rows, chosen, factors, numbers, bound, compute, groups=list(map(tuple, groups.values()))
    )


def _scanned(op: Operation, step: Any, state: Tensor, width: tuple[D.Dim, ...], length: D.Dim) -> list[Tensor]:
    """Return the rows [batch, length, ...] and the last state of a scan whose step computes rows [batch, ...]."""
    row = TensorType((length, state.shape[0], *width), state.dtype)
    last, rows = scan_rows(op.builder, step, [state], [row], length)
    return [rows.permute((1, 0, *range(2, rows.rank))), last]


def _by_tokens(*tensors: Tensor) -> list[Tensor]:
    """Transpose tensors [batch, length, ...] so that tokens are first."""
    return [each.permute((1, 0, *range(2, each.rank))) for each in tensors]


@aten_converter("mirlo.gated_scan.default")
def gated_scan(op: Operation, state: Tensor, decay: Tensor, key: Tensor, value: Tensor, query: Tensor) -> list[Tensor]:
    """Convert a gated linear recurrence to a loop over tokens."""
    decays, keys, values, queries = _by_tokens(decay, key, value, query)

    def step(at: Tensor | int, carried: Sequence[Tensor]) -> list[Tensor]:
        kept, added, x, read = (row_at(each, at) for each in (decays, keys, values, queries))
        after = carried[0] * kept.expand_dims(2, 3) + added.expand_dims(3) * x.expand_dims(2)
        return [after, (after * read.expand_dims(3)).sum(2)]

    return _scanned(op, step, state, value.shape[2:], value.shape[1])


@aten_converter("mirlo.delta_scan.default")
def delta_scan(
    op: Operation, state: Tensor, decay: Tensor, key: Tensor, value: Tensor, query: Tensor, rate: Tensor
) -> list[Tensor]:
    """Convert the delta rule to a loop over tokens."""
    decays, keys, values, queries, rates = _by_tokens(decay, key, value, query, rate)

    def step(at: Tensor | int, carried: Sequence[Tensor]) -> list[Tensor]:
        kept, own, x, read, part = (row_at(each, at) for each in (decays, keys, values, queries, rates))
        before = carried[0] * (kept.expand_dims(3) if kept.rank == 3 else kept.expand_dims(2, 3))
        change = (x - (before * own.expand_dims(3)).sum(2)) * part.expand_dims(2)
        after = before + own.expand_dims(3) * change.expand_dims(2)
        return [after, (after * read.expand_dims(3)).sum(2)]

    return _scanned(op, step, state, value.shape[2:], value.shape[1])


@aten_converter("mirlo.channel_scan.default")
def channel_scan(
    op: Operation, state: Tensor, rates: Tensor, steps: Tensor, x: Tensor, key: Tensor, query: Tensor
) -> list[Tensor]:
    """Convert a selective scan over channels to a loop over tokens."""
    times, values, keys, queries = _by_tokens(steps, x, key, query)

    def step(at: Tensor | int, carried: Sequence[Tensor]) -> list[Tensor]:
        time, value, added, read = (row_at(each, at) for each in (times, values, keys, queries))
        decay = (rates.expand_dims(0) * time.expand_dims(2)).exp()
        after = carried[0] * decay + (time * value).expand_dims(2) * added.expand_dims(1)
        return [after, (after * read.expand_dims(1)).sum(2)]

    return _scanned(op, step, state, x.shape[2:], x.shape[1])
