"""Pass `reductions-innermost`: store constant operands of reductions with the reduced axes innermost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView, is_tensor_form, prim_functions
from mirlo.passes.graph.constants import is_available
from mirlo.passes.memory.weights import ConstantReleaser
from mirlo.passes.registry import Pass, register_pass
from mirlo.passes.schedule.stored import Stored, calls_of, store_for_calls
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class ReductionsInnermost(Pass):
    """Store weights of products and convolutions with the axes of the reduction innermost, in the order of its loops.

    An instruction that multiplies several elements of a reduction reads them from both operands at a time. Weights
    with axes that their function's data have too, such as those of depthwise convolutions, stay as they are.
    """

    name = "reductions-innermost"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        calls = calls_of(op)
        known: dict[object, str] = {}
        release = ConstantReleaser(op, session)
        for function in prim_functions(op):
            if not is_tensor_form(function):
                continue
            view = PrimView(function)
            sites = calls.get(view.name, [])
            blocks = [block for block in view.blocks if block.is_reduction]
            if not sites or len(blocks) != 1:
                continue
            stored = _transposed(blocks[0], view)
            if stored is None or not all(is_available(site.operands[stored.argument], session) for site in sites):
                continue
            store_for_calls(view, sites, stored, session, known, release.unused)


def _transposed(block: BlockView, view: PrimView) -> Stored | None:
    """Return the new order of the weights of a block; None if they are in it, or it has none."""
    if len(block.inputs) != 2:
        return None
    axes = [_axes(operand) for operand in block.inputs]
    for position, own in enumerate(axes):
        operand = block.inputs[position]
        data = block.inputs[1 - position]
        if own is None or operand.value not in view.arguments or len(list(operand.value.uses)) != 1:
            continue
        read = {expr.position for result in data.map.results for expr in _dims(result)}
        used = [axis for axis in own if axis is not None]
        if any(axis in read for axis in used if axis not in block.reduce) or not set(used) & set(block.reduce):
            continue
        inner = _loop_order([dim for dim, axis in enumerate(own) if axis in block.reduce], own, data)
        outer = [dim for dim in range(len(own)) if dim not in inner]
        order = tuple(outer + inner)
        if order == tuple(range(len(own))):
            continue
        results = operand.map.results
        return Stored(
            view.arguments.index(operand.value), position, tuple(int(operand.shape[dim]) for dim in order),
            ir.AffineMap.get(operand.map.n_dims, 0, [results[dim] for dim in order]), order, _transpose(order),
            "transposed",
        )  # fmt: skip
    return None


def _transpose(order: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.ascontiguousarray(array.transpose(order))


def _axes(operand: OperandView) -> list[int | None] | None:
    """Return the axis that each dim is indexed by, None for a constant; None if a dim is indexed otherwise."""
    if operand.is_opaque or operand.outside is not None or not all(isinstance(dim, int) for dim in operand.shape):
        return None
    axes: list[int | None] = []
    for expr in operand.map.results:
        if isinstance(expr, ir.AffineDimExpr):
            axes.append(expr.position)
        elif isinstance(expr, ir.AffineConstantExpr):
            axes.append(None)
        else:
            return None
    return axes


def _dims(expr: ir.AffineExpr) -> list[ir.AffineDimExpr]:
    if isinstance(expr, ir.AffineDimExpr):
        return [expr]
    if isinstance(expr, ir.AffineBinaryExpr):
        return [*_dims(expr.lhs), *_dims(expr.rhs)]
    return []


def _loop_order(inner: list[int], own: list[int | None], data: OperandView) -> list[int]:
    """Return dims of the reduction in the order in which the data have their axes."""
    places = {expr.position: at for at, result in enumerate(data.map.results) for expr in _dims(result)}
    return sorted(inner, key=lambda dim: places.get(own[dim] if own[dim] is not None else -1, len(places)))  # type: ignore[arg-type]
