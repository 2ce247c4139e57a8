"""Dialect conversion of a module in rounds: the rules of each operator are tried until one accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, rewrite
from mirlo.dialects.core.dims import UNKNOWN
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import walk
from mirlo.passes.apply_rules import RULE_WATCH, NoRule, RuleCall, apply_rules
from mirlo.passes.facts import is_external
from mirlo.passes.legalize.builder import LegalizeBuilder, PrimFunctions
from mirlo.passes.locations import describe, names_of
from mirlo.passes.node_keys import NODE
from mirlo.passes.registry import PassError
from mirlo.passes.rules import DEFAULT, LEGALIZE, Attempt, Decline, Given, Rule, RuleError, decline, preferring
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

Choose = Callable[[ir.OpView, Sequence[Rule]], "str | None"]
"""Returns the name of the requested rule for an operator among its rules; None keeps their order."""


@dataclass(frozen=True)
class LegalizationRecord:
    """The legalization of one operator: the accepted rule, and those that declined before it."""

    operator: str
    location: str
    """Location for messages: the name of the user's node, the position in a file."""
    names: tuple[str, ...]
    """Names of the user's nodes from which the operator was imported."""
    rule: Rule | None
    """None if no rule accepted."""
    attempts: tuple[Attempt, ...]
    chosen: str | None = None
    """The requested strategy, if any."""
    created: tuple[str, ...] = ()
    """The replacement: other operators, `@names` of prim functions."""


@dataclass(frozen=True)
class _DeclinedOperator:
    """An operator that every rule declined."""

    operation: ir.Operation
    attempts: tuple[Attempt, ...]


class Conversion:
    """Rounds of dialect conversion over one module, until nothing is left to convert or nothing changes.

    Rules may emit operators that have rules in turn: they are converted in the next round.
    """

    def __init__(
        self,
        module: ir.OpView,
        targets: tuple[str, ...],
        custom: Given,
        is_pending: Callable[[str], bool],
        choose: Choose | None = None,
        session: Session | None = None,
    ):
        self.module = module
        self.targets = targets
        self.custom = custom
        self.is_pending = is_pending
        self.choose = choose
        self.session = session
        """Where the comparison of rules is, if they are compared."""
        self.prims = PrimFunctions(module)
        self.records: list[LegalizationRecord] = []
        self.seen: set[str] = set()
        """Names of all operators that were candidates, and the keys of nodes whose rules were tried."""
        self._by_node = any(key.startswith(NODE) for key in custom)
        self._refused: list[_DeclinedOperator] = []
        self._given_away: set[ir.Operation] = set()
        """Operators in regions of code generators, which the conversion driver visits as well."""
        self._choices: dict[ir.Operation, str] = {}
        self._rules: dict[str, list[Rule]] = {}

    def run(self) -> bool:
        """Run one round; return whether anything was converted."""
        pending = self.pending()
        names = {op.name for op in pending}
        self.seen |= names
        # Operation handles are not valid after the round.
        self._refused.clear()
        self._choices = self._choose(pending)
        if not names:
            return False
        converter = rewrite.TypeConverter()
        converter.add_conversion(_same_type)
        patterns = rewrite.RewritePatternSet()
        for name in sorted(names):
            # One pattern tries all rules of an operator, so that it can record who declined.
            patterns.add_conversion(name, self._convert, converter)
        before = len(self.records)
        try:
            rewrite.apply_partial_conversion(self.module, rewrite.ConversionTarget(), patterns.freeze())
        except ir.MLIRError as error:
            raise PassError(f"legalization failed: {error}") from error
        return len(self.records) > before

    def pending(self) -> list[ir.Operation]:
        """Return operators that are not legal yet, outside prim functions and regions of code generators."""
        result: list[ir.Operation] = []
        given_away: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            name = op.name
            if self.is_pending(name):
                result.append(op)
            elif name == "func.func":
                if "tir.prim_func" in op.attributes:
                    return ir.WalkResult.SKIP
                if is_external(op):
                    given_away.append(op)
                    return ir.WalkResult.SKIP
            elif name == "builtin.module" and "relax.external" in op.attributes and op != self.module.operation:
                given_away.append(op)
                return ir.WalkResult.SKIP
            return ir.WalkResult.ADVANCE

        walk(self.module, visit, ir.WalkOrder.PRE_ORDER)
        self._given_away = {inner for op in given_away for inner in self._pending_in(op)}
        return result

    def _pending_in(self, op: ir.Operation) -> list[ir.Operation]:
        result: list[ir.Operation] = []

        def visit(inner: ir.Operation) -> ir.WalkResult:
            if self.is_pending(inner.name):
                result.append(inner)
            return ir.WalkResult.ADVANCE

        walk(op, visit, ir.WalkOrder.PRE_ORDER)
        return result

    def rules(self, name: str) -> list[Rule]:
        """Return the rules of an operator, in the order in which they are tried."""
        result = self._rules.get(name)
        if result is None:
            result = self._rules[name] = LEGALIZE.candidates(name, self.targets, self.custom)
        return result

    def _rules_of(self, op: ir.Operation) -> list[Rule]:
        """Return the rules of an operation: those for its node by name come first."""
        rules = self.rules(op.name)
        if not self._by_node:
            return rules
        keys = [f"{NODE}{name}" for name in names_of(op.location)]
        self.seen.update(keys)
        return [rule for key in keys for rule in LEGALIZE.candidates(key, (), self.custom)] + rules

    def finish(self) -> None:
        """Record the operators that no rule accepted."""
        self.records += [_record(left.operation, None, left.attempts) for left in self._refused]

    def gate(self) -> None:
        """Raise one error for all remaining operators, with each rule's reason."""
        left = self.pending()
        if not left:
            return
        reasons = {refused.operation: refused.attempts for refused in self._refused}
        lines = [f"{len(left)} operator(s) cannot be legalized for target '{self.targets[0]}':"]
        for op in left:
            lines.append(f"  {op.name}, {describe(op.location)}")
            tried = reasons.get(op, ())
            lines += [f"    {attempt}" for attempt in tried]
            if not tried:
                lines.append(f"    {self._why_untried(op.name)}")
        raise PassError("\n".join(lines), left[0].location)

    def _why_untried(self, name: str) -> str:
        if not self.rules(name):
            return (
                f"no rule is registered for it on {' → '.join(self.targets)}: write one, "
                f'@legalize("{name}", target="{self.targets[0]}") in a file for --plugin, or rewrite the operator '
                "before; `mirlo new operator` starts one"
            )
        return "its rules make operators that need rules in turn, without end"

    def _choose(self, pending: Sequence[ir.Operation]) -> dict[ir.Operation, str]:
        """Return the requested strategies by operator; operators with a single rule are skipped."""
        if self.choose is None:
            return {}
        choices = {}
        for op in pending:
            rules = self.rules(op.name)
            name = self.choose(op.opview, rules) if rules else None
            if name is not None:
                choices[op] = name
        return choices

    def _convert(
        self,
        op: ir.OpView,
        adaptor: ir.OpAdaptor,
        converter: rewrite.TypeConverter,
        rewriter: rewrite.ConversionPatternRewriter,
    ) -> bool | None:
        """Convert one operator (the pattern of all operators); True keeps it unchanged."""
        operation = op.operation
        if operation in self._given_away:
            return True
        try:
            return self._try_rules(op, operation, list(adaptor.operands), rewriter)
        except RuleError as error:
            raise PassError(f"{operation.name}, {describe(operation.location)}: {error}", operation.location) from error

    def _try_rules(
        self,
        op: ir.OpView,
        operation: ir.Operation,
        operands: list[ir.Value],
        rewriter: rewrite.ConversionPatternRewriter,
    ) -> bool | None:
        rules = self._rules_of(operation)
        refusal = _refusal(operation)
        if refusal is not None:
            self._refused.append(_DeclinedOperator(operation, tuple(Attempt(rule, refusal) for rule in rules)))
            return True
        chosen = self._choices.get(operation)

        def call_of(rule: Rule) -> RuleCall:
            builder = LegalizeBuilder(op, operands, rewriter.ip, self.prims, _key(rule, operation), rule)
            return RuleCall((op, builder), builder.created)

        tried = rules if chosen is None else preferring(rules, chosen)
        applied = apply_rules(operation, tried, call_of, rewriter.ip)
        if isinstance(applied, NoRule):
            self._refused.append(_DeclinedOperator(operation, applied.attempts))
            return True
        self.records.append(_record(operation, applied.rule, applied.attempts, chosen, applied.created))
        watch = self.session.options.get(RULE_WATCH) if self.session is not None else None
        if watch is not None and self.session is not None and applied.rule.target != DEFAULT:
            watch.see_operator(operation, operands, applied, self.module, self.session)
        rewriter.replace_op(operation, applied.values)
        return None


def _same_type(mlir_type: ir.Type) -> ir.Type:
    return mlir_type


def _record(
    op: ir.Operation,
    rule: Rule | None,
    attempts: tuple[Attempt, ...],
    chosen: str | None = None,
    created: tuple[str, ...] = (),
) -> LegalizationRecord:
    location = op.location
    return LegalizationRecord(op.name, describe(location), tuple(names_of(location)), rule, attempts, chosen, created)


def _key(rule: Rule, op: ir.Operation) -> tuple[int | str | tuple[str | tuple[str, str], ...], ...]:
    """Return a key: for equal operands, operators with equal keys have the same prim function."""
    attributes = op.attributes
    named = (attributes[i] for i in range(len(attributes)))
    # Includes what a rule reads without passing it to the function, such as the dims of an operand.
    types = tuple(str(value.type) for value in (*op.operands, *op.results))
    return id(rule.function), op.name, tuple((each.name, str(each.attr)) for each in named), types


def _refusal(op: ir.Operation) -> Decline | None:
    """Decline for all rules if the run-time value of a dim is unknown."""
    for value in (*op.operands, *op.results):
        tensor_type = TensorType.from_mlir(value.type)
        if tensor_type is not None and any(dim is UNKNOWN for dim in tensor_type.shape):
            return decline("needs dims that are numbers or have a name: declare the shape", type=str(tensor_type))
    return None
