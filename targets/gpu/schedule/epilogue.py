"""Epilogues of products: elementwise blocks on accumulators, and stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction, TensorAccess
from mirlo.passes.schedule.blocks.contraction.body import convert_accumulator, widened
from mirlo.passes.schedule.blocks.contraction.forms import row_major
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import clone_body, read_inside, when
from mirlo.targets.gpu.schedule.roles import Indices, ProductOperand, Roles, always_inside, evaluate, inside, values_of
from mirlo.targets.gpu.schedule.vectors import all_of


@dataclass(frozen=True, eq=False)
class Unfinished:
    """Stands for a tensor of partial sums that another kernel finishes; kernels store accumulators unchanged."""

    type: ir.RankedTensorType


def touch(contraction: Contraction, memory: TensorBuffers) -> None:
    """Make the views of all buffers outside of the kernel."""
    accesses = [contraction.lhs, contraction.rhs, *(access for _, access in contraction.writes)]
    for stage in contraction.stages:
        accesses += [access for access in stage.reads if access is not None]
        for operand in stage.block.inputs:
            if operand.is_opaque:
                memory.buffers.buffer(operand.value)
    for access in accesses:
        memory.slot(access.value)


def tested(roles: Roles, side: ProductOperand) -> list[tuple[IndexExpr, int]]:
    """Return the indices of an operand that may be out of bounds, with their extents."""
    access = side.access
    if access.outside is None:
        return []
    pairs = zip(access.dims, access.shape, strict=True)
    return [(dim, size) for dim, size in pairs if not always_inside(dim, size, roles.extents)]


@dataclass(frozen=True)
class Reader:
    """Reads operands of the product: elements, or the value that replaces them out of bounds."""

    roles: Roles
    side: ProductOperand
    memory: TensorBuffers

    def base(self, values: Indices) -> tuple[ir.Value, list[ir.Value]]:
        """Return the known part of the position, and of each index that may be out of bounds."""
        return evaluate(self.side.position, values), [evaluate(dim, values) for dim, _ in self._tested()]

    def read(self, base: tuple[ir.Value, list[ir.Value]], values: Indices) -> ir.Value:
        """Return the operand at a base and values of the other axes, in the accumulator type."""
        factor = self.side.factor.emit(self.element(base, values), 1)
        kind = self.roles.contraction.product.accumulate_type
        return widened(factor, kind) if isinstance(kind, ir.FloatType) else factor

    def element(self, base: tuple[ir.Value, list[ir.Value]], values: Indices) -> ir.Value:
        """Return the element there, in its storage type."""
        access = self.side.access
        position = evaluate(self.side.position, values, base[0])
        condition = self.is_inside(base, values)
        buffer = self.memory.slot(access.value).buffer
        if condition is None:
            return memref.LoadOp(buffer, [position]).result
        return read_inside(condition, lambda: memref.LoadOp(buffer, [position]).result, access.outside)

    def is_inside(self, base: tuple[ir.Value, list[ir.Value]], values: Indices) -> Value | None:
        """Return whether the element is in bounds, if it may not be; else None."""
        tests = zip(self._tested(), base[1], strict=True)
        return all_of(*(inside(evaluate(dim, values, start), size) for (dim, size), start in tests))

    def _tested(self) -> list[tuple[IndexExpr, int]]:
        return tested(self.roles, self.side)


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> Value:
    """Return a * b + c, of scalars or vectors, by the fastest method."""
    kind = c.type.element_type if isinstance(c.type, ir.VectorType) else c.type
    if isinstance(kind, ir.FloatType):
        return create("math.fma", c.type, a, b, c, fastmath=ir.Attribute.parse("#arith.fastmath<contract>"))
    return create("arith.addi", c.type, create("arith.muli", c.type, a, b), c)


def store_epilogue(contraction: Contraction, memory: TensorBuffers, values: Indices, total: ir.Value) -> None:
    """Apply the epilogue to one accumulator and store the results."""
    results = epilogue_results(contraction, memory, values, total)
    for value, access in contraction.writes:
        slot = memory.slot(value)
        memref.StoreOp(results[value], slot.buffer, [evaluate(row_major(access.dims, access.shape), values)])


def epilogue_results(
    contraction: Contraction,
    memory: TensorBuffers,
    values: Indices,
    total: ir.Value,
    read: tuple[TensorAccess, ir.Value] | None = None,
) -> Mapping[ir.Value | Unfinished, ir.Value]:
    """Return the epilogue's results for one accumulator, by tensor; `read` are operands loaded before."""
    result = contraction.block.outputs[0]
    computed: dict[ir.Value | Unfinished, ir.Value] = {result.value: convert_accumulator(total, result.element_type)}
    for stage in contraction.stages:
        env: dict[ir.Value, ir.Value] = {}
        for axis, (argument, form) in enumerate(zip(stage.block.index_arguments, stage.indices, strict=True)):
            if stage.block.uses_index(axis):
                env[argument] = evaluate(form, values)
        pairs = zip(stage.block.input_arguments, stage.block.inputs, stage.reads, strict=True)
        for argument, operand, access in pairs:
            if operand.value in computed:
                env[argument] = computed[operand.value]
            elif access is None:
                env[argument] = memory.buffers.buffer(operand.value)
            elif read is not None and access is read[0]:
                env[argument] = read[1]
            else:
                env[argument] = _load(memory, access, values)
        results = clone_body(stage.block, env)
        computed.update(zip((output.value for output in stage.block.outputs), results, strict=True))
    computed.update((value, total) for value, _ in contraction.writes if isinstance(value, Unfinished))
    return computed


@dataclass(frozen=True)
class EpilogueEmitter:
    """The epilogue of a tile of rows and columns; elements beyond the last ones are dropped."""

    roles: Roles
    memory: TensorBuffers
    batch: Indices
    height: int
    width: int

    def store(self, row: Value, column: Value, total: ir.Value) -> None:
        """Apply the epilogue to one accumulator and store it, if the row and column exist."""
        roles = self.roles
        tests = [
            at.below(side.extent) if not D.is_multiple(side.extent, size) else None
            for at, side, size in ((row, roles.rows, self.height), (column, roles.columns, self.width))
        ]
        when(all_of(*tests), partial(self._store, row, column, total))

    def _store(self, row: Value, column: Value, total: ir.Value) -> None:
        roles = self.roles
        values = {**self.batch, **values_of(roles.rows.axes, row), **values_of(roles.columns.axes, column)}
        store_epilogue(roles.contraction, self.memory, values, total)


def _load(memory: TensorBuffers, access: TensorAccess, values: Indices) -> ir.Value:
    position = evaluate(row_major(access.dims, access.shape), values)
    return memref.LoadOp(memory.slot(access.value).buffer, [position]).result
