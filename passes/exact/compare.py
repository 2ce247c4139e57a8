"""Comparison of a kernel with its definition: both run on the same random residues, and results are equal or not.

Buffers and scratch memory hold other residues for each of the two: what is read before it is written is a difference.
In every second round, parallel loops run backwards, and masks hold minus infinity. Kernels with maxima run in as many
rounds as their operands need to be the greatest one in turn. Kernels with exponentials run once on large 64-bit floats:
residues do not overflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import symbols_of
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.passes.exact import (  # noqa: F401  (importing registers meanings)
    translate_control,
    translate_instructions,
    translate_launches,
)
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.common_functions import calls_in
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.function_calls import FunctionCalls
from mirlo.passes.exact.ir_text import TABLE_WORDS, ModuleText
from mirlo.passes.exact.kernel_definition import KernelDefinition, RoundSettings, run_function
from mirlo.passes.exact.memory import FORM, Array, GuardedBuffer, RandomMemory, number_of
from mirlo.passes.exact.native import ExactFunction, compile_function
from mirlo.passes.exact.operations import OperationList
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.scheduled import translate_scheduled
from mirlo.passes.exact.shadows import FAULT, fault_text
from mirlo.passes.exact.sizes import SizeSearch
from mirlo.passes.exact.valid_sizes import Facts, related
from mirlo.passes.exact.verdict import (
    COMPARED,
    DIFFERENT,
    EQUAL,
    NOT_NEEDED,
    OUTSIDE,
    SKIPPED,
    KernelVerdict,
    RangeRound,
    WrongElements,
)

ROUNDS = 2
MORE_ROUNDS = 6
"""Rounds beside those, where the two forms compare elements with different constants.

Up to a fifth of the values are beyond both constants in a round: two rounds may miss a single wrong element.
"""
LARGE = 1000.0
"""The scale of inputs in the round of large numbers: exponentials overflow where a maximum is not subtracted."""
RANGE_TOLERANCE = 1e-6
"""The most difference in the round of large numbers, of the greatest element: results are wrong by far, or right."""


class KernelPair:
    """A definition, and a scheduled form that is compared with it."""

    def __init__(self, definition: KernelDefinition, scheduled: ir.Operation, calls: Iterable[Facts] = ()):
        """Make a pair; `calls` has for each call the dims that its caller checks are not negative."""
        self.definition, self.scheduled = definition, scheduled
        self._sites: list[str] = []
        """What faults of synchronization are about."""
        self._symbols = self._find_symbols()
        self.calls = list(dict.fromkeys(tuple(related(self._symbols, facts)) for facts in calls))
        """Of these dims, those about the sizes of the kernel, and about sizes that they relate to those."""

    @cached_property
    def _operations(self) -> OperationList:
        return OperationList(self.definition.operation, self.scheduled)

    def _function_calls(self) -> FunctionCalls | None:
        """Return where the scheduled form computes the function that both forms have."""
        function = self.definition.common_function
        return None if function is None else calls_in(function, self.scheduled)

    def verify(
        self, rounds: int = ROUNDS, has_exact_casts: bool = False, sizes: Sequence[Mapping[str, int]] = ()
    ) -> KernelVerdict:
        """Compare the two forms; return the verdict.

        `sizes` are those of symbols; by default sizes are added until none has a new case.
        """
        try:
            calls = self._function_calls()
            verdict = self._verify(rounds, has_exact_casts, sizes, calls)
            if verdict.status == DIFFERENT and calls is not None:
                # functions of other values may have equal results, as those of x and -x
                verdict = self._verify(rounds, has_exact_casts, sizes)
            return verdict
        except OutsideError as error:
            return KernelVerdict(self.definition.name, OUTSIDE, str(error))

    def _verify(
        self, rounds: int, has_exact_casts: bool, sizes: Sequence[Mapping[str, int]], calls: FunctionCalls | None = None
    ) -> KernelVerdict:
        """Compare the two forms; a random function stands for the one that both have, where `calls` says."""
        operations, has_function = self._operations, calls is not None
        arithmetic = FieldArithmetic(
            operations.has_exponentials and not has_function, operations.has_infinities, has_exact_casts,
            has_common_functions=has_function, scaled=operations.scaled_constants(),
        )  # fmt: skip
        symbols = self._symbols
        places: list[str] | None = [] if symbols else None
        scheduled = self.compile_scheduled(arithmetic, places, calls)
        search = SizeSearch(
            symbols, self.definition.parameters, [dict(each) for each in sizes], places or (),
            [[*facts, *self.definition.conditions()] for facts in self.calls or [()]],
            self.definition.points_at,
        )  # fmt: skip
        is_easy = rounds > 1 and not symbols  # one round is one of all kinds of faults
        compared = tuple(operations.compared_constants())
        if rounds > 1 and not operations.compare_alike():
            rounds += MORE_ROUNDS
        settings = RoundSettings(0, compared=compared, has_easy_sums=is_easy)
        for count, chosen in enumerate(search):
            settings = replace(settings, sizes=tuple(chosen.items()))
            least, first = (rounds, 0) if count == 0 else (1, count)
            needed, _ = self.definition.rounds(chosen, least)
            for number in range(first, first + needed):
                settings = replace(settings, number=number)
                verdict = self._round(arithmetic, scheduled, settings, search)
                if verdict is not None:
                    return verdict
        final = dict(settings.sizes)
        ranges = RangeRound(NOT_NEEDED) if has_function else self._range_round(settings)
        if isinstance(ranges, KernelVerdict):
            return ranges
        total, share = self.definition.rounds(final, rounds)
        return KernelVerdict(
            self.definition.name, EQUAL, rounds=total, bits=self.definition.proven_bits(rounds, final),
            sizes=tuple(search.compared), unreached=tuple(search.unreached), extremes=share, ranges=ranges,
        )  # fmt: skip

    def _find_symbols(self) -> list[str]:
        dims = [*self.definition.dims(), *symbols_of_function(self.scheduled.opview)]
        return list(dict.fromkeys(name for dim in dims for name in sorted(symbols_of(dim))))

    def compile_scheduled(
        self, arithmetic: Arithmetic, places: list[str] | None = None, calls: FunctionCalls | None = None
    ) -> ExactFunction:
        module = ModuleText()
        self._sites.clear()
        arguments = translate_scheduled(
            self.scheduled, self.definition.parameters, arithmetic, module, "scheduled", places, self._sites,
            calls,
        )  # fmt: skip
        return compile_function(module, "scheduled", arguments)

    def _round(
        self, arithmetic: FieldArithmetic, scheduled: ExactFunction, settings: RoundSettings, search: SizeSearch
    ) -> KernelVerdict | None:
        """Run the scheduled form; return a verdict if its results differ from those of the definition."""
        expected = self.definition.results(arithmetic, settings)
        before = [each.checksum() for each in expected.inputs]
        memory = RandomMemory(arithmetic, FORM + settings.number)
        table = np.concatenate([expected.table, np.zeros(3 * len(search.places), np.int64)])
        sizes = dict(settings.sizes)
        actual, is_intact = run_function(scheduled, memory, expected.inputs, sizes, table, settings.is_odd)
        search.note(table[TABLE_WORDS:])
        is_changed = before != [each.checksum() for each in expected.inputs]
        if is_changed:
            self.definition.forget_results()  # other candidates are compared on the inputs, too
        if not is_intact:
            return self._different("it writes outside of a buffer", settings)
        if is_changed:
            return self._different("it writes an input", settings)
        if table[FAULT]:
            return self._different(fault_text(int(table[FAULT]), self._sites), settings)
        if expected.are_equal(actual):
            return None
        pairs = enumerate(zip(expected.outputs, actual, strict=True))
        wrong = ((position, left.planes[0] != right.planes[0]) for position, (left, right) in pairs)
        return next(self._wrong(position, elements, settings) for position, elements in wrong if elements.any())

    def _range_round(self, settings: RoundSettings) -> RangeRound | KernelVerdict:
        """Run both forms on large 64-bit floats, where exponentials overflow unless a maximum is subtracted.

        Return the verdict if results differ.
        """
        if not (self._operations.has_exponentials and self._operations.has_comparisons):
            return RangeRound(NOT_NEEDED)
        arithmetic = DoubleArithmetic()
        settings = replace(settings, number=0, scale=LARGE)
        try:
            expected = self.definition.results(arithmetic, settings)
            scheduled = self.compile_scheduled(arithmetic)
        except OutsideError as error:
            return RangeRound(SKIPPED, str(error))
        memory = RandomMemory(arithmetic, FORM)
        actual, _ = run_function(scheduled, memory, expected.inputs, dict(settings.sizes), expected.table)
        for position, (left, right) in enumerate(zip(expected.outputs, actual, strict=True)):
            wrong = _out_of_range(left, right)
            if wrong.any():
                verdict = self._wrong(position, wrong, settings, "of large numbers, ")
                return replace(verdict, ranges=RangeRound(COMPARED))
        return RangeRound(COMPARED)

    def _wrong(self, position: int, wrong: Array, settings: RoundSettings, what: str = "") -> KernelVerdict:
        _, dims = self.definition.parameters[len(self.definition.inputs) + position]
        shape = [number_of(dim, dict(settings.sizes)) for dim in dims]
        places = np.flatnonzero(wrong)
        first = tuple(map(int, np.unravel_index(int(places[0]), shape))) if shape else ()
        elements = WrongElements(position, first, len(places), wrong.size)
        return self._different(f"{what}{elements}", settings, elements)

    def _different(self, why: str, settings: RoundSettings, wrong: WrongElements | None = None) -> KernelVerdict:
        at = ", ".join(f"{name} = {size}" for name, size in settings.sizes)
        why = f"{why}, where {at}" if at else why
        number = settings.number
        return KernelVerdict(
            self.definition.name, DIFFERENT, why, rounds=number + 1, wrong=wrong, seed=number,
            sizes=(dict(settings.sizes),) if at else (),
        )  # fmt: skip


def _out_of_range(expected: GuardedBuffer, actual: GuardedBuffer) -> Array:
    """Return the first element that is not near the finite one of the definition."""
    left, right = expected.planes[0], actual.planes[0]
    if left.dtype != np.float64:
        return np.asarray(left != right)
    finite = np.isfinite(left)
    scale = float(np.abs(left[finite]).max(initial=1.0))
    with np.errstate(all="ignore"):
        return np.asarray(finite & ~(np.abs(left - right) <= RANGE_TOLERANCE * scale))
