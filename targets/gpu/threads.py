"""The pass `map-threads`: loops that are bound to hardware axes, or parallel, become launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import gpu, ir, memref, scf
from mirlo.dialects.core.surgery import erase_op
from mirlo.dialects.core.value import Value, integer_of
from mirlo.dialects.tir.buffers import WORKSPACE
from mirlo.dialects.tir.view import is_prim_func, is_tensor_form
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import Pass, PassError, register_pass
from mirlo.passes.schedule.loops import PARALLEL
from mirlo.targets.gpu.schedule.launch import SHARED, barrier

if TYPE_CHECKING:
    from mirlo.passes.session import Session

AXES = {f"{kind}Idx.{dim}": (kind, i) for kind in ("block", "thread") for i, dim in enumerate("xyz")}
"""Hardware axes, as `T.thread_binding` names them."""
_OUTSIDE = ("memref.view", "arith.constant", "memref.collapse_shape", "memref.expand_shape", "memref.reinterpret_cast")


@register_pass
@dataclass(frozen=True)
class MapThreads(Pass):
    """Turn loops bound to `blockIdx.x` ... `threadIdx.z` into the indices of one launch per prim function.

    Loops of one axis have one extent; those over threads may have smaller ones. After each loop over threads all
    threads of a block synchronize if the function has shared memory.
    """

    name = "map-threads"
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        for function in list(op.regions[0].blocks[0].operations):
            if is_prim_func(function) and not is_tensor_form(function):
                loops = [loop for loop in find(function, "tir.for") if loop.opview.kind == "bound"]
                if loops:
                    _Mapping(function.operation, loops).run()


class _Mapping:
    def __init__(self, function: ir.Operation | ir.OpView, loops: list[ir.Operation]):
        self.function = function
        self.loops = loops
        self.extents = {"block": [1, 1, 1], "thread": [1, 1, 1]}
        for loop in loops:
            self._note(loop)
        self.shared = [a for a in find(function, "memref.alloca") if a.results[0].type.memory_space is not None]

    def _note(self, loop: ir.Operation) -> None:
        name = loop.opview.thread
        if name not in AXES:
            raise PassError(f"there is no hardware axis '{name}': there are {', '.join(AXES)}", loop.location)
        kind, dim = AXES[name]
        extent, sizes = _extent(loop), self.extents[kind]
        if kind == "block" and sizes[dim] not in (1, extent):
            raise PassError(f"loops over '{name}' have the extents {sizes[dim]} and {extent}", loop.location)
        sizes[dim] = max(sizes[dim], extent)

    def run(self) -> None:
        block = self.function.regions[0].blocks[0]
        operations = [op.operation for op in block.operations]
        inside = [op for op in operations[:-1] if op.name not in _OUTSIDE]
        with ir.InsertionPoint(operations[-1]), self.function.location:
            launch = gpu.LaunchOp(tuple(self.extents["block"]), tuple(self.extents["thread"]))
            region = launch.regions[0].blocks[0]
            with ir.InsertionPoint(region):
                end = gpu.TerminatorOp()
        for op in inside:
            op.move_before(end.operation)
        self.ids = {"block": list(region.arguments)[:3], "thread": list(region.arguments)[3:6]}
        for alloca in self.shared:
            self._share(alloca)
        for loop in self.loops:
            self._map(loop)

    @staticmethod
    def _share(alloca: ir.Operation) -> None:
        kind = alloca.results[0].type
        space = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), SHARED)
        with ir.InsertionPoint(alloca), alloca.location:
            made = memref.AllocOp(ir.MemRefType.get(kind.shape, kind.element_type, memory_space=space), [], [])
        alloca.results[0].replace_all_uses_with(made.result)
        alloca.erase()

    def _map(self, loop: ir.Operation) -> None:
        kind, dim = AXES[loop.opview.thread]
        extent, body = _extent(loop), loop.regions[0].blocks[0]
        waits = kind == "thread" and bool(self.shared) and not _in_threads(loop)
        with ir.InsertionPoint(loop), loop.location:
            body.arguments[0].replace_all_uses_with(self.ids[kind][dim])
            place: ir.Operation = loop
            if extent < self.extents[kind][dim]:
                branch = scf.IfOp(Value(self.ids[kind][dim]).below(extent))
                with ir.InsertionPoint(branch.then_block):
                    place = scf.YieldOp([]).operation
            if waits:
                barrier()
        for op in [o.operation for o in body.operations]:
            if op.name == "tir.yield":
                op.erase()
            else:
                op.move_before(place)
        erase_op(loop)


def _in_threads(loop: ir.Operation) -> bool:
    """Return whether a loop is nested in a loop over threads."""
    parent = loop.parent
    while parent is not None:
        op = parent.operation
        if op.name == "tir.for" and op.opview.kind == "bound" and AXES[op.opview.thread][0] == "thread":
            return True
        parent = op.parent
    return False


def _extent(loop: ir.Operation) -> int:
    low, high = (integer_of(value) for value in list(loop.operands)[:2])
    if low != 0 or high is None:
        raise PassError("a loop bound to a hardware axis runs from 0 to a number", loop.location)
    return high


def parallel_nest(function: ir.Operation) -> tuple[list[ir.Operation], list[int]] | None:
    """Return the loops with independent iterations that contain all of a function's work, with their extents.

    Return None if there are none, or if iterations would share scratch memory.
    """
    if WORKSPACE in function.attributes:
        return None
    loops: list[ir.Operation] = []
    extents: list[int] = []
    block = function.regions[0].blocks[0]
    while True:
        work = [op.operation for op in list(block.operations)[:-1] if op.operation.name not in _FREE]
        if len(work) != 1 or work[0].name != "scf.for" or PARALLEL not in work[0].attributes or len(work[0].results):
            break
        low, high, step = (integer_of(value) for value in list(work[0].operands)[:3])
        if low != 0 or high is None or high < 1 or step != 1:
            break
        loops.append(work[0])
        extents.append(high)
        block = work[0].regions[0].blocks[0]
    return (loops, extents) if loops else None


_FREE = ("memref.alloca", *_OUTSIDE)
"""Operations that every thread executes for itself, or the host."""
