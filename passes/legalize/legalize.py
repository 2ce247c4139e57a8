"""The pass `legalize`: from relax operators to calls of prim functions, by rules, through dialect conversion."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from mirlo.dialects.bindings import ir, rewrite
from mirlo.dialects.context import EXTRA_DIALECTS
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.passes.legalize.builder import LegalizeBuilder, PrimFunctions
from mirlo.passes.locations import describe
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rules import LEGALIZE, Attempt, Decline, Rule, RuleError, decline
from mirlo.passes.targets import chain

LEGAL = frozenset(
    {
        "relax.reshape",
        "relax.constant",
        "relax.call_tir",
        "relax.call_dps_packed",
        "relax.call_packed",
        "relax.call_external",
    }
)
"""Operators that stay: they are the bridge to the level below."""

MAX_ROUNDS = 8
"""Rules may produce operators that need rules in turn; this many levels deep is more than any does."""


@cache
def load_default_rules() -> None:
    """Import the modules that register the default rules."""
    package = importlib.import_module("mirlo.passes.legalize.rules")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


@dataclass(frozen=True)
class LegalizationRecord:
    """What became of one operator: the rule that won, and those that declined before it."""

    operator: str
    location: str
    rule: Rule | None
    attempts: tuple[Attempt, ...]


@register_pass
@dataclass(frozen=True)
class Legalize(Pass):
    """Turn relax operators into calls of tir prim functions.

    Rules are tried along the target chain, within a target by priority; one that declines says why and the next is
    tried. What no rule takes is an error that lists every rule with its reason.
    """

    name = "legalize"
    target: str = option("llvm", "target whose rules come first")
    skip: tuple[str, ...] = option((), "operators to leave alone")
    partial: bool = option(False, "leave operators that no rule takes, instead of failing")

    def run(self, op: Any, session: Any) -> None:
        load_default_rules()
        targets = chain(self.target)
        custom = session.options.get("legalize", {})
        conversion = _Conversion(op, targets, custom, frozenset(self.skip) | LEGAL)
        for _ in range(MAX_ROUNDS):
            if not conversion.run():
                break
        session.notes.extend(conversion.records)
        if not self.partial:
            conversion.gate()


class _Conversion:
    """Rounds of dialect conversion over one module, until nothing is left to convert or nothing changes."""

    def __init__(
        self, module: Any, targets: tuple[str, ...], custom: dict[str, Callable[..., Any]], legal: frozenset[str]
    ):
        self.module = module
        self.targets = targets
        self.custom = custom
        self.legal = legal
        self.prims = PrimFunctions(module)
        self.records: list[LegalizationRecord] = []
        self.attempts: dict[str, list[Attempt]] = {}
        self.failure: Exception | None = None

    def run(self) -> bool:
        """One round; whether anything was converted."""
        names = {op.name for op in self.pending()}
        if not names:
            return False
        converter = rewrite.TypeConverter()
        converter.add_conversion(_same_type)
        patterns = rewrite.RewritePatternSet()
        for name in sorted(names):
            rules = LEGALIZE.candidates(name, self.targets, self.custom)
            for i, rule in enumerate(rules):
                pattern = self._pattern(rule, i == len(rules) - 1)
                patterns.add_conversion(name, pattern, converter, benefit=len(rules) - i)
        before = len(self.records)
        conversion_target = rewrite.ConversionTarget()
        try:
            rewrite.apply_partial_conversion(self.module, conversion_target, patterns.freeze())
        except (RuleError, OpError, PassError):
            raise
        except ir.MLIRError as error:
            raise PassError(f"legalization failed: {error}") from error
        return len(self.records) > before

    def pending(self) -> list[Any]:
        """Operators that are not legal yet, outside prim functions."""
        found: list[Any] = []
        prefixes = ("relax.", *(f"{dialect.namespace}." for dialect in EXTRA_DIALECTS))

        def visit(op: Any) -> Any:
            if op.name.startswith(prefixes) and op.name not in self.legal:
                found.append(op)
            if op.name == "func.func" and "tir.prim_func" in op.attributes:
                return ir.WalkResult.SKIP
            return ir.WalkResult.ADVANCE

        self.module.walk(visit, ir.WalkOrder.PRE_ORDER)
        return found

    def _pattern(self, rule: Rule, is_last: bool) -> Callable[..., Any]:
        def convert(op: Any, adaptor: Any, converter: Any, rewriter: Any) -> Any:
            place = _place(op)
            refused = _refusal(op)
            key = (
                rule.place if rule.target == "custom" else id(rule.function),
                op.operation.name,
                _attributes_text(op),
            )
            outcome: Any = refused
            if refused is None:
                builder = LegalizeBuilder(op, list(adaptor.operands), rewriter.ip, self.prims, key)
                outcome = rule.function(op, builder)
            if outcome is None:
                raise RuleError(f"rule '{rule}' at {rule.place} returned nothing: return values or decline('why')")
            if isinstance(outcome, Decline):
                self.attempts.setdefault(place, []).append(Attempt(rule, outcome))
                return True
            values = list(outcome) if isinstance(outcome, (tuple, list)) else [outcome]
            _check(op, rule, values)
            self.records.append(LegalizationRecord(op.operation.name, place, rule, tuple(self.attempts.pop(place, ()))))
            rewriter.replace_op(op.operation, values)
            return None

        return convert

    def gate(self) -> None:
        """Nothing illegal survives: one error for all that is left, with each rule's reason."""
        left = self.pending()
        if not left:
            return
        lines = [f"{len(left)} operator(s) cannot be legalized for target '{self.targets[0]}':"]
        for op in left:
            lines.append(f"  {op.name}, {describe(op.location)}")
            tried = self.attempts.get(_place(op), [])
            lines += [f"    {attempt}" for attempt in tried]
            if not tried:
                lines.append(f"    no rule is registered for it on {' → '.join(self.targets)}")
        raise PassError("\n".join(lines), left[0].location)


def _same_type(mlir_type: Any) -> Any:
    return mlir_type


def _attributes_text(op: Any) -> str:
    attributes = op.operation.attributes
    return str(sorted((named.name, str(named.attr)) for named in (attributes[i] for i in range(len(attributes)))))


def _place(op: Any) -> str:
    return f"{op.operation.name}@{op.operation.location}"


def _refusal(op: Any) -> Decline | None:
    """What holds for every rule: shapes must be numbers."""
    for value in (*op.operation.operands, *op.operation.results):
        found = TensorType.from_mlir(value.type)
        if found is not None and not found.is_static:
            return decline("needs dims that are numbers: fix the symbolic ones when compiling", type=str(found))
    return None


def _check(op: Any, rule: Rule, values: list[Any]) -> None:
    """The values that a rule returned must fit the results that they replace."""
    results = list(op.operation.results)
    if len(values) != len(results):
        raise RuleError(f"rule '{rule}' at {rule.place} returned {len(values)} values for {len(results)} results")
    for i, (value, result) in enumerate(zip(values, results, strict=True)):
        if value.type != result.type:
            raise RuleError(
                f"rule '{rule}' at {rule.place} returned {value.type} for result #{i}, which is {result.type}"
            )
