"""Comparison of a model before and after each pass, up to its kernels: the whole graph on the same residues.

Small integers take the place of the weights, so that computations of passes on them in floats are exact.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.apply_rules import RULE_WATCH
from mirlo.passes.entry import find_entry
from mirlo.passes.exact.compare_rules import RuleComparison, RuleVerdict
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.graph_function import GraphModule, GraphRound, KeptResults, common_round
from mirlo.passes.exact.kernel_definition import KernelDefinition
from mirlo.passes.exact.memory import Array
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE
from mirlo.passes.graph.constants import INLINE_ELEMENTS
from mirlo.passes.pipeline import Pipeline
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

UNIT = 36 * 36
"""Weights are multiples of it: transforms of Winograd's algorithm divide by 36 on both sides."""
LARGEST = 4
SIZE = 3
"""The size of each symbol of a model of dynamic shapes, if none is requested and calls accept it."""


@dataclass(frozen=True)
class PassVerdict:
    """Whether a model computes the same after a pass as before."""

    step: str
    status: str
    """`EQUAL`, `DIFFERENT` or `OUTSIDE`."""
    why: str = ""
    seconds: float = 0.0
    """The processor time of computing the results after it."""
    part: int = 0
    """The number of the part of a model that is compiled in several, from 1 on; 0 for a whole model."""

    def __str__(self) -> str:
        what = {EQUAL: "keeps the results", DIFFERENT: "changes the results"}.get(self.status, "is not compared")
        where = f" of part {self.part}" if self.part else ""
        return f"pass '{self.step}'{where} {what}{f': {self.why}' if self.why else ''}"


@dataclass
class GraphVerdicts:
    """The verdicts of comparing a model pass by pass."""

    passes: list[PassVerdict] = field(default_factory=list)
    rules: list[RuleVerdict] = field(default_factory=list)
    first_seconds: float = 0.0
    """The processor time of computing the results of the model as it was imported."""

    def count(self, status: str) -> int:
        return sum(each.status == status for each in self.all)

    @property
    def all(self) -> list[PassVerdict | RuleVerdict]:
        """Return the verdicts of rules, then of passes."""
        return [*self.rules, *self.passes]


def compare_passes(
    modules: Sequence[ir.Module], session: Session, steps: Sequence[object], sizes: dict[str, int] | None = None
) -> GraphVerdicts:
    """Run passes on the modules of relax operators that a model is compiled in; compare each after each pass.

    A model without strings, sequences and optional values is one module.
    """
    session.params = with_exact_weights(session.params)
    watch = RuleComparison()
    session.options[RULE_WATCH] = watch
    verdicts = GraphVerdicts(rules=watch.verdicts)
    for number, module in enumerate(modules, 1):
        comparison = _GraphComparison(session, sizes or {})
        before, why = comparison.results(module)
        verdicts.first_seconds += comparison.seconds
        for step in steps:
            text, applied = str(module), len(watch.verdicts)
            Pipeline([step]).run(module, session)  # type: ignore[list-item]
            if str(module) == text:
                continue
            after, why_after = comparison.results(module)
            verdict = _verdict(str(step), before, after, why or why_after)
            rules = sorted({each.rule for each in watch.verdicts[applied:] if each.status == OUTSIDE})
            if verdict.status == DIFFERENT and rules:
                reason = f"{verdict.why}, and it applies rules that are not compared: {', '.join(rules)}"
                verdict = PassVerdict(verdict.step, OUTSIDE, reason)
            part = number if len(modules) > 1 else 0
            verdicts.passes.append(replace(verdict, seconds=comparison.seconds, part=part))
            before, why = after, why_after
    return verdicts


def _verdict(step: str, before: Sequence[Array], after: Sequence[Array], why: str) -> PassVerdict:
    if why:
        return PassVerdict(step, OUTSIDE, why)
    for position, (left, right) in enumerate(zip(before, after, strict=True)):
        wrong = int((left != right).sum()) if left.size == right.size else left.size
        if wrong:
            return PassVerdict(step, DIFFERENT, f"result {position} differs in {wrong} of {left.size} elements")
    return PassVerdict(step, EQUAL)


def with_exact_weights(params: ParameterStore) -> ParameterStore:
    """Return parameters of the same names and types, whose floats are small integers."""
    result, rng = ParameterStore(), np.random.default_rng(0)
    for name in params.names():
        array = params.get(name)
        wide = array.astype(np.float32) if array.dtype.kind not in "iub" else array
        if wide.dtype.kind != "f" or wide.size <= INLINE_ELEMENTS or not np.isfinite(wide).all():
            result.add(name, array)
            continue
        numbers = rng.integers(1, LARGEST + 1, wide.shape) * UNIT
        if wide.min(initial=0) < 0:
            numbers *= rng.choice([-1, 1], wide.shape)
        result.add(name, numbers.astype(array.dtype))
    return result


class _GraphComparison:
    """Runs a module's model on the same inputs at each stage."""

    def __init__(self, session: Session, sizes: dict[str, int]):
        self.session, self.sizes = session, sizes
        self.round: GraphRound | None = None
        self.definitions: dict[str, KernelDefinition] = {}
        self.kept = KeptResults()
        self.seconds = 0.0
        """The processor time of the last results."""

    def _first_round(self, graphs: GraphModule, name: str) -> GraphRound:
        """Return the round of all stages: with exponents, and infinities, as passes may add both."""
        sizes = graphs.sizes(name, {symbol: self.sizes.get(symbol, SIZE) for symbol in graphs.symbols(name)})
        arithmetic = FieldArithmetic(True, True, has_named_numbers=True)
        return replace(common_round(0, sizes, graphs), arithmetic=arithmetic)

    def results(self, module: ir.Module) -> tuple[list[Array], str]:
        """Return the residues of the results, or the reason why there are none."""
        start = time.process_time()
        try:
            copy = ir.Module.parse(module.operation.get_asm(assume_verified=True), module.context)
            self.kept.next_module()
            graphs = GraphModule(copy, self.session.params, self.definitions, self.kept)
            name = symbol_name(find_entry(copy))
            if self.round is None:
                self.round = self._first_round(graphs, name)
            inputs = self.round.inputs(graphs.function(name))
            return [each.planes[0] for each in graphs.run(name, self.round, inputs)], ""
        except OutsideError as error:
            return [], str(error)
        finally:
            self.seconds = time.process_time() - start


def first_wrong(verdicts: GraphVerdicts) -> PassVerdict | RuleVerdict | None:
    """Return the first rule that changes a value, else the first pass that changes results."""
    return next((each for each in verdicts.all if each.status == DIFFERENT), None)
