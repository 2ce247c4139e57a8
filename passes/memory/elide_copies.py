"""The pass `elide-copies`: kernels that only copy a contiguous part of a tensor become views of that part.

    %1 = relax.call_tir(%0) {callee = @slice} : (tensor<4x8xf32>) -> tensor<1x8xf32>
becomes
    %1 = relax.view_part(%0) {offset = [16], shape = [1, 8]} : (tensor<4x8xf32>) -> tensor<1x8xf32>
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, is_nonnegative, product
from mirlo.dialects.core.index_expr import IndexExpr, contiguous_strides, flatten, loop_index, number
from mirlo.dialects.core.surgery import blocks, replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.relax.calls import ViewPart
from mirlo.dialects.tir.affine import read_map
from mirlo.dialects.tir.view import PrimView, is_prim_func, is_tensor_form
from mirlo.passes.fuse.fuse_tir import remove_unused
from mirlo.passes.memory.storage_assignment import ALIASES, CALLS
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class ElideCopies(Pass):
    """Replace calls that copy a contiguous part of a tensor, such as some of its first dim's rows, by views.

    The tensor must be the result of a call, and only calls may read it and the part: then both lie in the arena. Copies
    that `fuse-tir` merged with other operators are computed with them, and stay.
    """

    name = "elide-copies"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        functions = [f for f in op.regions[0].blocks[0].operations if f.operation.name == "func.func"]
        starts: dict[str, Dim] = {}
        for function in functions:
            if is_prim_func(function) and is_tensor_form(function):
                start = start_of_copy(PrimView(function))
                if start is not None:
                    starts[symbol_name(function)] = start
        if not starts:
            return
        graphs = [f for f in functions if not is_prim_func(f)]
        if sum(_CopyElision(starts).run(function) for function in graphs):
            remove_unused(op)


def start_of_copy(view: PrimView) -> Dim | None:
    """Return the position from which a prim function copies consecutive elements of its only input, or None."""
    if len(view.blocks) != 1 or view.others or len(view.arguments) != 1 or len(view.returned) != 1:
        return None
    (block,) = view.blocks
    if block.is_reduction or len(block.inputs) != 1 or len(block.outputs) != 1 or block.body_ops:
        return None
    (source,), (target,) = block.inputs, block.outputs
    is_copy = block.yielded == block.input_arguments and target.value == view.returned[0]
    if not is_copy or source.is_opaque or source.outside is not None or source.value != view.arguments[0]:
        return None
    if tuple(block.domain) != target.shape or target.map != ir.AffineMap.get_identity(block.rank):
        return None

    def index(axis: int) -> IndexExpr:
        return number(0) if block.domain[axis] == 1 else loop_index(axis)

    read = flatten(read_map(source.map, block.domain), contiguous_strides(source.shape)).substitute(index)
    written = flatten([index(axis) for axis in range(block.rank)], contiguous_strides(target.shape))
    start = read - written
    return start.constant if start.is_constant and is_nonnegative(start.constant) else None


@dataclass
class _CopyElision:
    starts: dict[str, Dim]
    """The positions from which prim functions copy, by name."""
    _viewable: dict[ir.Value, bool] = field(default_factory=dict)

    def run(self, function: ir.OpView) -> int:
        """Replace the calls of a graph function; return how many."""
        count = 0
        for block in blocks(function):
            for op in [each.operation for each in block.operations]:
                if op.name == "relax.call_tir" and op.opview.callee in self.starts:
                    count += self._replace(op, self.starts[op.opview.callee])
        return count

    def _replace(self, op: ir.Operation, start: Dim) -> bool:
        source, result = op.operands[0], op.results[0]
        before, after = (product(dims_of(value.type)) for value in (source, result))
        if source.type.element_type != result.type.element_type or after == 0:
            return False
        if not (is_nonnegative(before - start - after) and self._is_viewable(_root(source)) and _is_read(result)):
            return False
        with ir.InsertionPoint(op), op.location:
            part = ViewPart.make(source, offset=[start], shape=list(dims_of(result.type)))
        replace_op(op, [part])
        return True

    def _is_viewable(self, root: ir.Value) -> bool:
        """Return whether the plan computes a tensor in the arena: not in an output, nor in control flow's results."""
        if root not in self._viewable:
            is_result = isinstance(root, ir.OpResult) and root.owner.name in CALLS
            self._viewable[root] = is_result and _is_read(root)
        return self._viewable[root]


def _root(value: ir.Value) -> ir.Value:
    """Return the tensor in whose memory a view lies."""
    while isinstance(value, ir.OpResult) and value.owner.name in ALIASES:
        value = value.owner.operands[0]
    return value


def _is_read(value: ir.Value) -> bool:
    """Return whether only calls read a tensor and its views."""
    pending = [value]
    while pending:
        for use in pending.pop().uses:
            op = use.owner.operation
            if op.name in ALIASES:
                pending.append(op.results[0])
            elif op.name not in CALLS:
                return False
    return True
