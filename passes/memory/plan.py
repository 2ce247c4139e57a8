"""The pass `plan-memory`: rewrites the graph function to buffers, with all intermediates in one arena.

    func.func @main(%x: tensor<..> {relax.name = "x"}) -> (tensor<..> {relax.name = "y"})
becomes
    func.func @main(%x: memref<..> {..}, %y: memref<..> {..}, %w: memref<..> {relax.param = "w"},
                    %arena: memref<Nxi8> {relax.arena})

whose body calls prim functions on parameters and views of the arena, within the `scf.if`, `scf.for` and `scf.while` of
the graph. Liveness follows program order.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.dims import UNKNOWN, Dim, is_nonnegative, maximum, product, symbols_of
from mirlo.dialects.core.symbols import is_entry, symbol_name
from mirlo.dialects.core.types import TensorType, dims_of
from mirlo.dialects.tir.view import is_prim_func, is_tensor_form
from mirlo.passes.entry import entry_or_none
from mirlo.passes.graph.inline_calls import inline_calls
from mirlo.passes.memory.build import PlannedFunction, argument_names
from mirlo.passes.memory.extents import MAX_BYTES
from mirlo.passes.memory.layout import ALIGNMENT, Interval, assign_offsets, lower_bound
from mirlo.passes.memory.requirements import Requirements
from mirlo.passes.memory.scalars import EXTRACT, is_supported
from mirlo.passes.memory.storage_assignment import (
    BINDS,
    CALLS,
    ERASE,
    FROM_ELEMENTS,
    PART,
    REQUIRE,
    VIEWS,
    StorageAssignment,
    has_erased_dims,
)
from mirlo.passes.memory.symbols import FunctionSymbols, SizeCheck
from mirlo.passes.memory.timeline import Timeline, TimelineBlock, is_tensor
from mirlo.passes.memory.views import view_text
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

EXTERNAL_CALLS = ("relax.call_external", "func.call")
"""Calls of parts of the model that belong to code generators and are not compiled yet."""


@dataclass(frozen=True)
class BufferPlacement:
    """A buffer in the arena, alive from the start of one kernel call to the end of another."""

    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryRecord:
    """The result of planning: bytes of the arena, and a lower bound for any plan."""

    function: str
    arena: Dim
    bound: int
    in_place: int
    """Calls that overwrite an input."""
    buffers: tuple[BufferPlacement, ...] = ()
    """The buffers in the arena; none if some sizes are dynamic."""
    is_entry: bool = True
    """Whether the function is the model."""


@register_pass
@dataclass(frozen=True)
class PlanMemory(Pass):
    """Assign memory to every tensor of the graph: a parameter, an output, or a part of one arena.

    Prim functions must be scheduled. Tensors that are alive at different times share memory.
    """

    name = "plan-memory"
    contained = True
    trusted = True
    aliases: bool = option(False, "alias outputs with inputs that they overwrite")
    alignment: int = option(ALIGNMENT, "the bytes that offsets in the arena are multiples of")

    def run(self, op: ir.OpView, session: Session) -> None:
        if self.alignment < ALIGNMENT or self.alignment % ALIGNMENT:
            raise PassError(f"the alignment of a memory plan is a multiple of {ALIGNMENT}, found {self.alignment}")
        entry_or_none(op.operation)
        inline_calls(op.operation)
        functions = {symbol_name(f): f for f in _functions(op)}
        for name, function in functions.items():
            if not is_prim_func(function) and function.operation.regions[0].blocks:
                session.notes.append(_MemoryPlanner(name, function, functions, op, self.aliases, self.alignment).run())


def _functions(module: ir.OpView) -> list[ir.OpView]:
    return [f for f in module.regions[0].blocks[0].operations if f.operation.name == "func.func"]


READABLE = 64
"""Readable bytes behind an arena whose buffers may be empty: kernels hoist loop-invariant loads out of loops, also
of loops without iterations."""


@dataclass
class _MemoryPlanner:
    name: str
    function: ir.OpView
    functions: dict[str, ir.OpView]
    module: ir.OpView
    aliases: bool
    alignment: int

    def run(self) -> MemoryRecord:
        self.timeline = Timeline(self.function.operation.regions[0].blocks[0])
        body = self.timeline.body
        self.bound = self._bound_symbols()
        self.check()
        binds = [op for op in self.timeline.operations() if op.name in BINDS]
        symbols = FunctionSymbols.of(self.function, body.arguments, binds)
        assignment = StorageAssignment(self.timeline, self._callee, self.aliases)
        intervals = [i for i in assignment.intervals() if not self._is_late(i, symbols)]
        arena = assign_offsets(intervals, self.alignment)
        if any(interval.size == 0 or not isinstance(interval.size, int) for interval in intervals):
            arena = arena + READABLE
        returned = [dim for value in body.terminator.operands for dim in dims_of(value.type)]
        known = (dim for dim in returned if not isinstance(dim, int) and str(dim) not in symbols.inputs)
        required = Requirements(self.timeline, symbols, self._callee)
        self._check_views(symbols)
        for interval in intervals:
            required.products.add_dim(interval.size, "the memory of a call", MAX_BYTES)
        shown = required.settle()
        symbols.sizes = list(dict.fromkeys([arena, *known, *shown]))
        placements = self._placements(intervals)  # of operations that are erased next
        is_model = is_entry(self.function)
        PlannedFunction(self.name, self.function, self.module, assignment, symbols, self._callee).build(arena)
        return MemoryRecord(self.name, arena, lower_bound(intervals), assignment.in_place, placements, is_model)

    def _placements(self, intervals: Sequence[Interval]) -> tuple[BufferPlacement, ...]:
        """Return where buffers of static sizes lie, with kernel calls for steps."""
        calls = [step.start for step in self.timeline.steps() if step.op.name in CALLS]
        placements = []
        for interval in intervals:
            if not isinstance(interval.size, int) or not isinstance(interval.offset, int):
                return ()
            first, last = bisect_left(calls, interval.first), bisect_right(calls, interval.last) - 1
            placements.append(BufferPlacement(interval.offset, interval.size, first, max(first, last)))
        return tuple(placements)

    def _check_views(self, symbols: FunctionSymbols) -> None:
        """Require that views have the elements of their operands.

        Views in regions and of data-dependent sizes are checked where they are.
        """
        for op in (step.op for step in self.timeline.body.steps):
            if op.name not in VIEWS:
                continue
            before, after = (product(dims_of(value.type)) for value in (op.operands[0], op.results[0]))
            if before != after and symbols.is_early(before) and symbols.is_early(after):
                symbols.checks.append(SizeCheck(before, after, view_text(op, before, after, "; the first")))

    @staticmethod
    def _is_late(interval: Interval, symbols: FunctionSymbols) -> bool:
        """Return whether a buffer's size is data-dependent; otherwise replace it by a size known before the call."""
        size = symbols.bounded(interval.size)
        interval.is_late = size is UNKNOWN
        if not interval.is_late:
            # In a branch that is not taken a size may be negative, which must not shrink the arena.
            interval.size = size if is_nonnegative(size) else maximum(size, 0)
        return interval.is_late

    def check(self) -> None:
        """Check that the function contains only operations that the planner supports, with known sizes."""
        for op in self.timeline.operations():
            if op.name == "relax.call_packed":
                raise PassError(
                    f"'relax.call_packed' of '{op.opview.function}' allocates what it returns, which compiled models "
                    "cannot take: use relax.call_dps_packed, whose outputs the caller allocates",
                    op.location,
                )
        body = self.timeline.body
        for attribute, values in (("arg_attrs", body.arguments), ("res_attrs", list(body.terminator.operands))):
            names = argument_names(self.function.operation, attribute, len(values))
            for name, value in zip(names, values, strict=True):
                tensor_type, what = TensorType.from_mlir(value.type), f"'{name}' of '@{self.name}' is {value.type}"
                if tensor_type is None:
                    raise PassError(f"{what}; compiled functions take and give tensors", self.function.location)
                if attribute == "arg_attrs" and not self._is_known(tensor_type):
                    raise PassError(
                        f"{what}, of which a dim is not known: give it a name or a number", self.function.location
                    )
        self._check_body(body)

    def _check_body(self, body: TimelineBlock) -> None:
        allowed = {"relax.constant", ERASE, PART, REQUIRE, *BINDS, *CALLS, *VIEWS}
        for step in body.steps:
            op = step.op
            if op.name in (EXTRACT, FROM_ELEMENTS) and not is_supported(op):
                does, scalar = ("gives", op.results[0]) if op.name == EXTRACT else ("takes", op.operands[0])
                raise PassError(
                    f"'{op.name}' {does} {scalar.type}, which scalars of compiled functions cannot be", op.location
                )
            if not (op.name in allowed or step.bodies or is_supported(op)):
                raise PassError(f"'{op.name}' is left in '@{self.name}': {_advice(op.name)}", op.location)
            arguments = [value for nested in step.bodies for value in nested.arguments]
            for value in (*op.results, *arguments):
                tensor_type = TensorType.from_mlir(value.type)
                if tensor_type is not None and has_erased_dims(value) and (step.bodies or op.name == ERASE):
                    self._check_matched(tensor_type, op)
                    continue
                if is_tensor(value) and (tensor_type is None or not self._is_known(tensor_type)):
                    raise PassError(f"'{op.name}' makes {value.type}, whose size is not known", op.location)
            if op.name == "relax.call_tir":
                self._callee(op)
            for nested in step.bodies:
                self._check_body(nested)

    def _check_matched(self, kind: TensorType, op: ir.Operation) -> None:
        """Require that the dims that are left are known, and that there are symbols for the erased ones."""
        if not self.bound or not self._is_known(kind.with_shape([d for d in kind.shape if d is not UNKNOWN])):
            raise PassError(f"'{op.name}' makes {kind}: no symbol is bound to its sizes", op.location)

    def _bound_symbols(self) -> set[str]:
        """Return the symbols whose values are known when the model runs."""
        dims = [dim for value in self.timeline.body.arguments if is_tensor(value) for dim in dims_of(value.type)]
        names = set().union(*map(symbols_of, dims))
        for op in self.timeline.operations():
            names.update(op.opview.symbols if op.name in BINDS else ())
        return names

    def _is_known(self, tensor: TensorType) -> bool:
        return all(dim is not UNKNOWN and symbols_of(dim) <= self.bound for dim in tensor.shape)

    def _callee(self, op: ir.Operation) -> ir.OpView:
        name = op.opview.callee
        callee = self.functions.get(name)
        if callee is None:
            near = difflib.get_close_matches(name, self.functions, n=1)
            hint = f"; did you mean '@{near[0]}'?" if near else ""
            raise PassError(f"there is no function '@{name}'{hint}", op.location)
        kind = ir.TypeAttr(callee.operation.attributes["function_type"]).value
        if kind.results and not callee.operation.regions[0].blocks:
            raise PassError(f"'@{name}' is declared over tensors and has no body: give it one", op.location)
        if not is_prim_func(callee) or is_tensor_form(callee):
            raise PassError(f"'@{name}' is not a scheduled prim function: run schedule before plan-memory", op.location)
        return callee


def _advice(name: str) -> str:
    """Return advice on the pass that lowers a remaining operation."""
    if name in EXTERNAL_CALLS:
        return "run codegen-external or inline-external before plan-memory"
    if name in graph_operations():
        return "run legalize before plan-memory"
    return "no pass lowers it in graphs, which have operators, calls and scalars"
