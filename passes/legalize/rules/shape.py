"""Default rules of operators that move elements around without changing them: index maps, one block each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.relax.shape import Reshape
from mirlo.dialects.tir.compute import Expr, TensorExpr
from mirlo.passes.legalize.constants import tensor_of
from mirlo.passes.legalize.helpers import aligned, dims_vector, shape_of, short_name
from mirlo.passes.rules import legalize

Where = Callable[[tuple[int, ...], Sequence[Expr]], Sequence[Any]]
"""Indices of the operand, of this shape, for the axes of the result."""


def moved(op: Any, b: Any, where: Where) -> Any:
    """A prim function whose result is the operand read at other places."""
    output, name = shape_of(op.output), short_name(op)

    def body(p: Any, x: TensorExpr) -> TensorExpr:
        return p.compute(output, lambda *axes: x.at(*where(x.shape, axes)), name=name)

    return b.call_prim(body, op.x)


@legalize("relax.expand_dims", "relax.squeeze")
def as_reshape(op: Any, b: Any) -> Any:
    """A reshape stays what it is: it costs nothing, as the memory plan makes it a view."""
    return b.emit(Reshape, op.x, shape=shape_of(op.output))


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
    if all(isinstance(dim, int) for dim in shape):
        return tensor_of(b, shape, "i64")

    return b.call_prim(lambda p: dims_vector(p, shape))
