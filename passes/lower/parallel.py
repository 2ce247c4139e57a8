"""The pass `outline-parallel`: outlines parallel loops as functions that a thread pool calls on chunks.

    scf.for %i = %c0 to %n step %c1 { body } {tir.parallel}
becomes
    call @kernel_fork0(%n, captured...)
    func.func private @kernel_fork0(...) attributes {tir.fork = {region = @kernel_region0, chunks = c, least = l}}
    func.func private @kernel_region0(%first, %end, captured...) { scf.for %i = %first to %end step %c1 { body } }

The target provides the body of the fork, which passes the region to its thread pool, or calls it if there are fewer
than `least` iterations.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import func, ir, memref
from mirlo.dialects.core.surgery import ancestors, enclosing
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import compare, index, integer_of, is_constant
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.buffers import ALIGNMENT, SHARED, buffer_bytes
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.lower.parallel_nest import ParallelNest, find_nest
from mirlo.passes.lower.shared_writes import find_shared_write, is_write
from mirlo.passes.lower.work import body_work, emit_work, kernel_work
from mirlo.passes.memory.names import FORK
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.loops import PARALLEL, either
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

CHUNKS_PER_THREAD = 4
"""Several chunks per thread balance threads that start late or are slower."""
MIN_TRIPS_PER_THREAD = 32
"""Iterations per thread from which a loop is not coalesced with the parallel loop inside of it."""
PRIVATE_BYTES = 1 << 20
"""Most bytes of scratch memory of a region, which is on the stacks of the pool's threads."""
REPEATED = ("vector.create_mask", "arith.cmpi")
"""Operations whose results cannot be passed to a function: masks and conditions. A region repeats them."""
MIN_TRIPS = 2
"""The iterations that threads can share."""


@dataclass(frozen=True)
class ParallelRecord:
    """The parallel loops of a kernel: which were outlined, or why one was not."""

    function: str
    shared: tuple[int, ...]
    """For each that was outlined, the iterations from which threads share them."""
    declined: tuple[Decline, ...]


@register_pass
@dataclass(frozen=True)
class OutlineParallel(Pass):
    """Outline the bodies of parallel loops as functions that run on several threads.

    Loops of kernels with little work stay sequential: starting the threads costs more than it saves. So do loops whose
    iterations write to the same place in memory that they share.
    """

    name = "outline-parallel"
    contained = True
    threads: int = option(1, "threads that a kernel may use; 1 leaves all loops as they are")
    work: int = option(400_000, "least floating-point operations of a kernel or loop (a byte moved counts as four)")

    def run(self, op: ir.OpView, session: Session) -> None:
        if self.threads < 2:
            return
        body = op.regions[0].blocks[0]
        symbols = ir.SymbolTable(op.operation)
        for function in list(body.operations):
            if is_prim_func(function) and len(function.operation.regions[0].blocks):
                session.notes.append(self._outline_all(function, symbols, body))

    def _outline_all(self, function: ir.OpView, symbols: ir.SymbolTable, module_body: ir.Block) -> ParallelRecord:
        name = symbol_name(function)
        loops = _parallel_loops(function)
        work = kernel_work(function)
        if loops and isinstance(work, int) and work < self.work:
            return ParallelRecord(name, (), (decline("too little work to share", operations=work, least=self.work),))
        reasons: list[Decline] = []
        shared: list[int] = []
        for loop in loops:
            nest = find_nest(loop, MIN_TRIPS_PER_THREAD * self.threads)
            of_one = body_work(nest.body)
            least = least_trips(of_one, self.work)
            # The work of an iteration may depend on sizes: then that of the kernel decides in each call.
            least_work = self.work if of_one is None and not isinstance(work, int) else None
            outliner = _Outliner(nest, f"{name}_region", self.threads, least, least_work, symbols, module_body)
            outcome = outliner.run()
            if isinstance(outcome, Decline):
                reasons.append(outcome)
            else:
                shared.append(least)
        return ParallelRecord(name, tuple(shared), tuple(reasons))


def _parallel_loops(function: ir.OpView) -> list[ir.Operation]:
    """Return the outermost parallel loops."""
    loops: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "scf.for" and PARALLEL in op.attributes:
            loops.append(op)
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE

    walk(function, visit, ir.WalkOrder.PRE_ORDER)
    return loops


def least_trips(of_one: int | None, work: int) -> int:
    """Return the number of iterations that together have this much work; 2 if one is enough, or the work is unknown."""
    return MIN_TRIPS if of_one is None else max(MIN_TRIPS, -(-work // max(of_one, 1)))


@dataclass
class _Outliner:
    nest: ParallelNest
    name: str
    threads: int
    least: int
    least_work: int | None
    """Work of the kernel from which threads share the loop, if calls decide on that."""
    symbols: ir.SymbolTable
    module_body: ir.Block
    writes: list[ir.Operation] = field(default_factory=list)

    @property
    def loop(self) -> ir.Operation:
        return self.nest.outer

    def run(self) -> Decline | None:
        trips = self.nest.trips
        if len(self.loop.results):
            return decline("the loop carries values")
        if integer_of(self.loop.operands[2]) is None:
            return decline("the step of the loop is not a constant")
        if trips is not None and trips < MIN_TRIPS:
            return decline("the loop runs once")
        captured = self._captured()
        private = [v for v in captured if self._is_private_scratch(v)]
        passed, repeated = _divide([v for v in captured if v not in private])
        for value in passed:
            if not _passes_by_pointer(value.type):
                return decline("a value cannot be passed to another function", type=str(value.type))
        if (write := find_shared_write(self.nest.loops, self.writes, private)) is not None:
            return decline("iterations write to the same place in memory", write=str(write).partition(" :")[0].strip())
        size = sum(buffer_bytes(v.type) for v in private)
        if size > PRIVATE_BYTES:
            return decline("an iteration needs too much scratch memory of its own", bytes=size, most=PRIVATE_BYTES)
        all_trips, *inner_trips = self.nest.emit_trips()
        counts, constants = _divide([*inner_trips])
        passed += [value for value in counts if value not in passed]
        repeated += [value for value in constants if value not in repeated]
        region = self._make_region(passed, repeated, private, [*inner_trips])
        self._make_fork(region, all_trips, passed)
        return None

    def _captured(self) -> list[ir.Value]:
        """Return values from outside that the loops use but for their upper bounds, in order of first use.

        Writes are collected on the way.
        """
        inside: set[ir.Value] = set()
        used: dict[ir.Value, None] = {}

        def visit(op: ir.Operation) -> ir.WalkResult:
            for region in op.regions:
                for block in region.blocks:
                    inside.update(block.arguments)
            low, _, step = [*op.operands][:3] if op in self.nest.loops else (None, None, None)
            used.update(dict.fromkeys(op.operands if low is None or step is None else (low, step)))
            if is_write(op):
                self.writes.append(op)
            inside.update(op.results)
            return ir.WalkResult.ADVANCE

        walk(self.loop, visit, ir.WalkOrder.PRE_ORDER)
        return [v for v in used if v not in inside]

    def _is_private_scratch(self, value: ir.Value) -> bool:
        """Return whether scratch memory is private to this loop: no iteration reads what another one writes."""
        if not isinstance(value, ir.OpResult) or value.owner.name not in ("memref.alloca", "memref.view"):
            return False
        if SHARED in value.owner.attributes:
            return False
        return all(self._is_inside(use.owner) for use in value.uses)

    def _is_inside(self, op: ir.Operation | ir.OpView) -> bool:
        return op.operation == self.loop or self.loop in ancestors(op)

    def _make_region(
        self, passed: list[ir.Value], repeated: list[ir.Value], private: list[ir.Value], inner_trips: list[ir.Value]
    ) -> str:
        index = ir.IndexType.get()
        types = [index, index, *(v.type for v in passed)]
        with self.loop.location:
            region = func.FuncOp(self.name, ir.FunctionType.get(types, []), visibility="private", ip=False)
            block = region.add_entry_block()
            self.module_body.append(region.operation)
            name = ir.StringAttr(self.symbols.insert(region.operation)).value
            first, end, *inner = block.arguments
            env: dict[ir.Value, ir.Value] = dict(zip(passed, inner, strict=True))
            with ir.InsertionPoint(block):
                for value in repeated:
                    copy = value.owner.clone()
                    _replace_inside(copy, env)
                    env[value] = copy.results[0]
                env.update({p: _stack_buffer(p.type) for p in private})
                self.nest.emit_range(first, end, inner_trips)
                func.ReturnOp([])
        _replace_inside(region.operation, env)
        return name

    def _make_fork(self, region: str, trips: ir.Value, passed: list[ir.Value]) -> None:
        i64 = ir.IntegerType.get_signless(64)
        types = [ir.IndexType.get(), *(v.type for v in passed)]
        numbers = {"chunks": self.threads * CHUNKS_PER_THREAD, "threads": self.threads, "least": self.least}
        with self.loop.location:
            fork = func.FuncOp(
                region.replace("_region", "_fork", 1), ir.FunctionType.get(types, []), visibility="private", ip=False
            )
            fork.operation.attributes[FORK] = ir.DictAttr.get(
                {
                    "region": ir.FlatSymbolRefAttr.get(region),
                    **{key: ir.IntegerAttr.get(i64, number) for key, number in numbers.items()},
                }
            )
            self.module_body.append(fork.operation)
            name = ir.StringAttr(self.symbols.insert(fork.operation)).value
            with ir.InsertionPoint(self.loop):
                self._call(name, region, trips, passed)
        self.loop.erase()

    def _call(self, fork: str, region: str, trips: ir.Value, passed: list[ir.Value]) -> None:
        """Emit the call of the fork, or of the region alone where a call of the kernel has too little work."""

        def shared() -> None:
            func.CallOp([], ir.FlatSymbolRefAttr.get(fork), [trips, *passed])

        def alone() -> None:
            func.CallOp([], ir.FlatSymbolRefAttr.get(region), [index(0), trips, *passed])

        work = None if self.least_work is None else emit_work(enclosing(self.loop, "func.func"))
        if work is None or self.least_work is None:
            shared()
            return
        either(compare("ge", work, index(self.least_work)), shared, alone)


def _divide(captured: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return the values to pass to a region, and the values that the region computes again, each after its operands."""
    passed: dict[ir.Value, None] = {}
    repeated: dict[ir.Value, None] = {}

    def visit(value: ir.Value) -> None:
        is_repeated = isinstance(value, ir.OpResult) and value.owner.name in REPEATED
        if is_repeated or is_constant(value):
            for operand in value.owner.operands:
                visit(operand)
            repeated[value] = None
        else:
            passed[value] = None

    for value in captured:
        visit(value)
    return list(passed), list(repeated)


def _stack_buffer(kind: ir.Type) -> ir.Value:
    alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
    return memref.AllocaOp(kind, [], [], alignment=alignment).result


def _replace_inside(root: ir.Operation, env: dict[ir.Value, ir.Value]) -> None:
    """Replace uses of the original function's values inside by the region's own."""

    def visit(op: ir.Operation) -> ir.WalkResult:
        for i, value in enumerate(op.operands):
            if value in env:
                op.operands[i] = env[value]
        return ir.WalkResult.ADVANCE

    walk(root, visit, ir.WalkOrder.PRE_ORDER)


def _passes_by_pointer(kind: ir.Type) -> bool:
    """Return whether a value is passed as is: an index, or a buffer that its pointer fully describes."""
    if isinstance(kind, ir.MemRefType):
        return kind.has_static_shape and ir.AffineMap.get_identity(len(kind.shape)) == kind.affine_map
    return isinstance(kind, ir.IndexType)
