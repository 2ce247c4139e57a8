"""`tir.call_extern`: a C function called from a loop nest."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Bool, Str
from mirlo.dialects.core.op import operands, results
from mirlo.dialects.tir.base import TirOp


class CallExtern(TirOp, name="call_extern"):
    """Call of the C function `function` with scalars and buffers (passed as pointers to their first element)."""

    PURE = False
    args = operands()
    outputs = results()
    function = Str()
    pure = Bool(False)
