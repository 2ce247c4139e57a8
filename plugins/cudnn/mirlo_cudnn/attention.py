"""Attention that the library computes in one call: patterns, limits and plans.

Heads are often transposed to the front before attention, and back after it. The library takes strides, so these
copies are part of the matched patterns.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.codegen import Decline, ExternalValue, Pattern, Step, decline, is_op, kind_of, maybe, wildcard
from mirlo.extend.nvidia import Values
from mirlo.extend.ops import TensorType, ir
from mirlo_cudnn.plan import ATTENTION_DTYPES, AttentionStep, contiguous

LARGEST = 256
"""The largest head size."""
HEADS_FIRST = (0, 2, 1, 3)
"""The permutation that moves heads to the front, and back; a token's heads are contiguous in memory."""


def attention_patterns() -> list[tuple[str, Pattern]]:
    """Return the patterns of attention, first those with the copies around it."""

    def transposed(x: Pattern) -> Pattern:
        result: Pattern = is_op("relax.permute").has_attr(axes=HEADS_FIRST)(x)
        return result

    def attention_pattern() -> Pattern:
        query, key, value = (wildcard().optional(transposed) for _ in range(3))
        operands = {"query": query, "key": key, "value": value, "mask": maybe(wildcard())}
        attention: Pattern = is_op("relax.attention").where(check, "what the library takes")(**operands)
        return attention

    return [("attention_transposed", transposed(attention_pattern())), ("attention", attention_pattern())]


def check(op: ir.OpView) -> bool | Decline:
    """Decline attention that the library does not compute."""
    query, key, value = (kind_of(x) for x in (op.query, op.key, op.value))
    if not all(x.is_static for x in (query, key, value)):
        return decline("the library needs static sizes")
    if query.dtype.name not in ATTENTION_DTYPES:
        return decline("the library has attention in 16 bits only", dtype=query.dtype.name)
    sizes = (query.static_shape[3], value.static_shape[3])
    if any(size % 8 for size in sizes):
        return decline("numbers of a head are a multiple of 8 for the library", heads=sizes)
    if max(sizes) > LARGEST:
        return decline("heads are larger than the library takes on every chip", heads=sizes, most=LARGEST)
    if op.softcap is not None:
        return decline("the library does not cap scores", softcap=op.softcap)
    bound = _bound(op.causal, op.at_end, query.static_shape[2], key.static_shape[2])
    if isinstance(bound, Decline):
        return bound
    return True if op.mask is None else _mask_check(kind_of(op.mask), query, key, bound)


def _bound(causal: bool, at_end: bool, queries: int, keys: int) -> int | None | Decline:
    """Return how far the visible keys extend beyond a query's own position; None if all keys are visible."""
    if not causal:
        return None
    bound = keys - queries if at_end else 0
    if bound >= keys - 1:
        return None  # the first query sees all keys, so every query does
    if bound < 0:
        return decline("the library does not return zeros for queries that see no key", queries=queries, keys=keys)
    return bound


def _mask_check(mask: TensorType, query: TensorType, key: TensorType, bound: int | None) -> bool | Decline:
    if not mask.is_static:
        return decline("the library needs a mask of static size")
    if mask.dtype != query.dtype:
        return decline("the library adds a mask, it does not choose by one", mask=mask.dtype.name)
    if bound:
        return decline("the library has no mask together with a causal bound after a cache")
    if mask.rank == 0 or mask.static_shape[-1] != key.static_shape[2]:
        return decline("the library adds a mask of as many columns as there are keys", mask=mask.shape)
    return True


def is_attention(step: Step) -> bool:
    """Return whether a composite is attention."""
    return any(node.op == "relax.attention" for node in step.nodes)


def attention_of(values: Values, step: Step) -> AttentionStep:
    """Return the plan step of an attention composite."""
    node = next(node for node in step.nodes if node.op == "relax.attention")
    permutes = {other.output: other for other in step.nodes if other.op == "relax.permute"}
    sources: list[ExternalValue] = []
    strides = []
    for name in ("query", "key", "value"):
        permute = permutes.get(node[name])
        source = node[name] if permute is None else permute["x"]
        sources.append(source)
        strides.append(_dense_strides(source.type.static_shape, permute is not None))
    result = step.nodes[-1].output
    q_shape, k_shape, v_shape = (tuple(node[name].type.static_shape) for name in ("query", "key", "value"))
    mask, scale = node["mask"], node["scale"]
    bound = _bound(node["causal"], node["at_end"], q_shape[2], k_shape[2])
    assert not isinstance(bound, Decline)
    q, k, v = (values.number(value) for value in sources)
    return AttentionStep(
        q,
        k,
        v,
        values.number(result),
        q_shape,
        k_shape,
        v_shape,
        strides[0],
        strides[1],
        strides[2],
        _dense_strides(result.type.static_shape, result is not node.output),
        q_shape[3] ** -0.5 if scale is None else scale,
        node.output.type.dtype.name,
        bound,
        None if mask is None else values.number(mask),
        None if mask is None else (1,) * (4 - mask.type.rank) + tuple(mask.type.static_shape),
    )


def _dense_strides(shape: Sequence[int], transposed: bool) -> tuple[int, ...]:
    """Return the strides by batch, head, token and element of a dense tensor, with or without transposed heads."""
    strides = contiguous(shape)
    return tuple(strides[axis] for axis in HEADS_FIRST) if transposed else strides
