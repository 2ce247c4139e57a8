"""`scf.if`, `scf.for` and `scf.while` over buffers: tensors keep their memory, scalars are carried as before."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Protocol

from mirlo.dialects.bindings import arith, ir, memref, scf
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.core.surgery import attributes_of
from mirlo.dialects.core.value import compare, index
from mirlo.passes.memory.storage_assignment import FROM_ELEMENTS, SELECT
from mirlo.passes.memory.timeline import TimelineBlock, TimelineStep, is_tensor


class FunctionBuilder(Protocol):
    """The builder of a planned function (`build.py`)."""

    scalars: dict[ir.Value, ir.Value]
    """Scalars of the function over buffers, by value of the function over tensors."""

    def buffer(self, value: ir.Value) -> ir.Value:
        """Return the buffer of a tensor."""

    def copy(self, source: ir.Value, target: ir.Value, tensor: ir.Type) -> None:
        """Copy all elements of a tensor of this type from one buffer to another."""

    def emit_body(self, body: TimelineBlock) -> None:
        """Emit the operations of a block."""

    def emit_moves(self, number: int) -> None:
        """Emit the copies after the operation with this number."""

    def inside(self) -> AbstractContextManager[None]:
        """Enter a region: buffers created in it are not visible outside."""


def emit_control(planned: FunctionBuilder, step: TimelineStep) -> None:
    """Emit the operation over buffers at the insertion point."""
    op = step.op
    if op.name != "scf.if":
        planned.emit_moves(step.start)
    results = [value for value in op.results if not is_tensor(value)]
    new_op = ir.Operation.create(
        op.name,
        results=[value.type for value in results],
        operands=[planned.scalars[value] for value in op.operands if not is_tensor(value)],
        attributes=attributes_of(op),
        regions=len(op.regions),
    )
    for region, body in zip(new_op.regions, step.bodies, strict=False):
        _emit_region(planned, region, body)
    planned.scalars.update(zip(results, new_op.results, strict=True))


def _emit_region(planned: FunctionBuilder, region: ir.Region, body: TimelineBlock) -> None:
    arguments = [value for value in body.arguments if not is_tensor(value)]
    block = region.blocks.append(*(value.type for value in arguments), arg_locs=None)
    planned.scalars.update(zip(arguments, block.arguments, strict=True))
    end = body.terminator
    with planned.inside(), ir.InsertionPoint(block):
        planned.emit_body(body)
        with end.location:
            planned.emit_moves(body.end)
            # The condition of a loop is the first operand of its terminator.
            scalars = [planned.scalars[value] for value in end.operands if not is_tensor(value)]
            ir.Operation.create(end.name, operands=scalars)


EXTRACT = "tensor.extract"


def is_supported(op: ir.Operation) -> bool:
    """Return whether `emit_scalars` supports this operation."""
    if op.name == EXTRACT:
        return _can_be_loaded(op.results[0].type)
    if op.name == FROM_ELEMENTS:
        return all(_can_be_loaded(value.type) for value in op.operands)
    if op.name == SELECT:
        return not is_tensor(op.operands[0])
    if op.name == "arith.constant":
        return True
    return op.name.startswith("arith.") and not any(is_tensor(v) for v in (*op.operands, *op.results))


def emit_scalars(planned: FunctionBuilder, op: ir.Operation) -> None:
    """Emit the operation over buffers at the insertion point."""
    if op.name == EXTRACT:
        indices = [planned.scalars[value] for value in list(op.operands)[1:]]
        stored = memref.LoadOp(planned.buffer(op.operands[0]), indices).result
        planned.scalars[op.results[0]] = _loaded(stored, op.results[0].type)
    elif op.name == FROM_ELEMENTS:
        _store_all(planned, op)
    elif op.name == SELECT and is_tensor(op.results[0]):
        _select(planned, op)
    else:
        clone = op.clone()
        for i, value in enumerate(op.operands):
            clone.operands[i] = planned.scalars[value]
        planned.scalars.update(zip(op.results, clone.results, strict=True))


def _can_be_loaded(scalar: ir.Type) -> bool:
    """Return whether a scalar can be loaded: unsigned and coded low-precision types have no upstream operations."""
    dtype = dtype_of_mlir(scalar)
    return dtype is not None and (dtype.name == "bool" or ir.Type.parse(dtype.storage) == scalar)


def _loaded(stored: ir.Value, wanted: ir.Type) -> ir.Value:
    """Convert a stored element to the graph's type: bools are stored as bytes."""
    if stored.type == wanted:
        return stored
    zero = arith.ConstantOp(stored.type, ir.IntegerAttr.get(stored.type, 0)).result
    return compare("ne", stored, zero)


def _store_all(planned: FunctionBuilder, op: ir.Operation) -> None:
    buffer = planned.buffer(op.results[0])
    for value, position in zip(op.operands, itertools.product(*map(range, buffer.type.shape)), strict=True):
        scalar = planned.scalars[value]
        if scalar.type != buffer.type.element_type:
            scalar = arith.ExtUIOp(buffer.type.element_type, scalar).result
        memref.StoreOp(scalar, buffer, [index(i) for i in position])


def _select(planned: FunctionBuilder, op: ir.Operation) -> None:
    """Copy one of two tensors. Simplification creates this from branches that compute nothing."""
    condition, *values = op.operands
    target = planned.buffer(op.results[0])
    branch = scf.IfOp(planned.scalars[condition], has_else=True)
    for block, value in zip((branch.then_block, branch.else_block), values, strict=True):
        with planned.inside(), ir.InsertionPoint(block):
            planned.copy(planned.buffer(value), target, value.type)
            scf.YieldOp([])
