"""The pass `verify-bounds`: proves that kernels access memory within their buffers only."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.buffers import UNPROVEN, workspace_of
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.bounds.accesses import MAX_KERNEL_STEPS, UnprovenAccess
from mirlo.passes.bounds.calls import Calls, find_calls
from mirlo.passes.bounds.data import KernelAccesses
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.session import Session
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

GUARDED_STEPS = 400
"""The most steps of the proofs for a kernel whose accesses can be tested instead, a tenth of a second: most need 50."""
REMEDY = (
    "limit the index to the axis before the access, as in min(max(i, 0), n - 1), or make the access only where "
    "i >= 0 and i < n"
)
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
    guarded: tuple[UnprovenAccess, ...] = ()
    """Accesses that are tested at run time."""
    why_in_bounds: str = ""
    """Why those that are not proven are in bounds, as the rule that made the kernel declares."""


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
    steps: int = option(
        0, "most steps of the proofs of what loops and sizes decide about, for all kernels; 0: as many as each may take"
    )
    guard: bool = option(
        False, "test at run time what data decide about and is not proven; in functions of users, if it is clamped"
    )
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
            record, taken = verify_kernel(function, calls.get(symbol_name(function)), left, self.only_data, self.guard)
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
        if self.fail == "all" or (self.fail == "data" and access.from_data and not record.why_in_bounds):
            raise PassError(f"{text}; {REMEDY}" if access.from_data else text, access.location)
        if self.remarks:
            session.remark(text, access.location)


def verify_kernel(
    function: ir.Operation,
    calls: Calls | None = None,
    steps: int = MAX_KERNEL_STEPS,
    only_data: bool = False,
    guard: bool = False,
) -> tuple[BoundsRecord, int]:
    """Return the record of a prim function in buffer form that is called so, and the steps that the proofs took.

    Accesses by data are proven first, with steps of their own: `steps` are those for accesses that depend on loops and
    sizes only. With `only_data`, these are counted, and not proven. With `guard`, accesses by data which are clamped,
    but not proven, are tested at run time.
    """
    calls = calls or Calls()
    accesses = KernelAccesses(function)
    if not accesses.by_data and only_data:
        return _record(function, calls, accesses), 0
    # Imported here: most models have no access by data, and what proves them is a tenth of what passes import.
    from mirlo.passes.bounds.guards import emit_guards, needed_guards
    from mirlo.passes.bounds.kernel import KernelBounds

    kernels: list[KernelBounds] = []
    left_of_data = GUARDED_STEPS if guard else MAX_KERNEL_STEPS
    budget = left = min(steps, MAX_KERNEL_STEPS)
    symbols = _symbol_parameters(function)
    for known in calls.known_operands(workspace_of(function.opview)):
        kernel = KernelBounds(function, accesses, symbols, known)
        left_of_data = kernel.verify_by_data(left_of_data)
        if not only_data:
            left = kernel.verify_others(left)
        kernels.append(kernel)
    guards = [each for each in needed_guards(kernels) if each.can_be_emitted] if guard else []
    guarded = {each.op for each in guards}
    unproven = [access for kernel in kernels for access in kernel.unproven]
    record = _record(
        function,
        calls,
        accesses,
        [access for op, access in unproven if op not in guarded],
        [access for op, access in unproven if op in guarded],
    )
    # This erases operations: nothing that refers to them is used after it.
    emit_guards(function, guards, {str(dim): _parameter(function, position) for position, dim in symbols.items()})
    return record, budget - left


def _record(
    function: ir.Operation,
    calls: Calls,
    accesses: KernelAccesses,
    unproven: Iterable[UnprovenAccess] = (),
    guarded: Iterable[UnprovenAccess] = (),
) -> BoundsRecord:
    return BoundsRecord(
        symbol_name(function),
        tuple(dict.fromkeys(calls.nodes)),
        accesses.count,
        len(accesses.by_data),
        tuple(dict.fromkeys(unproven)),
        tuple(dict.fromkeys(guarded)),
        ir.StringAttr(function.attributes[UNPROVEN]).value if UNPROVEN in function.attributes else "",
    )


def _parameter(function: ir.Operation, position: int) -> ir.Value:
    value: ir.Value = function.regions[0].blocks[0].arguments[position]
    return value


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
