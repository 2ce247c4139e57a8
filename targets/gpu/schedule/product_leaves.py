"""A product as leaves of the tree of loops: its operands, the epilogue on its accumulators, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.body import ProductInput, convert_accumulator, widened
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import when
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.memory import memory_accesses, place_in_threads
from mirlo.passes.schedule.primitives.points import PointEmitter
from mirlo.passes.schedule.primitives.tree import BufferAccess, ScheduleBuffer
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.leaves import HeldLeaves, PlacedAccess, compute, store
from mirlo.targets.gpu.schedule.roles import Indices, ProductOperand, Roles, values_of
from mirlo.targets.gpu.schedule.vectors import all_of


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A placeholder for a tensor of partial sums that another kernel finishes; kernels store accumulators unchanged."""

    type: ir.RankedTensorType


class ProductLeaves:
    """The operands and the epilogue of a product in its axes; accumulators are in registers, as kernels compute them.

    The epilogue's blocks are leaves, each of which reads the results of those before it in registers.
    """

    def __init__(self, roles: Roles, memory: TensorBuffers) -> None:
        """Place the blocks; the views of memory that they access are made at the insertion point."""
        contraction, blocks = roles.contraction, HeldLeaves()
        self.roles = roles
        self._operands = {
            side.factor.argument: BufferAccess(
                blocks.buffer(side.access.value), list(side.access.dims), side.access.outside
            )
            for side in (roles.rows, roles.columns)
        }
        self._total = blocks.hold(blocks.buffer(_result(contraction)))
        self._epilogue = [blocks.place_held(stage.block, stage.indices) for stage in contraction.stages]
        self.writes: list[PlacedAccess] = [
            (BufferAccess(blocks.buffer(value), list(access.dims)), []) for value, access in contraction.writes
        ]
        """What is stored."""
        accesses = [*self._operands.values(), *(access for access, _ in self.writes)]
        accesses += [access for leaf in self._epilogue for access in memory_accesses(leaf)]
        self._placed = place_in_threads(accesses, memory, roles.extents)
        self.points = PointEmitter(self._placed, roles.extents)

    def view(self, access: BufferAccess) -> ir.Value:
        """Return the memory of an access, as one dim."""
        return self._placed[access.buffer].flat

    def line(self, side: ProductOperand, indices: Indices) -> OperandLine:
        """Return the elements of an operand along the reduction, where its other axes have these indices."""
        return OperandLine(self, side.factor, self._operands[side.factor.argument], LoopValues(indices))

    @property
    def residual(self) -> PlacedAccess | None:
        """Return an operand of the epilogue that is read where the only result is written, with its type."""
        ((written, at),) = self.writes
        where = self._placed.flat_index(written, at)
        for leaf in self._epilogue:
            for access in leaf.reads:
                if access.is_opaque or access.register is not None or access.buffer.element != written.buffer.element:
                    continue
                if self._placed.flat_index(access, leaf.at) == where:
                    return access, leaf.at
        return None

    def results(
        self, total: ir.Value, values: LoopValues, loaded: Mapping[int, ir.Value] | None = None
    ) -> dict[ScheduleBuffer, ir.Value]:
        """Emit the epilogue of an accumulator; `loaded` are elements that are in registers, by the accesses."""
        total = convert_accumulator(total, self._total.buffer.element)
        self.points.hold([total], [self._total], values)
        self.points.loaded = dict(loaded or {})
        return {self._total.buffer: total, **compute(self.points, self._epilogue, values)}

    def load_result(self, values: LoopValues) -> Value:
        """Load an element of the only result."""
        (written,) = self.writes
        return Value(self.points.load(*written, values))

    def store(self, total: ir.Value, indices: Indices) -> None:
        """Emit the epilogue of an accumulator, and store its results."""
        values = LoopValues(indices)
        store(self.points, self.writes, self.results(total, values), values)


class OperandLine:
    """The elements of an operand along the reduction, at some indices of its other axes."""

    def __init__(self, leaves: ProductLeaves, factor: ProductInput, access: BufferAccess, values: LoopValues) -> None:
        """Emit the common parts of positions and tests of all elements at the insertion point."""
        self._points, self._factor, self._access, self._values = leaves.points, factor, access, values
        kind = leaves.roles.contraction.product.accumulate_type
        self._kind = kind if isinstance(kind, ir.FloatType) else None
        self.view = leaves.view(access)
        """The memory of the operand, as one dim."""
        self._points.start(access, [], values)

    def position(self, sums: Indices) -> ir.Value:
        """Emit the position in memory of an element."""
        return self._points.position(self._access, [], self._values.inside(sums))

    def source(self, sums: Indices) -> tuple[ir.Value, ir.Value | None]:
        """Emit the position of an element, and whether it is in bounds; None if that is certain."""
        values = self._values.inside(sums)
        return self._points.position(self._access, [], values), self._points.inside(self._access, [], values)

    def element(self, sums: Indices) -> ir.Value:
        """Load an element in its storage type, or emit the value that replaces it out of bounds."""
        return self._points.read(self._access, [], self._values.inside(sums))

    def read(self, sums: Indices) -> ir.Value:
        """Load an element, and convert it to the accumulator's type."""
        return self.convert(self.element(sums), 1)

    def convert(self, element: ir.Value, lanes: int) -> ir.Value:
        """Convert an element, or a vector of elements, to the accumulator's type."""
        converted = self._factor.emit(element, lanes)
        return converted if self._kind is None else widened(converted, self._kind)


@dataclass(frozen=True)
class EpilogueEmitter:
    """The epilogue of a tile of rows and columns; elements beyond the last ones are dropped."""

    leaves: ProductLeaves
    batch: Indices
    height: int
    width: int

    def store(self, row: Value, column: Value, total: ir.Value) -> None:
        """Apply the epilogue to one accumulator and store it, if the row and column exist."""
        roles = self.leaves.roles
        tests = [
            at.below(side.extent) if not D.is_multiple(side.extent, size) else None
            for at, side, size in ((row, roles.rows, self.height), (column, roles.columns, self.width))
        ]
        when(all_of(*tests), partial(self._store, row, column, total))

    def _store(self, row: Value, column: Value, total: ir.Value) -> None:
        self.leaves.store(total, indices_of(self.leaves.roles, self.batch, row, column))


def indices_of(roles: Roles, batch: Indices, row: Value, column: Value) -> Indices:
    """Return the indices of all axes but those of the reduction."""
    return {**batch, **values_of(roles.rows.axes, row), **values_of(roles.columns.axes, column)}


def _result(contraction: Contraction) -> ir.Value:
    """Return the first use of the accumulators: a result of the block, or partial sums."""
    partial_sums = [access.value for value, access in contraction.writes if isinstance(value, Unfinished)]
    result: ir.Value = partial_sums[0] if partial_sums else contraction.block.outputs[0].value
    return result
