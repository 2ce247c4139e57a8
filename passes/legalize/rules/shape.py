"""Default rules of operators that move elements around without changing them: index maps, one block each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.tir.compute import Expr, TensorExpr
from mirlo.passes.legalize.constants import tensor_of
from mirlo.passes.legalize.helpers import aligned, shape_of, short_name
from mirlo.passes.rules import legalize

Where = Callable[[tuple[int, ...], Sequence[Expr]], Sequence[Any]]
"""Indices of the operand, of this shape, for the axes of the result."""


def moved(op: Any, b: Any, where: Where) -> Any:
    """A prim function whose result is the operand read at other places."""
    output, name = shape_of(op.output), short_name(op)

    def body(p: Any, x: TensorExpr) -> TensorExpr:
        return p.compute(output, lambda *axes: x.at(*where(x.shape, axes)), name=name)

    return b.call_prim(body, op.x)


@legalize("relax.reshape", "relax.expand_dims", "relax.squeeze")
def reshape(op: Any, b: Any) -> Any:
    output = shape_of(op.output)
    return moved(op, b, lambda shape, axes: reshaped(shape, output, axes))


def reshaped(source: Sequence[int], target: Sequence[int], axes: Sequence[Expr]) -> list[Any]:
    """Indices into the source shape of the element at `axes` of the target shape.

    Dims that stay what they are keep their axis; only those that are merged or split need arithmetic.
    """
    result: list[Any] = []
    for sources, targets in dim_groups(source, target):
        dims = [source[i] for i in sources]
        result += _unravel(_ravel([target[i] for i in targets], [axes[i] for i in targets]), dims)
    return result


def dim_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The dims of two shapes of one size, in the smallest consecutive groups of equal size."""
    if math.prod(source) == 0:
        return [(list(range(len(source))), list(range(len(target))))]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        left, right = [], []
        have, want = 1, 1
        while True:
            if have <= want and i < len(source) and (have < want or not left):
                left.append(i)
                have *= source[i]
                i += 1
            elif j < len(target) and (want < have or not right):
                right.append(j)
                want *= target[j]
                j += 1
            else:
                break
        groups.append((left, right))
    return groups


def _ravel(dims: Sequence[int], axes: Sequence[Expr]) -> Any:
    """Row-major position of these axes; dims of 1 have nothing to add."""
    linear: Any = 0
    stride = 1
    for dim, axis in reversed(list(zip(dims, axes, strict=True))):
        if dim != 1:
            term = axis * stride if stride != 1 else axis
            linear = term if isinstance(linear, int) else term + linear
        stride *= dim
    return linear


def _unravel(linear: Any, dims: Sequence[int]) -> list[Any]:
    """Indices of a row-major position."""
    result: list[Any] = []
    stride = 1
    big = [i for i, dim in enumerate(dims) if dim != 1]
    for i in reversed(range(len(dims))):
        if dims[i] == 1 or isinstance(linear, int):
            result.append(0)
            continue
        index = linear // stride if stride != 1 else linear
        result.append(index if i == big[0] else index % dims[i])
        stride *= dims[i]
    return result[::-1]


@legalize("relax.permute")
def permute(op: Any, b: Any) -> Any:
    order = [axis % len(op.axes) for axis in op.axes]
    return moved(op, b, lambda shape, axes: [axes[order.index(i)] for i in range(len(shape))])


@legalize("relax.expand")
def expand(op: Any, b: Any) -> Any:
    output = shape_of(op.output)

    def body(p: Any, x: TensorExpr) -> TensorExpr:
        return p.compute(output, lambda *axes: aligned(x, axes), name="expand")

    return b.call_prim(body, op.x)


@legalize("relax.tile")
def tile(op: Any, b: Any) -> Any:
    def where(shape: tuple[int, ...], axes: Sequence[Expr]) -> list[Any]:
        rows = zip(shape, op.repeats, axes, strict=True)
        return [0 if dim == 1 else axis if times == 1 else axis % dim for dim, times, axis in rows]

    return moved(op, b, where)


@legalize("relax.reverse")
def reverse(op: Any, b: Any) -> Any:
    def where(shape: tuple[int, ...], axes: Sequence[Expr]) -> list[Any]:
        turned = {axis % len(shape) for axis in op.axes}
        return [(dim - 1) - axes[i] if i in turned else axes[i] for i, dim in enumerate(shape)]

    return moved(op, b, where)


@legalize("relax.depth_to_space")
def depth_to_space(op: Any, b: Any) -> Any:
    size = op.block

    def where(shape: tuple[int, ...], axes: Sequence[Expr]) -> list[Any]:
        n, c, h, w = axes
        inner = (h % size) * size + w % size
        depth = shape[1] // size**2
        channel = inner * depth + c if op.mode == "DCR" else c * size**2 + inner
        return [n, channel, h // size, w // size]

    return moved(op, b, where)


@legalize("relax.space_to_depth")
def space_to_depth(op: Any, b: Any) -> Any:
    size = op.block

    def where(shape: tuple[int, ...], axes: Sequence[Expr]) -> list[Any]:
        n, c, h, w = axes
        inner = c // shape[1]
        return [n, c % shape[1], h * size + inner // size, w * size + inner % size]

    return moved(op, b, where)


@legalize("relax.shape_of")
def shape_of_operand(op: Any, b: Any) -> Any:
    shape = shape_of(op.x)
    return tensor_of(b, shape, "i64")
