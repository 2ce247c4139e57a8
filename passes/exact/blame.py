"""The search for the primitive of a schedule that makes a kernel wrong: fewer primitives are replayed."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.exact.calls import CalledKernel
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.operator_definition import definition_of
from mirlo.passes.exact.verdict import DIFFERENT
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.primitives.trace import Trace
from mirlo.passes.schedule.schedule import GIVEN, SCHEDULES
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError


def first_wrong_primitive(definition: ir.Operation, kernel: CalledKernel, trace: Trace, steps: str) -> str:
    """Return the first primitive of a trace after which the kernel differs from its definition; empty if none does.

    `steps` are the passes that scheduled it, as text.
    """
    calls = list(trace)
    if not calls or not _differs(definition, kernel, Trace(calls), steps):
        return ""
    if _differs(definition, kernel, Trace(), steps):
        return "no primitive: the loops differ before the first one"
    low, high = 0, len(calls)  # equal after the first `low` primitives, or not known; different after `high`
    while high - low > 1:
        middle = (low + high) // 2
        if _differs(definition, kernel, Trace(calls[:middle]), steps):
            high = middle
        else:
            low = middle
    return f"primitive {high} of {len(calls)}, {calls[high - 1]}"


def _differs(definition: ir.Operation, kernel: CalledKernel, trace: Trace, steps: str) -> bool:
    """Return whether a kernel that these primitives schedule differs from its definition."""
    name = symbol_name(definition)
    module = ir.Module.create(definition.location)
    function = definition.clone(ip=ir.InsertionPoint(module.body))
    if GIVEN in function.attributes:  # all primitives, as passes before `schedule` read them
        del function.attributes[GIVEN]
    try:
        Pipeline(f"builtin.module({steps})").run(module, Session(options={SCHEDULES: {name: trace}}))
        (scheduled,) = prim_functions(module.operation)
    except (MirloError, ValueError):
        return False  # without the rest, these primitives schedule nothing
    pair = KernelPair(definition_of(definition, kernel.constants), scheduled.operation, kernel.facts)
    return pair.verify().status == DIFFERENT
