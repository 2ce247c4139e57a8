"""Attention."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.attributes import Bool, Dims, Float
from mirlo.dialects.core.conditions import require_at_most, require_elements, require_multiple
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand, optional
from mirlo.dialects.core.traits import Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    FLOAT,
    require_broadcast_to,
    require_equal_dims,
    require_kind,
    require_rank,
    same_dtype,
)


class AttentionBase(RelaxOp):
    """What both kinds of attention have."""

    TRAITS = (Trait.CONTRACTION,)
    PRECISION = Precision.NARROW
    sharding = staticmethod(shardings.attention)
    query = operand()
    key = operand()
    value = operand()
    mask = optional()
    scale = Float(None)
    causal = Bool(False)
    at_end = Bool(False)
    softcap = Float(None)

    @classmethod
    def flops(cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: float | None) -> int:
        batch, heads, length, size = operands[0].static_shape
        keys, values = operands[1].static_shape[2], operands[2].static_shape[3]
        return batch * heads * length * keys * (2 * size + 2 * values + 5)


class Attention(AttentionBase, name="attention"):
    """softmax(cap(query @ key^T * scale) + mask) @ value, per head.

    query is [B, H, S, D], key [B, HKV, T, D], value [B, HKV, T, DV]; each of the HKV heads serves H / HKV query
    heads. The mask broadcasts to [B, H, S, T]; a float mask is added, a bool mask selects. `scale` defaults to 1 /
    sqrt(D). With `causal`, query s attends to keys up to s. With `at_end` too, the queries belong to the last keys,
    as with a key-value cache, and query s attends to keys up to s + T - S. cap(x) is softcap * tanh(x / softcap), or x
    without `softcap`.
    """

    @staticmethod
    def infer(
        query: TensorType,
        key: TensorType,
        value: TensorType,
        mask: TensorType | None,
        *,
        scale: float | None,
        causal: bool,
        at_end: bool,
        softcap: float | None,
    ) -> TensorType:
        same_dtype("query, key and value", query, key, value)
        require_kind(query, FLOAT, "query, key and value")
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            require_rank(tensor, 4, f"{name} [batch, heads, length, size]")
        batch, heads, length, size = query.shape
        for name, tensor in (("key", key), ("value", value)):
            require_equal_dims(batch, tensor.shape[0], f"the batch dims of query {query} and {name} {tensor}")
        require_equal_dims(size, key.shape[3], f"the head sizes of query {query} and key {key}")
        require_equal_dims(key.shape[1], value.shape[1], f"the heads of key {key} and value {value}")
        require_equal_dims(key.shape[2], value.shape[2], f"the lengths of key {key} and value {value}")
        if softcap is not None and not softcap > 0:
            raise OpError(f"softcap must be positive, got {softcap}")
        if at_end and not causal:
            raise OpError("at_end applies to a causal attention only: set causal, or leave at_end out")
        shared = key.shape[1]
        text = f"the {heads} heads of the query must be a multiple of the {shared} heads of key and value"
        require_multiple(heads, shared, text)
        if mask is not None:
            require_kind(mask, ("float", "bool"), "mask")
            if mask.dtype.is_float:
                same_dtype("query and mask", query, mask)
            require_broadcast_to(mask.shape, (batch, heads, length, key.shape[2]), "mask")
        return query.with_shape((batch, heads, length, value.shape[3]))


class AttentionWithSinks(AttentionBase, name="attention_with_sinks"):
    """Attention where each head has one more key, which all queries see and whose value is zero.

    `sinks` [H] are the scores of these keys: they are part of the sums of the weights. A query that sees no other key
    gets zeros. All else is as in `attention`.
    """

    sinks = operand()

    @staticmethod
    def infer(
        query: TensorType,
        key: TensorType,
        value: TensorType,
        mask: TensorType | None,
        sinks: TensorType,
        *,
        scale: float | None,
        causal: bool,
        at_end: bool,
        softcap: float | None,
    ) -> TensorType:
        result = Attention.infer(query, key, value, mask, scale=scale, causal=causal, at_end=at_end, softcap=softcap)
        _require_sinks(query, sinks)
        return result


def _require_sinks(query: TensorType, sinks: TensorType) -> None:
    same_dtype("query and sinks", query, sinks)
    require_rank(sinks, 1, "sinks [heads]")
    require_equal_dims(query.shape[1], sinks.shape[0], f"the heads of query {query} and sinks {sinks}")


class AttentionWithScales(AttentionBase, name="attention_with_scales"):
    """Attention to keys and values whose rows are multiplied by scales: as those of caches of 8 bits are.

    It is attention to key * key_scale and value * value_scale, whose scales are [B, HKV, T, 1]; with `sinks` [H] it is
    `attention_with_sinks`.
    """

    key_scale = operand()
    value_scale = operand()
    sinks = optional()

    @staticmethod
    def infer(
        query: TensorType,
        key: TensorType,
        value: TensorType,
        mask: TensorType | None,
        key_scale: TensorType,
        value_scale: TensorType,
        sinks: TensorType | None,
        *,
        scale: float | None,
        causal: bool,
        at_end: bool,
        softcap: float | None,
    ) -> TensorType:
        result = Attention.infer(query, key, value, mask, scale=scale, causal=causal, at_end=at_end, softcap=softcap)
        if sinks is not None:
            _require_sinks(query, sinks)
        for name, tensor, rows in (("key_scale", key_scale, key), ("value_scale", value_scale, value)):
            same_dtype(f"query and {name}", query, tensor)
            if tensor.shape != (*rows.shape[:3], 1):
                raise OpError(f"{name} must be {rows.with_shape((*rows.shape[:3], 1))}, got {tensor}")
        return result


class PagedAttention(RelaxOp, name="paged_attention"):
    """Attention to rows of caches in pages, which a table finds; otherwise as `attention` is.

    query is [B, H, S, D], the caches are [N, P, HKV, D] and [N, P, HKV, DV]: N pages of P rows. Row t of sequence b is
    row t % P of page table[b, t / P], where table is [B, M]; a page that does not exist is the nearest one that does,
    so there must be one. Rows from `lengths` [B] on are zero, whatever the pages hold. The mask broadcasts to
    [B, H, S, M * P]. Caches of another type, i8 among them, are converted to the query's; with scales [N, P, HKV, 1],
    each row is multiplied by its own. `sinks` [H] are as in `attention_with_sinks`.
    """

    TRAITS = (Trait.CONTRACTION,)
    sharding = staticmethod(shardings.paged_attention)
    query = operand()
    key_cache = operand()
    value_cache = operand()
    table = operand()
    lengths = operand()
    mask = optional()
    key_scale = optional()
    value_scale = optional()
    sinks = optional()
    scale = Float(None)
    softcap = Float(None)

    @classmethod
    def flops(cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: float | None) -> int:
        batch, heads, length, size = operands[0].static_shape
        rows, values = operands[1].static_shape[1], operands[2].static_shape[3]
        return batch * heads * length * operands[3].static_shape[1] * rows * (2 * size + 2 * values + 5)

    @staticmethod
    def infer(
        query: TensorType,
        key_cache: TensorType,
        value_cache: TensorType,
        table: TensorType,
        lengths: TensorType,
        mask: TensorType | None,
        key_scale: TensorType | None,
        value_scale: TensorType | None,
        sinks: TensorType | None,
        *,
        scale: float | None,
        softcap: float | None,
    ) -> TensorType:
        require_kind(query, FLOAT, "query")
        require_rank(query, 4, "query [batch, heads, length, size]")
        for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
            require_rank(cache, 4, f"{name} [pages, rows, heads, size]")
            if not cache.dtype.is_float and cache.dtype.name != "i8":
                raise OpError(f"{name} must be floating point or i8, got {cache.dtype}")
            if cache.shape[1:3] != key_cache.shape[1:3]:
                raise OpError(f"key_cache {key_cache} and value_cache {cache} must have the same rows and heads")
        if {table.dtype.name, lengths.dtype.name} != {"i64"} or (table.rank, lengths.rank) != (2, 1):
            raise OpError(f"table and lengths must be i64[batch, pages] and i64[batch], got {table} and {lengths}")
        for name, tensor in (("table", table), ("lengths", lengths)):
            require_equal_dims(query.shape[0], tensor.shape[0], f"the batch dims of query {query} and {name} {tensor}")
        for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
            read = (*query.shape[:3], table.shape[1], *cache.shape[1:])
            require_elements(cache.shape[0], read, f"{name} {cache}, which is read, has no pages")
        if (key_scale is None) != (value_scale is None):
            raise OpError("key_scale and value_scale must both be given, or none of them")
        if key_scale is not None and value_scale is not None:
            pairs = (("key_scale", key_scale, key_cache), ("value_scale", value_scale, value_cache))
            for name, tensor, cache in pairs:
                expected = query.with_shape((*cache.shape[:3], 1))
                if tensor != expected:
                    raise OpError(f"{name} must be {expected}, got {tensor}")
        batch, shared, rows = query.shape[0], key_cache.shape[2], table.shape[1] * key_cache.shape[1]
        key, value = (query.with_shape((batch, shared, rows, cache.shape[3])) for cache in (key_cache, value_cache))
        result = Attention.infer(query, key, value, mask, scale=scale, causal=False, at_end=False, softcap=softcap)
        if sinks is not None:
            _require_sinks(query, sinks)
        return result


class CacheWrite(RelaxOp, name="cache_write"):
    """The cache [B, H, C, D] with the rows of `new` [B, H, S, D] written at `positions` [B, S] along dim 2.

    `shape` is that of the result, which may have more rows than the cache: those that are not written are zero. Rows
    of `new` with positions outside of the result are left out; of two with one position, the last one stays.
    """

    meaning = staticmethod(array_meanings.cache_write)
    sharding = staticmethod(shardings.cache_write)
    cache = operand()
    new = operand()
    positions = operand()
    shape = Dims()

    @staticmethod
    def infer(cache: TensorType, new: TensorType, positions: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
        same_dtype("cache and new", cache, new)
        for name, tensor in (("cache", cache), ("new", new)):
            require_rank(tensor, 4, f"{name} [batch, heads, length, size]")
        if positions.dtype.name != "i64" or positions.rank != 2:
            raise OpError(f"positions must be i64[batch, length], got {positions}")
        batch, heads, length, size = new.shape
        require_equal_dims(batch, positions.shape[0], f"the batch dims of new {new} and positions {positions}")
        require_equal_dims(length, positions.shape[1], f"the lengths of new {new} and positions {positions}")
        if len(shape) != 4:
            raise OpError(f"shape must be 4 dims, got {len(shape)}")
        for name, dims in (("cache", cache.shape), ("shape", shape)):
            for axis, dim in ((0, batch), (1, heads), (3, size)):
                require_equal_dims(dim, dims[axis], f"dim {axis} of new {new} and of {name}")
        rows, before = shape[2], cache.shape[2]
        require_at_most(before, rows, f"the result must have the {before} rows of the cache or more, got {rows}")
        return cache.with_shape(shape)


class RotaryEmbedding(RelaxOp, name="rotary_embedding"):
    """Rotate pairs of the last dim of x [B, H, S, D] by the angles of cos and sin.

    cos and sin broadcast to [B, 1, S, R/2]. The first R elements are rotated: element i with i + R/2, or with its
    neighbour if `interleaved`.
    """

    PRECISION = Precision.REGISTERS
    sharding = staticmethod(shardings.rotary_embedding)
    x = operand()
    cos = operand()
    sin = operand()
    interleaved = Bool(False)

    @staticmethod
    def infer(x: TensorType, cos: TensorType, sin: TensorType, *, interleaved: bool) -> TensorType:
        same_dtype("operands", x, cos, sin)
        require_kind(x, FLOAT, "operands")
        require_rank(x, 4, "operand [batch, heads, length, size]")
        if cos.shape != sin.shape:
            raise OpError(f"cos and sin must have one shape, got {cos} and {sin}")
        if cos.rank == 0:
            raise OpError(f"cos and sin must have rank 1 or more, got {cos}")
        half = cos.shape[-1]
        batch, _, length, size = x.shape
        text = f"cos and sin of {half} angles rotate {2 * half} elements, but heads have {size}"
        require_at_most(2 * half, size, text)
        require_broadcast_to(cos.shape, (batch, 1, length, half), "cos")
        return x
