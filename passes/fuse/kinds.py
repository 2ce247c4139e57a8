"""Kinds of prim functions for fusion, and the pass `annotate-kinds` that records them.

The kinds are TVM's op patterns, with two more: `row`, a reduction along trailing axes that is mapped back over them
(softmax, layer norm), and `columns`, a reduction of which an inner axis is left. Elementwise work is cheap before and
after both: a row is in registers or the cache, and a reduction of columns reads each element of its operands once.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView, is_tensor_form, prim_functions
from mirlo.passes.registry import Pass, PassError, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

KIND = "tir.kind"
WIDENING = ("arith.extf", "arith.sitofp", "arith.uitofp")
"""Conversions that cost little where an element is read."""


class FusionKind(IntEnum):
    """The kind of a prim function. Ordered: combining two kinds results in the larger."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCE = 3
    ROW = 4
    COLUMNS = 5
    """A reduction over outer dims, such as sums over N, H and W: elements of its operands are computed where it reads
    them."""
    CONTRACTION = 6
    """A reduction whose result should stay in registers for its epilogue: matmul, convolution, pooling."""
    OPAQUE = 8

    @property
    def label(self) -> str:
        return self.name.lower()


def kind_of(function: ir.OpView) -> FusionKind:
    """Return the annotated kind of a function, or analyze it; loops over buffers are opaque."""
    attributes = function.operation.attributes
    if KIND not in attributes or not is_tensor_form(function):
        return analyze(function)
    attribute, labels = attributes[KIND], {kind.label: kind for kind in FusionKind}
    if not isinstance(attribute, ir.StringAttr) or attribute.value not in labels:
        known = ", ".join(labels)
        raise PassError(f"'{KIND}' must be one of {known}; got {attribute}", function.operation.location)
    return labels[attribute.value]


def analyze(function: ir.OpView) -> FusionKind:
    """Return the kind of a prim function; one in buffer form is opaque."""
    if not is_tensor_form(function):
        return FusionKind.OPAQUE
    view = PrimView(function)
    if view.others or not view.blocks or len(view.returned) != 1:
        return FusionKind.OPAQUE
    kind = FusionKind.ELEMENTWISE
    shape = view.blocks[0].outputs[0].shape
    for block in view.blocks:
        own_kind = block_kind(block)
        if kind is FusionKind.COLUMNS and (own_kind > FusionKind.BROADCAST or block.outputs[0].shape != shape):
            own_kind = FusionKind.CONTRACTION  # it reads the operands again, or has no accumulators at hand
        shape = block.outputs[0].shape
        ends_reduction = kind is FusionKind.REDUCE and own_kind <= FusionKind.BROADCAST
        if (
            ends_reduction
            or kind is FusionKind.ROW
            and own_kind in (FusionKind.REDUCE, FusionKind.ELEMENTWISE, FusionKind.BROADCAST)
        ):
            kind = FusionKind.ROW
        else:
            kind = max(kind, own_kind)
    return kind


def is_move(function: ir.OpView, widens: bool = False) -> bool:
    """Return whether a function moves whole rows: it permutes and slices all dims but the innermost.

    With `widens`, it may also convert elements to a wider type of floats.
    """
    if not is_tensor_form(function):
        return False
    view = PrimView(function)
    if len(view.blocks) != 1 or view.others or len(view.returned) != 1:
        return False
    return is_row_move(view.blocks[0], widens)


def is_row_move(block: BlockView, widens: bool = False) -> bool:
    """Return whether a block copies its operand with dims other than the innermost permuted and offset.

    With `widens`, it may also convert elements to a wider type of floats.
    """
    if block.is_reduction or len(block.inputs) != 1 or len(block.outputs) != 1:
        return False
    if not all(widens and op.name in WIDENING for op in block.body_ops):
        return False
    operand, output = block.inputs[0], block.outputs[0].map
    if operand.is_opaque or operand.outside is not None:
        return False
    if not block.body_ops and block.yielded[0] != block.input_arguments[0]:
        return False
    if not all(isinstance(expr, ir.AffineDimExpr) and expr.position == i for i, expr in enumerate(output.results)):
        return False
    order = [_moved_dim(expr) for expr in operand.map.results]
    if not order or order[-1] != block.rank - 1:  # a scalar has no rows
        return False
    # A dim of one element may be read at a constant.
    moved, single = [d for d in order if d is not None], [d for d in range(block.rank) if block.domain[d] == 1]
    return len(set(moved)) == len(moved) and {*moved, *single} == set(range(block.rank))


def _moved_dim(expr: ir.AffineExpr) -> int | None:
    """Return the axis of an index that is an axis, or an axis plus a constant."""
    if isinstance(expr, ir.AffineAddExpr) and isinstance(expr.rhs, ir.AffineConstantExpr):
        expr = expr.lhs
    return expr.position if isinstance(expr, ir.AffineDimExpr) else None


def has_several_contractions(function: ir.OpView) -> bool:
    """Return whether the function has several products with other work between them: attention."""
    return is_tensor_form(function) and sum(is_multiply_add(block) for block in PrimView(function).blocks) > 1


def block_kind(block: BlockView) -> FusionKind:
    """Return the kind of one block."""
    output = block.outputs[0].map
    if len(block.outputs) != 1 and (block.is_reduction or any(other.map != output for other in block.outputs)):
        return FusionKind.OPAQUE
    if block.is_reduction:
        return _reduction_kind(block)
    kinds = [_access_kind(operand, output) for operand in block.inputs]
    result = max(kinds, default=FusionKind.ELEMENTWISE)
    if result is FusionKind.BROADCAST and FusionKind.ELEMENTWISE in kinds:
        return FusionKind.ELEMENTWISE
    return result


def _access_kind(operand: OperandView, output: ir.AffineMap) -> FusionKind:
    if operand.is_opaque or operand.outside is not None:
        return FusionKind.INJECTIVE
    if operand.map == output:
        return FusionKind.ELEMENTWISE
    wanted = iter(output.results)
    is_part = all(
        isinstance(expr, ir.AffineConstantExpr) or any(expr == other for other in wanted)
        for expr in operand.map.results
    )
    return FusionKind.BROADCAST if is_part else FusionKind.INJECTIVE


def _reduction_kind(block: BlockView) -> FusionKind:
    if is_multiply_add(block):
        return FusionKind.CONTRACTION
    reduced = set(block.reduce)
    for operand in block.inputs:
        if operand.is_opaque or operand.outside is not None:
            return FusionKind.CONTRACTION
        for expr in operand.map.results:
            if not isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)):
                return FusionKind.CONTRACTION
    # A reduction over the innermost dims is computed a row at a time; others touch no row as a whole.
    if all(_is_trailing(_positions(operand), reduced) for operand in block.inputs):
        return FusionKind.REDUCE
    return FusionKind.COLUMNS if _reads_columns(block) else FusionKind.CONTRACTION


def _is_trailing(positions: list[int], reduced: set[int]) -> bool:
    flags = [p in reduced for p in positions]
    return flags == sorted(flags)


def _positions(operand: OperandView) -> list[int]:
    """Return the axes that index an operand."""
    return [expr.position for expr in operand.map.results if isinstance(expr, ir.AffineDimExpr)]


def _whole(block: BlockView) -> list[list[int]]:
    """Return, for each operand, its axes longer than one if each point of a block reads an element of its own."""
    axes = {axis for axis in range(block.rank) if block.domain[axis] != 1}
    read = [_positions(each) for each in block.inputs if not each.is_opaque and each.outside is None]
    return [[axis for axis in positions if axis in axes] for positions in read if axes <= set(positions)]


def _reads_columns(block: BlockView) -> bool:
    """Return whether a reduction reads elements once, of operands whose innermost dim it does not reduce."""
    return all(axes and axes[-1] not in block.reduce for axes in _whole(block)) and bool(_whole(block))


def domain_of_columns(function: ir.OpView) -> Hashable | None:
    """Return the domain of a reduction of columns, equal for those that may be one block; None for other functions."""
    if kind_of(function) is not FusionKind.COLUMNS:
        return None
    reductions = [block for block in PrimView(function).blocks if block.is_reduction]
    return (reductions[0].axes, reductions[0].domain, str(reductions[0].outputs[0].map)) if reductions else None


def is_multiply_add(block: BlockView) -> bool:
    """Return whether the block sums products of two of its operands."""
    if not block.is_reduction or len(block.accumulators) != 1:
        return False
    ops: dict[ir.Value, ir.Operation] = {op.results[0]: op for op in block.body_ops if len(op.results)}
    last = ops.get(block.yielded[0])
    if last is None or last.name not in ("arith.addf", "arith.addi"):
        return False
    product = next((ops.get(v) for v in last.operands if v != block.accumulators[0]), None)
    if product is None or product.name not in ("arith.mulf", "arith.muli"):
        return False
    if len(_whole(block)) > 1 and _reads_columns(block):
        return False  # no element is read twice: a tile of either operand saves nothing
    # A sum of squares multiplies a value by itself and is not a contraction.
    return product.operands[0] != product.operands[1]


@register_pass
@dataclass(frozen=True)
class AnnotateKinds(Pass):
    """Annotate each prim function with its kind for fusion, `tir.kind`.

    An existing annotation is kept, for hand-written functions.
    """

    name = "annotate-kinds"
    keeps_layers = True
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        for function in prim_functions(op):
            if KIND not in function.operation.attributes:
                function.operation.attributes[KIND] = ir.StringAttr.get(analyze(function).label)
