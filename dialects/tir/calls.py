"""`tir.call_extern`: calls of C functions from a loop nest."""

from __future__ import annotations

import re

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import Bool, Str
from mirlo.dialects.core.op import OpError, operands, results
from mirlo.dialects.tir.base import TirOp

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
