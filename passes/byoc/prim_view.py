"""Prim functions of external modules as plain Python: buffers and blocks, for authors of code generators.

    prim = node.prim                             # of a node `relax.call_tir`
    for block in prim.blocks:
        block.axes, block.reads, block.writes, block.operations, block.equation

`mirlo.extend.codegen.c_function(prim)` returns it as C; `mirlo.script_of(prim.operation)` as script;
`prim.schedule()` its loops, to be rearranged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.affine import read_affine
from mirlo.dialects.tir.block import REDUCE
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView, is_tensor_form
from mirlo.passes.byoc.tir_patterns import equation
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.core.dims import Dim
    from mirlo.passes.schedule.primitives.schedule import Schedule


@dataclass(frozen=True)
class ExternalAxis:
    """An axis of a block: a loop."""

    name: str
    extent: Dim
    is_reduction: bool = False

    def __str__(self) -> str:
        return f"{self.name} in {self.extent}{' (reduced)' if self.is_reduction else ''}"


@dataclass(frozen=True)
class ExternalAccess:
    """A read or a write of a block: a buffer, at expressions of the axes."""

    buffer: str
    type: TensorType
    index: tuple[IndexExpr, ...] | None
    """One expression for each dim; None for a buffer that the body reads at places that it computes."""
    outside: float | int | None = None
    """The value that is read beyond the edges, if the index may leave them."""

    def __str__(self) -> str:
        at = "..." if self.index is None else ", ".join(map(str, self.index))
        return f"{self.buffer}[{at}]"


@dataclass(eq=False)
class ExternalBlock:
    """A block: one computation for all points of its axes."""

    name: str
    axes: tuple[ExternalAxis, ...]
    reads: tuple[ExternalAccess, ...]
    writes: tuple[ExternalAccess, ...]
    start: tuple[float | int | None, ...]
    """The initial value of each result of a reduction."""
    operations: tuple[str, ...]
    """The scalar operations of the body in order, such as `arith.mulf`."""
    operation: ir.Operation = field(repr=False)

    @property
    def is_reduction(self) -> bool:
        return any(axis.is_reduction for axis in self.axes)

    @cached_property
    def equation(self) -> str | None:
        """Return the einsum equation of a block of two operands, `ac,cb->ab`; None if it has other indices."""
        return equation(BlockView(self.operation)) if len(self.reads) == 2 else None

    def __str__(self) -> str:
        written, read = ", ".join(map(str, self.writes)), ", ".join(map(str, self.reads))
        return f"{self.name}: {written} {'+=' if self.is_reduction else '='} {read}"


@dataclass(eq=False)
class ExternalPrim:
    """A prim function that a node calls."""

    name: str
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    blocks: tuple[ExternalBlock, ...]
    """The blocks in order; empty for a function in buffer form, that is written or scheduled as loops."""
    operation: ir.Operation = field(repr=False)
    """The prim function's `func.func`."""

    @property
    def is_scheduled(self) -> bool:
        """Return whether the function is loops over buffers, no longer blocks over tensors."""
        return not is_tensor_form(self.operation)

    def schedule(self) -> Schedule:
        """Return the loops of a copy, to look at and to rearrange; `emit()` makes the scheduled function."""
        from mirlo.passes.schedule.primitives.schedule import Schedule

        module = ir.Module.create(self.operation.location)
        return Schedule(self.operation.clone(ip=ir.InsertionPoint(module.body)).operation.opview, module)

    def __str__(self) -> str:
        return "\n".join([f"prim function {self.name}", *(f"  {block}" for block in self.blocks)])


def read_prim(function: ir.Operation | ir.OpView) -> ExternalPrim:
    """Return the view of a prim function."""
    operation = function.operation
    name = symbol_name(operation)
    if not is_tensor_form(function):
        return ExternalPrim(name, {}, {}, (), operation)
    view = PrimView(function)
    names: dict[ir.Value, str] = {argument: f"x{i}" for i, argument in enumerate(view.arguments)}
    inputs = {f"x{i}": _type(argument) for i, argument in enumerate(view.arguments)}
    outputs = {f"y{i}": _type(value) for i, value in enumerate(view.returned)}
    for i, value in enumerate(view.returned):
        names.setdefault(value, f"y{i}")
    for block in view.blocks:
        for output in block.outputs:
            names.setdefault(output.value, f"t{len(names)}")
    for op in view.others:
        for result in op.operation.results:
            names.setdefault(result, f"t{len(names)}")
    return ExternalPrim(name, inputs, outputs, tuple(_block(block, names) for block in view.blocks), operation)


def _block(block: BlockView, names: Mapping[ir.Value, str]) -> ExternalBlock:
    axes = tuple(
        ExternalAxis(f"v{i}", extent, kind == REDUCE)
        for i, (extent, kind) in enumerate(zip(block.domain, block.axes, strict=True))
    )
    indices = [loop_index(axis.name) for axis in axes]
    extents = {axis.name: axis.extent for axis in axes}
    return ExternalBlock(
        name=block.name,
        axes=axes,
        reads=tuple(_access(operand, indices, extents, names) for operand in block.inputs),
        writes=tuple(_access(operand, indices, extents, names) for operand in block.outputs),
        start=tuple(_number(value) for value in block.init),
        operations=tuple(op.name for op in block.body_ops),
        operation=block.op,
    )


def _access(
    operand: OperandView, places: list[IndexExpr], extents: Mapping[str, Dim], names: Mapping[ir.Value, str]
) -> ExternalAccess:
    index = None
    if operand.map is not None:
        index = tuple(read_affine(expr, places, extents) for expr in operand.map.results)
    return ExternalAccess(names[operand.value], _type(operand.value), index, _number(operand.outside))


def _type(value: ir.Value) -> TensorType:
    result = TensorType.from_mlir(value.type)
    assert result is not None
    return result


def _number(attribute: ir.Attribute | None) -> float | int | None:
    if isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr)):
        return attribute.value
    return None
