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
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import graph_operations
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import UNKNOWN, Dim, is_nonnegative, maximum, product, symbols_of
from mirlo.dialects.core.symbols import is_entry, symbol_name
from mirlo.dialects.core.types import TensorType, dims_of
from mirlo.dialects.tir.buffers import workspace_of
from mirlo.dialects.tir.sizes import extents_of
from mirlo.dialects.tir.view import is_prim_func, is_tensor_form
from mirlo.passes.entry import entry_or_none
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.inline_calls import inline_calls
from mirlo.passes.locations import names_of
from mirlo.passes.memory.build import PlannedFunction, argument_names, view_text
from mirlo.passes.memory.control import EXTRACT, is_supported
from mirlo.passes.memory.extents import MAX_BYTES, MAX_ITERATIONS, NonnegativeDim, SizeProduct, SizeProducts
from mirlo.passes.memory.layout import ALIGNMENT, Interval, assign_offsets, lower_bound
from mirlo.passes.memory.storage_assignment import (
    BINDS,
    CALLS,
    ERASE,
    FROM_ELEMENTS,
    PART,
    REQUIRE,
    ROW,
    VIEWS,
    StorageAssignment,
    has_erased_dims,
)
from mirlo.passes.memory.symbols import FunctionSymbols, SizeCheck
from mirlo.passes.memory.timeline import Timeline, TimelineBlock, is_tensor
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


class Requirements:
    """Collector of the products and the dims of a function, and of the kernels that it calls."""

    def __init__(
        self, timeline: Timeline, symbols: FunctionSymbols, callee: Callable[[ir.Operation], ir.OpView]
    ) -> None:
        self.symbols = symbols
        self.callee = callee
        self.products = SizeProducts(symbols.bound_by)
        self._dims: dict[str, tuple[NonnegativeDim, bool]] = {}
        self._limits: dict[str, set[str]] = {}
        self._kernels: set[tuple[str, tuple[Dim, ...]]] = set()
        """The kernels, by name and sizes, whose requirements are among the products."""
        self._tensors: set[tuple[TensorType, bool]] = set()
        """The types of tensors that were required to fit in memory, and whether every call creates one."""
        for name in symbols.solved:
            self._require_nonnegative(D.symbol(name), f"the dim '{name}' of an input is negative", True)
        for value in timeline.body.arguments:
            self._tensor(value, "an input", False)
        self._visit(timeline.body, True)

    def settle(self) -> list[Dim]:
        """Add the requirements to the symbols; return the dims whose values the run time shows in errors."""
        symbols, shown = self.symbols, list[Dim]()
        late: list[SizeProduct | NonnegativeDim] = []
        for each, always in self._dims.values():
            if not symbols.is_early(each.dim):
                late.append(each)
            elif always:
                symbols.checks.append(SizeCheck(0, each.dim, each.text, False, tuple(sorted(each.symbols))))
        extents = self.products.required()
        symbols.extents = [extent for extent in extents if extent.symbols <= symbols.early]
        late += [extent for extent in extents if not extent.symbols <= symbols.early]
        shown_texts: list[SizeProduct | NonnegativeDim] = [*symbols.extents, *late]
        for shown_text in shown_texts:
            symbols.text_number(shown_text.text, shown_text.symbols)
        for text, names in self._limits.items():
            symbols.text_number(text, names)
        needed = [*(need.symbols for need in late), *self._limits.values()]
        shown = [D.symbol(name) for names in needed for name in sorted(names) if name in symbols.bounds]
        symbols.late = late
        return shown

    def _visit(self, body: TimelineBlock, always: bool) -> None:
        for step in body.steps:
            op = step.op
            names = ", ".join(names_of(op.location)) or op.name
            for value in op.results:
                self._tensor(value, names, always)
            if op.name == REQUIRE:
                self._require(op.opview, always)
            for dims in extents_of(op):
                self.products.add(dims, 1, MAX_BYTES, f"{names}: a tensor of {_joined(dims)} bytes is too large")
            if op.name == "relax.call_tir":
                self._kernel(op, names)
            for nested in step.bodies:
                for argument in nested.arguments:
                    self._tensor(argument, names, False)
                self._visit(nested, False)

    def _kernel(self, op: ir.Operation, names: str) -> None:
        """Require what a kernel computes with, once for all its calls with the same sizes."""
        call = op.opview
        if (call.callee, call.sizes) in self._kernels:
            return
        self._kernels.add((call.callee, call.sizes))
        callee = self.callee(op)
        scratch = call.in_caller(workspace_of(callee))
        self.products.add_dim(scratch, f"{names}: its scratch memory is too large", MAX_BYTES)
        for extent in extents_of(callee.operation):
            dims = tuple(map(call.in_caller, extent))
            text = f"{names}: a computation of {_joined(dims)} elements is too large"
            self.products.add(dims, 1, MAX_ITERATIONS, text)

    def _require(self, op: ir.OpView, always: bool) -> None:
        """Check the dims of an operation before the call if they are known there, or else show them where it fails."""
        for low, high in op.limits:
            names = D.symbols_of(low) | D.symbols_of(high)
            if always and self.symbols.is_early(low) and self.symbols.is_early(high):
                self.symbols.checks.append(SizeCheck(low, high, op.what, False, tuple(sorted(names))))
            else:
                self._limits.setdefault(op.what, set()).update(names)

    def _tensor(self, value: ir.Value, names: str, always: bool) -> None:
        """Require that a tensor fits in memory; `always`, for one that is created in every call."""
        tensor = TensorType.from_mlir(value.type) if is_tensor(value) else None
        if tensor is None or (tensor, always) in self._tensors:
            return
        self._tensors.add((tensor, always))
        if D.UNKNOWN in tensor.shape or all(isinstance(dim, int) for dim in tensor.shape):
            return
        self.products.add(tensor.shape, tensor.dtype.bytes, MAX_BYTES, f"{names}: {tensor} is larger than any memory")
        for dim in tensor.shape:
            if not isinstance(dim, int) and not D.is_nonnegative(dim):
                self._require_nonnegative(dim, f"{names}: a dim of {tensor} is negative", always)

    def _require_nonnegative(self, dim: Dim, text: str, always: bool) -> None:
        known = self._dims.get(str(dim))
        if known is None or (always and not known[1]):
            self._dims[str(dim)] = NonnegativeDim(dim, text), always


def _joined(dims: Sequence[Dim]) -> str:
    return " x ".join(map(str, dims))


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
"""Readable bytes after an arena whose buffers may be empty: kernels hoist loop-invariant loads out of loops, also
of loops without iterations."""


@dataclass
class _MemoryPlanner:
    name: str
    function: ir.OpView
    functions: dict[str, ir.OpView]
    module: ir.OpView
    aliases: bool
    alignment: int
    _scheduled: set[str] = field(default_factory=set)
    """The kernels, by name, that were found to be scheduled."""

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
        allowed = {"relax.constant", ERASE, PART, REQUIRE, ROW, *BINDS, *CALLS, *VIEWS}
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
            if op.name == ROW and not (is_constant(op.opview.x) and op.opview.x.owner.opview.param is not None):
                raise PassError(
                    f"'{ROW}' views {op.opview.x.type}, which is no parameter: use relax.gather", op.location
                )
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
        if name in self._scheduled:
            return callee
        kind = ir.TypeAttr(callee.operation.attributes["function_type"]).value
        if kind.results and not callee.operation.regions[0].blocks:
            raise PassError(f"'@{name}' is declared over tensors and has no body: give it one", op.location)
        if not is_prim_func(callee) or is_tensor_form(callee):
            raise PassError(f"'@{name}' is not a scheduled prim function: run schedule before plan-memory", op.location)
        self._scheduled.add(name)
        return callee


def _advice(name: str) -> str:
    """Return advice on the pass that lowers a remaining operation."""
    if name in EXTERNAL_CALLS:
        return "run codegen-external or inline-external before plan-memory"
    if name in graph_operations():
        return "run legalize before plan-memory"
    return "no pass lowers it in graphs, which have operators, calls and scalars"
