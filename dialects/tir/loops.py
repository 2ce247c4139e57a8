"""`tir.for`: a loop with a kind, for hand-written nests."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Str
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.tir.base import TirOp
from mirlo.dialects.tir.block import terminator

KINDS = ("serial", "parallel", "vectorized", "unrolled", "bound")


class For(TirOp, name="for"):
    """`for i in lower .. upper` with a kind; a bound loop names its hardware axis in `thread`."""

    REGIONS = 1
    PURE = False
    lower = operand()
    upper = operand()
    kind = Str("serial", choices=KINDS)
    thread = Str(None)

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
