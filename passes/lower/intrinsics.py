"""The pass `lower-intrinsics`: lowers `tir.exp` and the like to upstream operations by the rules of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.installed import ModuleIndex
from mirlo.dialects.core.walk import find_named, walk
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.dialects.tir.view import RULES
from mirlo.passes.apply_rules import NoRule, RuleCall, apply_rules
from mirlo.passes.lower.calls import CALL, lower_found_calls
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rules import INTRINSIC, Attempt, Given, Rule, RuleError, functions_of
from mirlo.passes.targets import TargetError, chain, rules_target
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.lower.values import Num, ValueBuilder
    from mirlo.passes.session import Session

TARGET = "target"
"""The option that is the target whose rules come first."""


class IntrinsicCall:
    """The operation that a rule lowers, with the builder for its replacement."""

    def __init__(self, operation: ir.Operation, b: ValueBuilder, options: Mapping[str, Any] = MappingProxyType({})):
        self.operation = operation
        self.options = options
        """The options of the compilation, with `TARGET`; rules of target `llvm` read `machine`."""
        self.name: str = operation.name.removeprefix("tir.")
        self.args: list[ir.Value] = list(operation.operands)
        """The operands, MLIR values: scalars, or vectors of one shape."""
        self.type: ir.Type | None = operation.results[0].type if len(operation.results) else None
        """The MLIR type of the result; None for an intrinsic without one."""
        self._b = b

    @cached_property
    def nums(self) -> list[Num]:
        """Return the operands as Nums, to compute with; handles are those of `args`."""
        return [self._b.num(value) for value in self.args if not _is_handle(value.type)]

    @cached_property
    def dtype(self) -> str:
        """Return the element type of the first operand: 'f32', 'i8', ..."""
        return self.nums[0].kind

    @property
    def is_vector(self) -> bool:
        return isinstance(self.type, ir.VectorType)

    @property
    def location(self) -> ir.Location:
        return self.operation.location


def _is_handle(mlir_type: ir.Type) -> bool:
    return isinstance(mlir_type, ir.MemRefType) or str(mlir_type) == "!llvm.ptr"


CUSTOM_RULES = "intrinsics"
"""The session option with a caller's own rules, by intrinsic: tried before all others."""

MAX_LOWERING_ITERATIONS = 16
"""Rules may emit intrinsics, which are lowered in the next round; more rounds than this are a cycle."""


@dataclass(frozen=True)
class IntrinsicChoice:
    """The rule that lowered an intrinsic on a type, and those that declined before it: a record in the notes."""

    intrinsic: str
    type: str
    target: str
    rule: Rule
    attempts: tuple[Attempt, ...]

    def __str__(self) -> str:
        lines = [f"tir.{self.intrinsic} on {self.type} for {self.target}: {self.rule.name} [{self.rule.target}]"]
        return "\n".join([*lines, *(f"  declined: {attempt}" for attempt in self.attempts)])


INTRINSIC.defer(ModuleIndex("mirlo.passes.lower.expansions"))


@register_pass
@dataclass(frozen=True)
class LowerIntrinsics(Pass):
    """Lower tir intrinsics to arith, math, vector and llvm operations by the rules of the target.

    For each `tir.<intrinsic>`, on scalars or vectors, the rules registered along the chain of the target (`mydsp`,
    its parents, `default`) are tried; the first that accepts replaces it. Rules may emit other intrinsics, which are
    lowered in turn, and call C functions. An intrinsic that no rule accepts is an error with the reason of each.
    In a prim function that came from the module of a code generator (`tir.rules`), the rules of that target come first.
    """

    name = "lower-intrinsics"
    contained = True
    target: str = option(
        "", "target whose rules come first (default: that of the external module where it runs, else llvm)"
    )
    machine: str = option("", "machine that the code is for, of those that the target knows; default: the target's")

    def is_trusted(self, session: Session) -> bool:
        return not session.options.get(CUSTOM_RULES) and INTRINSIC.foreign() is None

    def run(self, op: ir.OpView, session: Session) -> None:
        try:
            targets = chain(rules_target(self.target, op))
        except TargetError as error:
            raise PassError(str(error)) from error
        by_name = session.options.get(CUSTOM_RULES) or {}
        custom = {name.removeprefix("tir."): rules for name, rules in by_name.items()}
        options = {**session.options, TARGET: targets[0], **({"machine": self.machine} if self.machine else {})}
        lowering = Lowering(targets, custom, options)
        own: dict[str, Lowering] = {}
        _check_names(targets, custom)
        try:
            for function, target in _functions_with_rules(op.operation):
                if target not in own:
                    own[target] = Lowering(_combined(target, targets), custom, options)
                    _check_names(own[target].targets, custom)
                own[target].run(function)
            lowering.run(op.operation)
            lower_found_calls(op, lowering.calls)
            choices = [choice for each in (*own.values(), lowering) for choice in each.choices.values()]
            for name in sorted(set(custom) - {choice.intrinsic for choice in choices}):
                session.warning(f"the rule given for 'tir.{name}' was never tried: there is no such intrinsic here")
        finally:
            for each in (*own.values(), lowering):
                session.notes.extend(each.choices.values())


def _functions_with_rules(root: ir.Operation) -> list[tuple[ir.Operation, str]]:
    """Return the prim functions that name the target of their rules, with it."""
    functions: list[tuple[ir.Operation, str]] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.func":
            if RULES in op.attributes:
                functions.append((op, ir.StringAttr(op.attributes[RULES]).value))
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE

    walk(root, visit, ir.WalkOrder.PRE_ORDER)
    return functions


def _combined(target: str, host: tuple[str, ...]) -> tuple[str, ...]:
    """Return the targets whose rules are tried in a function of another target: its own, then those of the host."""
    try:
        own = chain(target)
    except TargetError as error:
        raise PassError(f"a prim function has the attribute '{RULES}': {error}") from error
    return (*(name for name in own if name not in host), *host)


def _check_names(targets: tuple[str, ...], custom: Given) -> None:
    """Reject rules for intrinsics that do not exist: they would silently never be tried."""
    for name in custom:
        if name not in INTRINSICS and name not in OWN:
            origins = ", ".join(Rule("intrinsic", name, "custom", f).place for f in functions_of(custom[name]))
            unknown = f"which is not an intrinsic{nearest(name, [*INTRINSICS, *OWN])}"
            raise PassError(f"a lowering is given for 'tir.{name}' (at {origins}), {unknown}")
    for rule in INTRINSIC.imported():
        if rule.target in targets and rule.subject not in INTRINSICS and rule.subject not in OWN:
            unknown = f"which is not an intrinsic{nearest(rule.subject, [*INTRINSICS, *OWN])}"
            raise PassError(f"rule '{rule}' at {rule.place} is for 'tir.{rule.subject}', {unknown}")


class Lowering:
    """One run over an operation and all nested ones."""

    def __init__(
        self,
        targets: tuple[str, ...],
        custom: Given | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ):
        self.targets = targets
        self.custom = custom
        self.options = options
        self.choices: dict[tuple[str, str], IntrinsicChoice] = {}
        self.calls: list[ir.Operation] = []
        """After a run, the external calls that rules emitted or that were already there."""
        self._rules: dict[str, list[Rule]] = {}

    def run(self, root: ir.Operation) -> None:
        for _ in range(MAX_LOWERING_ITERATIONS):
            intrinsics, self.calls = _intrinsics_in(root)
            if not intrinsics:
                return
            # Constants are shared within a block. In the next round they may follow operations that are lowered then.
            constants: dict[ir.Block, dict[tuple[str, tuple[int, ...] | None, bytes | int], ir.Value]] = {}
            for operation in intrinsics:
                try:
                    self.lower(operation, constants.setdefault(operation.block, {}))
                except RuleError as error:
                    raise PassError(str(error), operation.location) from error
        left, _ = _intrinsics_in(root)
        names = ", ".join(sorted({operation.name for operation in left}))
        after = f"after {MAX_LOWERING_ITERATIONS} iterations there is still {names}"
        message = f"the rules of '{self.targets[0]}' form a cycle: {after}"
        raise PassError(message, left[0].location)

    def lower(
        self, operation: ir.Operation, constants: dict[tuple[str, tuple[int, ...] | None, int | bytes], ir.Value]
    ) -> None:
        """Lower one operation."""
        name = operation.name.removeprefix("tir.")
        result = operation.results[0] if len(operation.results) else None
        shaped = [value.type for value in operation.operands if isinstance(value.type, ir.VectorType)]
        first = shaped[0] if shaped else operation.operands[0].type if len(operation.operands) else None
        if isinstance(first, ir.VectorType) and first.scalable:
            message = f"'{operation.name}' has operands of type {first}: only vectors of a fixed length can be lowered"
            raise PassError(message, operation.location)
        from mirlo.passes.lower.values import ValueBuilder  # four modules, for models with intrinsics only

        b = ValueBuilder(tuple(first.shape) if isinstance(first, ir.VectorType) else None, constants)
        call = IntrinsicCall(operation, b, self.options)
        applied = apply_rules(operation, self.rules(name), lambda rule: RuleCall((call, b)), plain=_plain)
        if isinstance(applied, NoRule):
            raise self.unsupported_error(call, applied.attempts)
        key = (name, str(first))
        if key not in self.choices:
            self.choices[key] = IntrinsicChoice(name, str(first), self.targets[0], applied.rule, applied.attempts)
        if result is not None:
            result.replace_all_uses_with(applied.values[0])
        operation.erase()

    def rules(self, name: str) -> list[Rule]:
        result = self._rules.get(name)
        if result is None:
            result = self._rules[name] = INTRINSIC.candidates(name, self.targets, self.custom)
        return result

    def unsupported_error(self, call: IntrinsicCall, attempts: Sequence[Attempt]) -> PassError:
        """Return the error for an intrinsic that no rule accepts."""
        types = ", ".join(str(value.type) for value in call.args)
        message = f"no rule lowers '{call.operation.name}' on ({types}) for target '{self.targets[0]}'"
        if attempts:
            tried = "".join(f"\n  {attempt.rule.place}: {attempt}" for attempt in attempts)
            message += f"; these declined:{tried}"
        else:
            where = " or ".join(f"'{target}'" for target in self.targets)
            message += f': none is registered for {where}; add one with @intrinsic("{call.name}", target=...)'
        return PassError(message, call.location)


def has_intrinsics(root: ir.Operation) -> bool:
    """Return whether an operation contains intrinsics to lower."""
    return bool(_intrinsics_in(root)[0])


def _plain(value: object) -> object:
    """Return the value in MLIR of what a rule may return."""
    from mirlo.passes.lower.values import Num

    return value.value if isinstance(value, Num) else value


def _intrinsics_in(root: ir.Operation) -> tuple[list[ir.Operation], list[ir.Operation]]:
    """Return the operations to lower, in program order, and the external calls."""
    operations = find_named(root, [*(f"tir.{name}" for name in INTRINSICS), *OWN, CALL])
    return [each for each in operations if each.name != CALL], [each for each in operations if each.name == CALL]
