"""The pass `verify-bounds`: proves that kernels access memory within their buffers only."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.buffers import workspace_of
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.bounds.calls import Calls, find_calls
from mirlo.passes.bounds.kernel import KernelAccesses, KernelBounds, UnprovenAccess
from mirlo.passes.bounds.prover import MAX_KERNEL_STEPS
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.session import Session
from mirlo.runtime.nearest import nearest

FAILURES = ("never", "data", "all")
"""Which accesses that are not proven end the compilation."""


@dataclass(frozen=True)
class BoundsRecord:
    """The accesses of one kernel: how many there are, and those that are not proven to be within their buffers."""

    function: str
    nodes: tuple[str, ...]
    accesses: int
    by_data: int = 0
    """Accesses whose position depends on data."""
    unproven: tuple[UnprovenAccess, ...] = ()


@register_pass
@dataclass(frozen=True)
class VerifyBounds(Pass):
    """Prove that all accesses of kernels are within their buffers.

    For each load and store of a prim function in buffer form, the range of its indices follows from bounds of loops,
    guards, masks and clamps; the sizes of parameters are those of its calls, whose dims the caller checks. An access
    by a value that comes from data, which is neither clamped nor guarded, is an error. Others that are not proven are
    recorded with the reason, and are errors too with `fail=all`.
    """

    name = "verify-bounds"
    contained = True
    trusted = True
    fail: str = option("data", "fail for accesses that are not proven: never, data (by values from data), all")
    steps: int = option(0, "most steps of the proofs for all kernels; 0 for as many as each kernel may take")
    remarks: bool = option(False, "report each access that is not proven as a remark")

    def __post_init__(self) -> None:
        if self.fail not in FAILURES:
            raise ValueError(
                f"expected one of {', '.join(FAILURES)}, found '{self.fail}'{nearest(self.fail, FAILURES)}"
            )

    def run(self, op: ir.OpView, session: Session) -> None:
        calls = find_calls(op.operation)
        left = self.steps or sys.maxsize
        for member in op.operation.regions[0].blocks[0].operations:
            function = member.operation
            if function.name != "func.func" or not is_prim_func(function) or not _is_scheduled(function):
                continue
            record, taken = verify_kernel(function, calls.get(symbol_name(function)), left, self.only_data)
            left -= taken
            session.notes.append(record)
            for access in record.unproven:
                self._report(record, access, session)

    @property
    def only_data(self) -> bool:
        """Return whether proofs of accesses that data do not decide about have no effect."""
        return self.fail == "data" and not self.remarks

    def _report(self, record: BoundsRecord, access: UnprovenAccess, session: Session) -> None:
        of_nodes = f" ({', '.join(record.nodes)})" if record.nodes else ""
        text = f"kernel '@{record.function}'{of_nodes}: {access}"
        if self.fail == "all" or (self.fail == "data" and access.from_data):
            raise PassError(text, access.location)
        if self.remarks:
            session.remark(text, access.location)


def verify_kernel(
    function: ir.Operation, calls: Calls | None = None, steps: int = MAX_KERNEL_STEPS, only_data: bool = False
) -> tuple[BoundsRecord, int]:
    """Return the record of a prim function in buffer form that is called so, and the steps that the proofs took.

    With `only_data`, accesses that depend on loops and sizes only are counted, and not proven.
    """
    calls = calls or Calls()
    found = KernelAccesses(function)
    unproven: dict[UnprovenAccess, None] = {}
    left = min(steps, MAX_KERNEL_STEPS)
    if found.by_data or not only_data:
        symbols = _symbol_parameters(function)
        for known in calls.known_operands(workspace_of(function.opview)):
            kernel = KernelBounds(function, found, symbols, known, left, only_data)
            kernel.verify()
            left = max(kernel.prover.budget, 0)
            unproven.update(dict.fromkeys(kernel.unproven))
    record = BoundsRecord(
        symbol_name(function),
        tuple(dict.fromkeys(calls.nodes)),
        found.count,
        len(found.by_data),
        tuple(unproven),
    )
    return record, min(steps, MAX_KERNEL_STEPS) - left


def _is_scheduled(function: ir.Operation) -> bool:
    """Return whether a prim function has a body in buffer form."""
    if not function.regions[0].blocks:
        return False
    kinds = ir.TypeAttr(function.attributes["function_type"]).value.inputs
    return not any(isinstance(kind, ir.RankedTensorType) for kind in kinds)


def _symbol_parameters(function: ir.Operation) -> dict[int, Dim]:
    """Return the dims that a kernel takes as its last parameters, by position."""
    symbols = symbols_of_function(function.opview)
    first = len(function.regions[0].blocks[0].arguments) - len(symbols)
    return {first + i: symbol for i, symbol in enumerate(symbols)}
