"""`tir.for`: a loop with a kind; `tir.reduce_threads`: a reduction over threads that loops are bound to."""

from __future__ import annotations

import re

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import Bool, Str, Strs
from mirlo.dialects.core.op import OpError, operand, operands, results
from mirlo.dialects.tir.block import TirOp, terminator

KINDS = ("serial", "parallel", "vectorized", "unrolled", "bound")


class For(TirOp, name="for"):
    """`for i in lower .. upper` with a kind; a bound loop names its hardware axis in `thread`.

    Threads do not synchronize after a loop that is `nowait`, as in OpenMP.
    """

    REGIONS = 1
    PURE = False
    lower = operand()
    upper = operand()
    kind = Str("serial", choices=KINDS)
    thread = Str(None)
    nowait = Bool(False)

    def check(self) -> None:
        for name, value in (("lower", self.lower), ("upper", self.upper)):
            if str(value.type) != "index":
                raise OpError(f"operand '{name}' must be an index, got {value.type}")
        if (self.kind == "bound") != (self.thread is not None):
            raise OpError("a loop has 'thread', a hardware axis, exactly when its kind is 'bound'")
        blocks = self.operation.regions[0].blocks
        if len(blocks) != 1 or [str(a.type) for a in blocks[0].arguments] != ["index"]:
            raise OpError("needs a body of one block that takes one index")
        last = terminator(blocks[0])
        if last is None or last.name != "tir.yield" or len(last.operands):
            raise OpError("the body must end with a tir.yield of nothing")


class ReduceThreads(TirOp, name="reduce_threads"):
    """The values of the threads of a block that differ only in these axes, reduced; each of them gets the results.

    The body combines two lists of values. All threads of a block execute the operation.
    """

    REGIONS = 1
    PURE = False
    values = operands()
    outputs = results()
    threads = Strs()

    def check(self) -> None:
        op = self.operation
        types = [value.type for value in op.operands]
        if not types or not self.threads:
            raise OpError("needs a value and a hardware axis")
        if [value.type for value in op.results] != types:
            raise OpError(f"the results must have the types of the values, {', '.join(map(str, types))}")
        blocks = op.regions[0].blocks
        if len(blocks) != 1 or [argument.type for argument in blocks[0].arguments] != [*types, *types]:
            raise OpError("needs a body of one block that takes the values twice")
        last = terminator(blocks[0])
        if last is None or last.name != "tir.yield" or [value.type for value in last.operands] != types:
            raise OpError("the body must end with a tir.yield of combined values")


_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CallExtern(TirOp, name="call_extern"):
    """Call the C function `function` with scalars and buffers (passed as pointers to their first element)."""

    PURE = False
    args = operands()
    outputs = results()
    function = Str()
    pure = Bool(False)

    def check(self) -> None:
        if not _C_NAME.fullmatch(self.function):
            raise OpError(f"attribute 'function' must be the name of a C function, got '{self.function}'")
        for i, value in enumerate(self.operation.operands):
            if not (_is_scalar(value.type) or isinstance(value.type, ir.MemRefType) or _is_pointer(value.type)):
                raise OpError(f"operand #{i} must be a scalar or a buffer (memref), got {value.type}")
        returned = [value.type for value in self.operation.results]
        if len(returned) > 1 or not all(_is_scalar(t) or _is_pointer(t) for t in returned):
            listed = ", ".join(map(str, returned))
            raise OpError(f"a C function returns one scalar or nothing, got ({listed})")


def _is_scalar(mlir_type: ir.Type) -> bool:
    return isinstance(mlir_type, (ir.FloatType, ir.IntegerType, ir.IndexType))


def _is_pointer(mlir_type: ir.Type) -> bool:
    return str(mlir_type) == "!llvm.ptr"
