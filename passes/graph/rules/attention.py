"""Recognition of decomposed attention: softmax(q @ k^T * scale + mask) @ v, in the forms that exporters write.

The scale may be applied before or after the product or to its operands, masks may be added or selected by `where`,
keys and values may be repeated for groups of query heads, and the weights of rows without any key may be replaced by
zeros: where they are NaN, or where the mask hides all keys.
"""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use
from mirlo.passes.rules import Decline, decline, recognize
from mirlo.runtime.records import dataclass

_HIDDEN = -1e30
"""Added to a score, this hides it: no score is near, so that its exponential is zero."""

_GUARDS = {"relax.isnan", "relax.where"}
"""What replaces the weights of rows that see no key."""


@dataclass
class _Scores:
    """A matrix of scores: the product of two operands, a scale, and the added masks."""

    query: ir.Value
    keys: ir.Value
    """[..., T, D] where `transposed`, else [..., D, T]."""
    transposed: bool
    scale: float = 1.0
    masks: list[ir.Value] = field(default_factory=list)
    is_expanded: bool = False
    """Whether the product is expanded in the dims of the batch before the masks are added."""


@recognize("relax.matmul")
def attention(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace softmax(query @ key^T * scale + mask) @ value, with masks that are added or selected by `where`."""
    if op.transpose_lhs or op.out_dtype is not None:
        return decline("the weights are transposed, or summed up in another type")
    lhs, tested = _without_hidden_rows(op.lhs, b)
    weights = _weights(lhs, b)
    if isinstance(weights, Decline):
        return weights
    scores = _scores(weights, b)
    if isinstance(scores, Decline):
        return scores
    if tested is not None and tested not in scores.masks:
        return decline("the weights are replaced by zeros where another mask than that of the scores hides all keys")
    rank = kind_of(op.output).rank
    if rank not in (3, 4):
        return decline("attention is of tensors of rank 3 or 4", rank=rank)
    value = _swapped(op.rhs, b) if op.transpose_rhs else op.rhs
    query = _move_scale(scores.query, scores, b)
    keys = _move_scale(scores.keys, scores, b)
    key = keys if scores.transposed else _swapped(keys, b)
    if scores.is_expanded:
        batch = tuple(kind_of(op.output).shape[: rank - 2])
        query, key = (b.emit(OPS["expand"], v, shape=batch + tuple(kind_of(v).shape[rank - 2 :])) for v in (query, key))
    if len({kind_of(v).dtype for v in (query, key, value)}) != 1 or any(
        kind_of(v).shape[: rank - 2] != kind_of(op.output).shape[: rank - 2] for v in (query, key, value)
    ):
        return decline("query, key and value differ in their types or in the dims of the batch")
    mask = _joined(scores.masks, kind_of(query).dtype, b)
    if isinstance(mask, Decline):
        return mask
    bound = {} if mask is None else _causal_bound(mask, kind_of(weights).shape, b)
    operands = [query, key, value] + ([] if mask is None or bound else [mask])
    if rank == 3:
        operands = [_raised(v, b) for v in operands]
    if len(operands) == 3:
        operands.append(None)
    result = b.emit(OPS["attention"], *operands, scale=scores.scale, **bound)
    return result if rank == 4 else b.emit(OPS["reshape"], result, shape=kind_of(op.output).shape)


@recognize("relax.attention")
def grouped_heads(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Read keys and values that are repeated for groups of query heads once per group."""
    key, value = _unrepeated(op.key), _unrepeated(op.value)
    if key is None or value is None:
        return decline("key and value are not both repeated along the heads")
    if kind_of(key).shape[1] != kind_of(value).shape[1]:
        return decline("key and value are repeated differently")
    return b.emit(OPS["attention"], op.query, key, value, op.mask, **op.attribute_values())


def _without_hidden_rows(value: ir.Value, b: Rewriter) -> tuple[ir.Value, ir.Value | None]:
    """Return p and the mask for where(reduce_max(mask) == -inf, 0, p), whose zeros attention has anyway."""
    guarded = defining(value, "relax.where")
    if guarded is None or not only_use(value) or b.splat(guarded.x) != 0:
        return value, None
    test = defining(guarded.condition, "relax.equal")
    for largest, number in ((test.lhs, test.rhs), (test.rhs, test.lhs)) if test is not None else ():
        maximum = defining(largest, "relax.reduce_max")
        if maximum is None or b.splat(number) != -math.inf or not maximum.keepdims:
            continue
        rank = kind_of(maximum.x).rank
        if [axis % rank for axis in maximum.axes or ()] == [rank - 1] and beside(value, b):
            return guarded.y, maximum.x
    return value, None


def _weights(value: ir.Value, b: Rewriter) -> ir.Value | Decline:
    """Return the scores if a value is their softmax along the last axis."""
    guarded = defining(value, "relax.where")
    if guarded is not None and only_use(value):
        # where(isnan(p), 0, p) guards queries without keys, for which attention returns zeros.
        test = defining(guarded.condition, "relax.isnan")
        if test is not None and test.x == guarded.y and b.splat(guarded.x) == 0:
            value = guarded.y
        else:
            guarded = None
    softmax = defining(value, "relax.softmax")
    if softmax is None:
        return decline("the left operand is not a softmax")
    if not beside(value, b):
        return decline("the softmax is computed in another block")
    users = {str(use.owner.operation.name) for use in value.uses}
    if not users - {"relax.matmul"} <= _GUARDS or (guarded is None and not only_use(value)):
        return decline("the weights are used by something else")
    rank = kind_of(value).rank
    if softmax.axis % rank != rank - 1:
        return decline("the softmax is not along the last axis", axis=softmax.axis)
    result: ir.Value = softmax.x
    return result


def _scores(value: ir.Value, b: Rewriter) -> _Scores | Decline:
    """Decompose scores from the last operation up to the product."""
    masks: list[ir.Value] = []
    scale, shape, is_expanded = 1.0, kind_of(value).shape, False
    while True:
        if not only_use(value) or not beside(value, b):
            return decline("scores are used by something else")
        if kind_of(value).shape != shape:
            return decline("scores are broadcast")
        if (product := defining(value, "relax.matmul")) is not None:
            if product.transpose_lhs or product.out_dtype is not None:
                return decline("the query is transposed, or the scores are summed up in another type")
            return _Scores(product.lhs, product.rhs, bool(product.transpose_rhs), scale, masks, is_expanded)
        expanded = _expanded_batch(value)
        if expanded is not None:
            value, is_expanded = expanded, True
            shape = kind_of(value).shape
            continue
        step = _split_scale(value, b)
        if step is not None:
            value, factor = step
            scale *= factor
            continue
        if scale != 1.0:
            return decline("a factor stands after something else than the product")
        if is_expanded:
            return decline("scores are expanded between two masks")
        masked = _masked(value, shape, b)
        if masked is None:
            return decline("scores are not a product with a factor and a mask", operation=_name(value))
        value, mask = masked
        masks.append(mask)


def _expanded_batch(value: ir.Value) -> ir.Value | None:
    """Return the matrices of which a value is the expansion in the dims of the batch."""
    expand = defining(value, "relax.expand")
    if expand is None:
        return None
    source, target = kind_of(expand.x).shape, kind_of(value).shape
    return expand.x if len(source) == len(target) and source[-2:] == target[-2:] else None


def _split_scale(value: ir.Value, b: Rewriter) -> tuple[ir.Value, float] | None:
    """Return a value as another one times a constant."""
    product, quotient = defining(value, "relax.multiply"), defining(value, "relax.divide")
    if product is not None:
        for x, number in ((product.lhs, b.splat(product.rhs)), (product.rhs, b.splat(product.lhs))):
            if number is not None and kind_of(x).shape == kind_of(value).shape:
                return x, number
    if quotient is not None:
        number = b.splat(quotient.rhs)
        if number and kind_of(quotient.lhs).shape == kind_of(value).shape:
            return quotient.lhs, 1.0 / number
    return None


def _masked(value: ir.Value, shape: tuple[Dim, ...], b: Rewriter) -> tuple[ir.Value, ir.Value] | None:
    """Return a value as scores and the mask that is added to them."""
    total = defining(value, "relax.add")
    if total is not None:
        for scores, mask in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
            if kind_of(scores).shape == shape and _leads_to_product(scores):
                return scores, mask
        return None
    choice = defining(value, "relax.where")
    if choice is None:
        return None
    for scores, number, hides in ((choice.x, choice.y, False), (choice.y, choice.x, True)):
        fill = b.splat(number)
        if fill is None or fill > _HIDDEN or kind_of(scores).shape != shape or not _leads_to_product(scores):
            continue
        zero = b.constant(np.zeros((), kind_of(number).dtype.to_numpy()), kind_of(number).with_shape(()))
        pair = (number, zero) if hides else (zero, number)
        return scores, b.emit(OPS["where"], choice.condition, *pair)
    return None


def _leads_to_product(value: ir.Value, depth: int = 0) -> bool:
    """Return whether a value is a matrix product up to scales and masks, to distinguish scores from masks in a sum."""
    if defining(value, "relax.matmul") is not None:
        return True
    inner = _expanded_batch(value)
    if inner is not None:
        return depth <= 4 and _leads_to_product(inner, depth + 1)
    if not isinstance(value, ir.OpResult) or depth > 4 or Trait.ELEMENTWISE not in traits_of(value.owner):
        return False
    operands = list(value.owner.operands)
    return len(operands) > 1 and any(_leads_to_product(v, depth + 1) for v in operands if v.type == value.type)


def _move_scale(value: ir.Value, scores: _Scores, b: Rewriter) -> ir.Value:
    """Return an operand of the product without its scale, which moves to the scale of the scores."""
    swapped = defining(value, "relax.permute")
    inner = swapped.x if swapped is not None else value
    step = _split_scale(inner, b)
    if step is None or not only_use(inner) or not beside(inner, b):
        return value
    scores.scale *= step[1]
    return step[0] if swapped is None else b.emit(OPS["permute"], step[0], axes=swapped.axes)


def _swapped(value: ir.Value, b: Rewriter) -> ir.Value:
    """Return a matrix transposed; an existing permute is merged."""
    rank = kind_of(value).rank
    axes = [*range(rank - 2), rank - 1, rank - 2]
    inner = defining(value, "relax.permute")
    if inner is None:
        return b.emit(OPS["permute"], value, axes=axes)
    joined = [inner.axes[axis] for axis in axes]
    return inner.x if joined == list(range(rank)) else b.emit(OPS["permute"], inner.x, axes=joined)


def _joined(masks: list[ir.Value], dtype: DType, b: Rewriter) -> ir.Value | Decline | None:
    """Return all masks combined into one."""
    if any(kind_of(mask).dtype is not dtype for mask in masks):
        return decline("a mask has another type than the scores")
    if not masks:
        return None
    result = masks[0]
    for mask in masks[1:]:
        result = b.emit(OPS["add"], result, mask)
    return result


def _causal_bound(mask: ir.Value, shape: tuple[Dim, ...], b: Rewriter) -> dict[str, bool]:
    """Return attributes of attention for a constant mask that hides exactly the keys after each query; else empty."""
    array = b.array(mask)
    if array is None or array.ndim < 2 or any(dim != 1 for dim in array.shape[:-2]) or array.shape[-2:] != shape[-2:]:
        return {}
    plane = array.reshape(array.shape[-2:]).astype(np.float64)
    length, keys = array.shape[-2:]
    for at_end in (False, True):
        visible = np.tri(length, keys, keys - length if at_end else 0, dtype=bool)
        if (plane[visible] == 0).all() and (plane[~visible] <= _HIDDEN).all() and (~visible).any():
            return {"causal": True, "at_end": at_end}
    return {}


def _raised(value: ir.Value, b: Rewriter) -> ir.Value:
    """Add a heads dim to a tensor of rank 3, or to a mask of lower rank."""
    shape = kind_of(value).shape
    return b.emit(OPS["reshape"], value, shape=((1,) * (4 - len(shape)) + tuple(shape)))


def _unrepeated(value: ir.Value) -> ir.Value | None:
    """Return [B, KV, T, D] for a value [B, KV * G, T, D] that repeats each of its heads G times in a row."""
    flat = defining(value, "relax.reshape")
    if flat is None or kind_of(flat.x).rank != 5:
        return None
    expanded = defining(flat.x, "relax.expand")
    if expanded is None:
        return None
    inner = defining(expanded.x, "relax.reshape") or defining(expanded.x, "relax.expand_dims")
    if inner is None or kind_of(inner.x).rank != 4:
        return None
    batch, heads, length, size = kind_of(inner.x).shape
    groups = kind_of(flat.x).shape[2]
    one, many = (batch, heads, 1, length, size), (batch, heads, groups, length, size)
    if kind_of(expanded.x).shape != one or kind_of(flat.x).shape != many or not isinstance(heads, int):
        return None
    wanted = (batch, heads * groups, length, size) if isinstance(groups, int) else None
    return inner.x if kind_of(value).shape == wanted else None


def _name(value: ir.Value) -> str:
    return str(value.owner.name) if isinstance(value, ir.OpResult) else "none"
