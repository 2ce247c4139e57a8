"""Kernels report loops that the device ended before their last iteration.

Mesa's software device ends every loop of a thread after 65535 iterations, all loops of a kernel together, without an
error. A kernel that may have this many iterations runs a short loop last, and writes to memory if the device ended it;
the loader reads that after the call.
"""

from __future__ import annotations

from mirlo.dialects.bindings import arith, ir, memref, scf
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.core.value import emit_constant, index
from mirlo.passes.lower.calls import find
from mirlo.passes.lower.work import constant_trips
from mirlo.targets.spirv.arguments import SCALARS
from mirlo.targets.spirv.recording import REPORT

MOST_ITERATIONS = 65535
"""Iterations of all loops of a thread that every device computes."""
REPORTS = "gpu.reports"
"""Unit attribute of a module of a kernel whose last buffer ends with the numbers of a report."""


def report_ended_loops(module: ir.Module | ir.OpView) -> None:
    """Add a report to each kernel with converted arguments that may have too many iterations."""
    for function in find(module, "gpu.func"):
        block = function.regions[0].blocks[0]
        iterations = count_iterations(block)
        if iterations is None or iterations > MOST_ITERATIONS:
            _report(function, block)
            enclosing(function, "gpu.module").operation.attributes[REPORTS] = ir.UnitAttr.get()


def count_iterations(block: ir.Block) -> int | None:
    """Return the most iterations that the loops in a block have together, None if that depends on values."""
    total = 0
    for op in block.operations:
        inner = [count_iterations(each) for region in op.regions for each in region.blocks]
        repeats = 1
        if op.operation.name == "scf.for":
            trips = constant_trips(op)
            if trips is None:
                return None
            total += trips
            repeats = trips
        elif op.operation.name in ("scf.while", "func.call"):
            return None
        for count in inner:
            if count is None:
                return None
            total += repeats * count
    return total


def _report(function: ir.Operation, block: ir.Block) -> None:
    i32 = ir.IntegerType.get_signless(32)
    location = function.location
    if SCALARS in function.attributes:
        buffer = block.arguments[len(block.arguments) - 1]
        place = buffer.type.shape[0]
        buffer.set_type(ir.MemRefType.get([place + len(REPORT)], i32))
    else:
        place = 0
        buffer = block.add_argument(ir.MemRefType.get([len(REPORT)], i32), location)
        function.attributes[SCALARS] = ir.UnitAttr.get()
    types = [argument.type for argument in block.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    end = list(block.operations)[-1].operation
    with ir.InsertionPoint(end), location:
        zero, one = emit_constant(0, i32), emit_constant(1, i32)
        trips = memref.LoadOp(buffer, [index(place)]).result
        loop = scf.ForOp(zero, trips, one, [zero])
        with ir.InsertionPoint(loop.body):
            scf.YieldOp([arith.AddIOp(loop.inner_iter_args[0], one).result])
        ended = arith.CmpIOp(arith.CmpIPredicate.ne, loop.results[0], trips).result
        with ir.InsertionPoint(scf.IfOp(ended).then_block):
            memref.StoreOp(one, buffer, [index(place + 1)])
            scf.YieldOp([])
