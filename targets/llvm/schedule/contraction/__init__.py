"""Schedule of contractions: matrix products and convolutions of every kind, in register tiles."""

from __future__ import annotations

from typing import Any

from mirlo.passes.rules import Decline, schedule
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.targets.llvm.machine import find_machine
from mirlo.targets.llvm.schedule.contraction.analysis import analyze
from mirlo.targets.llvm.schedule.contraction.kernel import Kernel, summary
from mirlo.targets.llvm.schedule.contraction.plan import make_plan


@schedule("any", target="llvm", priority=100)
def contraction(kernel: Any, context: Any) -> Any:
    """Sums of products with the elementwise blocks that follow, in register tiles."""
    found = analyze(kernel.view)
    if isinstance(found, Decline):
        return found
    plan = make_plan(found, find_machine(context.options.get("machine")))
    if isinstance(plan, Decline):
        return plan
    function = BufferFunction(kernel.view)
    return function.build(Kernel(plan, function).emit, summary(plan))
