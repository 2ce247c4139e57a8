"""The pass `verify-schedule`: compares each kernel with its definition, exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import erase_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.exact.blame import first_wrong_primitive
from mirlo.passes.exact.calls import CalledKernel, called_kernels
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.keep_definitions import definitions_of, functions_by_name
from mirlo.passes.exact.memory import forget_inputs
from mirlo.passes.exact.operator_definition import definition_of
from mirlo.passes.exact.reused_memory import release_memory
from mirlo.passes.exact.sizes import parse_sizes
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE, KernelVerdict
from mirlo.passes.exact.verdict_cache import VERDICTS, VerdictCache
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

FAILURES = ("never", "different", "outside")
"""Which verdicts end the compilation."""
CASTS = ("identity", "exact")
"""What casts to narrower floats are: nothing, or rounding that must be in the same places."""


@register_pass
@dataclass(frozen=True)
class VerifySchedule(Pass):
    """Compare each kernel with its definition over finite fields, at its real sizes.

    It runs between `lower-loops` and `lower-intrinsics`, on the definitions that `keep-definitions` kept before
    `schedule`. Results are equal in each element, or the kernel computes something else than its definition, which is
    an error.
    """

    name = "verify-schedule"
    contained = True
    trusted = True
    rounds: int = option(2, "how often each kernel runs, on other numbers")
    casts: str = option("identity", "casts to narrower floats: identity, or exact, where both forms must round alike")
    fail: str = option("different", "fail for kernels that are: different, outside (not compared, too), or never")
    kernel: str = option("", "the only kernel to compare (default: all)")
    sizes: str = option("", "sizes of symbols, as in 'batch=1,2;seq=1..64' (default: until loops have no new cases)")
    steps: str = option(
        "schedule,lower-loops",
        "the passes between both forms, with which the primitives of a wrong kernel are replayed",
    )
    remarks: bool = option(False, "report the verdict of each kernel as a remark")

    def __post_init__(self) -> None:
        for value, values in ((self.fail, FAILURES), (self.casts, CASTS)):
            if value not in values:
                raise ValueError(f"expected one of {', '.join(values)}, found '{value}'{nearest(value, values)}")
        parse_sizes(self.sizes)

    def run(self, op: ir.OpView, session: Session) -> None:
        kept = definitions_of(op)
        if kept is None:
            raise PassError("there are no definitions to compare with: run 'keep-definitions' before 'schedule'")
        definitions = functions_by_name(kept)
        records = {note.function: note for note in session.notes if isinstance(note, ScheduleRecord)}
        called = called_kernels(op.operation, session)
        verdicts = VerdictCache(session.options.get(VERDICTS), f"{self.rounds} {self.casts} {self.sizes}")
        for function in prim_functions(op):
            name = symbol_name(function)
            if not self.kernel or name == self.kernel:
                kernel = called.get(name, CalledKernel())
                verdict = self._verdict(name, function.operation, definitions, kernel, verdicts)
                verdict = replace(verdict, nodes=tuple(kernel.nodes))
                if name in records:
                    verdict = self._with_schedule(verdict, records[name], definitions, kernel)
                session.notes.append(verdict)
                self._report(verdict, function.location, session)
        erase_op(kept)
        forget_inputs()
        release_memory()

    def _verdict(
        self, name: str, scheduled: ir.Operation, definitions: dict[str, ir.Operation], kernel: CalledKernel,
        verdicts: VerdictCache,
    ) -> KernelVerdict:  # fmt: skip
        if name not in definitions:
            return KernelVerdict(name, OUTSIDE, "it is written as loops, and no operator is its definition")
        pair = KernelPair(definition_of(definitions[name], kernel.constants), scheduled, kernel.facts)
        key = verdicts.key(pair)
        known = verdicts.find(pair, key)
        if known is not None:
            return known
        verdict = pair.verify(self.rounds, self.casts == "exact", parse_sizes(self.sizes))
        verdicts.keep(verdict, key)
        return verdict

    def _with_schedule(
        self, verdict: KernelVerdict, record: ScheduleRecord, definitions: dict[str, ir.Operation],
        kernel: CalledKernel,
    ) -> KernelVerdict:  # fmt: skip
        """Return a verdict with the rule that made the kernel, and the primitive that made it wrong."""
        verdict = replace(verdict, rule=record.rule.name, choices=dict(record.choices))
        if verdict.status != DIFFERENT:
            return verdict
        definition = definitions[verdict.function]
        return replace(verdict, primitive=first_wrong_primitive(definition, kernel, record.trace, self.steps))

    def _report(self, verdict: KernelVerdict, location: ir.Location, session: Session) -> None:
        is_failure = verdict.status == DIFFERENT or (verdict.status == OUTSIDE and self.fail == "outside")
        if is_failure and self.fail != "never":
            raise PassError(str(verdict), location)
        if self.remarks or (verdict.status != EQUAL and self.fail == "never"):
            session.remark(str(verdict), location)
