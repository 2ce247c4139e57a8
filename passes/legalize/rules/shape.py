"""Default rules of operators that move elements without changing them: index maps, one block each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import shape_text
from mirlo.dialects.relax.shape import VIEW_TEXT, Reshape
from mirlo.dialects.tir.compute import Expr, ExprLike, TensorExpr
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.builder import tensor_of
from mirlo.passes.legalize.helpers import dims_vector, shape_of, short_name
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

Where = Callable[[tuple[Dim, ...], Sequence[Expr]], Sequence[ExprLike]]
"""Maps the operand's shape and the axes of the result to indices of the operand."""


def moved(op: ir.OpView, b: LegalizeBuilder, where: Where) -> ir.Value:
    """Call a prim function that reads the operand at mapped positions."""
    output, name = shape_of(op.output), short_name(op)

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        return p.compute(output, lambda *axes: x.at(*where(x.shape, axes)), name=name)

    return b.call_prim(body, op.x)


@legalize("relax.expand_dims", "relax.squeeze")
def as_reshape(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Keep a reshape: it is free, as the memory plan makes it a view."""
    return b.emit(Reshape, op.x, shape=shape_of(op.output))


@legalize("relax.permute")
def permute(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    order = [axis % len(op.axes) for axis in op.axes]
    return moved(op, b, lambda shape, axes: [axes[order.index(i)] for i in range(len(shape))])


@legalize("relax.expand")
def expand(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Read a dim that is 1 or the result's with a stride of 0 or 1, through a view of the required shape."""
    output, source = shape_of(op.output), shape_of(op.x)
    pairs = list(zip(source, output[len(output) - len(source) :], strict=True))
    strides = [stretch(dim, target) for dim, target in pairs]
    viewed = [
        dim if dim in (1, target) else 1 + (target - 1) * stretch(dim, target, any_size=True) for dim, target in pairs
    ]
    x = op.x
    if tuple(viewed) != tuple(source):
        x = b.emit(Reshape, op.x, shape=tuple(viewed))
        text = (
            f"a tensor of shape {shape_text(source)} does not broadcast to {shape_text(output)}: elements of the first"
        )
        x.owner.attributes[VIEW_TEXT] = ir.StringAttr.get(text)

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            own = axes[len(axes) - len(strides) :] if strides else ()
            moves = zip(strides, own, strict=True)
            return x.at(*(0 if stride == 0 else at if stride == 1 else at * stride for stride, at in moves))

        return p.compute(output, element, name="expand")

    return b.call_prim(body, x)


def stretch(dim: Dim, target: Dim, any_size: bool = False) -> Dim:
    """Return the stride, 0 or 1, with which a dim is read when broadcast to another.

    With `any_size` also for a dim of 0, which is then no less than the target.
    """
    if dim == target or is_truncated(dim, target):
        return 1
    if dim == 1 or (not any_size and D.is_nonnegative(1 - dim)):
        return 0
    return D.minimum(1, D.maximum(dim - 1, 1 - dim))


def is_truncated(dim: Dim, target: Dim) -> bool:
    """Return whether a dim is `min(target, n)` of a number above 1: where it is 1, so is the target."""
    terms = D.terms_of(dim)
    parts = D.atom_parts(terms[0][0][0]) if len(terms) == 1 and len(terms[0][0]) == 1 else None
    numbers = [] if parts is None else [part for part in parts[1:] if isinstance(part, int) and part > 1]
    return any(dim == D.minimum(target, number) for number in numbers)


@legalize("relax.tile")
def tile(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    def where(shape: tuple[Dim, ...], axes: Sequence[Expr]) -> list[ExprLike]:
        rows = zip(shape, op.repeats, axes, strict=True)
        return [0 if dim == 1 else axis if times == 1 else axis % dim for dim, times, axis in rows]

    return moved(op, b, where)


@legalize("relax.reverse")
def reverse(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    def where(shape: tuple[Dim, ...], axes: Sequence[Expr]) -> list[ExprLike]:
        reversed_axes = {axis % len(shape) for axis in op.axes}
        return [(dim - 1) - axes[i] if i in reversed_axes else axes[i] for i, dim in enumerate(shape)]

    return moved(op, b, where)


@legalize("relax.depth_to_space")
def depth_to_space(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    size = op.block

    def where(shape: tuple[Dim, ...], axes: Sequence[Expr]) -> list[ExprLike]:
        n, c, h, w = axes
        inner = (h % size) * size + w % size
        depth = shape[1] // size**2
        channel = inner * depth + c if op.mode == "DCR" else c * size**2 + inner
        return [n, channel, h // size, w // size]

    return moved(op, b, where)


@legalize("relax.space_to_depth")
def space_to_depth(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    size = op.block

    def where(shape: tuple[Dim, ...], axes: Sequence[Expr]) -> list[ExprLike]:
        n, c, h, w = axes
        inner = c // shape[1]
        return [n, c % shape[1], h * size + inner // size, w * size + inner % size]

    return moved(op, b, where)


@legalize("relax.shape_of")
def shape_of_operand(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)
    sizes = [dim for dim in shape if isinstance(dim, int)]
    if len(sizes) == len(shape):
        return tensor_of(b, sizes, "i64")

    return b.call_prim(lambda p: dims_vector(p, shape))
