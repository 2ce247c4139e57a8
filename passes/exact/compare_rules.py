"""Comparison of the rules of a graph where they apply: the replaced operators, and the operators that replace them.

Both are cut out of the graph at the values that they have in common, and run on the same residues. A rule may know more
of these values than their elements: where results differ, the operators that compute them are added, a few times.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import captured
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.bounds.calls import facts_before
from mirlo.passes.exact.double import DoubleArithmetic, MovedDoubleArithmetic, rounded_elements
from mirlo.passes.exact.graph_function import GraphModule, GraphRound, common_round
from mirlo.passes.exact.kernel_definition import KernelDefinition
from mirlo.passes.exact.memory import Array
from mirlo.passes.exact.operations import MAXIMA, OperationList, operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE
from mirlo.passes.locations import node_labels
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.apply_rules import AppliedRule
    from mirlo.passes.rules import Rule
    from mirlo.passes.session import Session

ROUNDS = 2
DEEPER = 4
"""How often operators that compute the inputs of both graphs are added."""
MOST_OPERATORS = 200
"""The most operators that are looked at for those between common values and results."""
SIZES = (3, 2, 5, 7)
"""Sizes of symbols, in turn, where calls accept them."""
OLD, NEW = "old", "new"
_PARAM = re.compile(r'param = "[^"]*"')
_TO_INTEGERS = ("arith.fptosi", "arith.fptoui", "tir.round", "tir.roundeven", "tir.floor")
MOVES = 2
"""How often constants that are rounded are moved to their neighbours."""
MARGIN = 3.0
"""How much more than what that changes results may differ by: each graph rounds a few constants."""
PRECISION = 1e-12
"""The difference of 64-bit floats in another order, of the greatest element."""
EXACT_FUNCTIONS = ("tir.exp", "tir.exp2", "tir.expm1", "tir.sigmoid", "tir.abs", "tir.fma", "tir.fmuladd", "tir.size")
"""Intrinsics with a meaning in the field."""
DOUBLES = DoubleArithmetic()
SHOWN = 3
"""How many constants or operations a reason names."""


@dataclass(frozen=True)
class RuleVerdict:
    """Whether a replacement is equal to the operators that it replaced, in one graph."""

    rule: str
    place: str
    status: str
    """`EQUAL`, `DIFFERENT` or `OUTSIDE`."""
    why: str = ""
    nodes: tuple[str, ...] = ()
    graphs: str = ""
    """Both graphs as text, where they differ."""

    def __str__(self) -> str:
        at = f" at {self.place}" if self.place else ""
        of_nodes = f" ({', '.join(self.nodes)})" if self.nodes else ""
        if self.status == EQUAL:
            return f"rule '{self.rule}'{at}{of_nodes} keeps the value"
        what = "changes the value" if self.status == DIFFERENT else "is not compared"
        return f"rule '{self.rule}'{at}{of_nodes} {what}: {self.why}"


@dataclass
class RuleComparison:
    """The comparison of rules that are applied while passes run."""

    verdicts: list[RuleVerdict] = field(default_factory=list)
    known: dict[str, RuleVerdict] = field(default_factory=dict)
    """Verdicts by the text of both graphs: a rule is compared once for equal operators of equal types."""
    definitions: dict[str, KernelDefinition] = field(default_factory=dict)
    stop: Callable[[RuleVerdict], None] | None = None
    """Called with a verdict of a rule that changes the value."""

    def see(self, op: ir.Operation, applied: AppliedRule, emitted: Sequence[ir.Operation], session: Session) -> None:
        """Compare the results of an operation with the values that replace them, before it is replaced."""
        replaced = [*zip(op.results, applied.values, strict=True), *applied.others]
        verdict = self._verdict(applied.rule, op, replaced, emitted, session)
        self.verdicts.append(verdict)
        if verdict.status == DIFFERENT and self.stop is not None:
            self.stop(verdict)

    def see_operator(
        self, op: ir.Operation, operands: Sequence[ir.Value], applied: AppliedRule, module: ir.OpView, session: Session
    ) -> None:
        """Compare an operator, legalized by the default rules, with its conversion by a target's rule.

        `operands` are those of the converted operator; `module` has the prim functions that it calls.
        """
        cut = _OperatorCut(op, operands, applied.values, module)
        verdict = self._compare(applied.rule, op, cut, session)
        self.verdicts.append(verdict)
        if verdict.status == DIFFERENT and self.stop is not None:
            self.stop(verdict)

    def _verdict(
        self, rule: Rule, op: ir.Operation, replaced: Sequence[tuple[ir.Value, ir.Value]],
        emitted: Sequence[ir.Operation], session: Session,
    ) -> RuleVerdict:  # fmt: skip
        return self._compare(rule, op, _GraphCut(replaced, emitted), session)

    def _compare(self, rule: Rule, op: ir.Operation, cut: _Cut, session: Session) -> RuleVerdict:
        nodes = tuple(node_labels(op.location))
        try:
            status, why, text = OUTSIDE, "", ""
            graphs = ""
            for _ in range(DEEPER):
                module = cut.module(op.location)
                text = _PARAM.sub("", str(module))  # weights of one shape are alike
                if text in self.known:
                    return _renamed(self.known[text], rule, nodes)
                graphs = str(module)
                status, why = _compared(GraphModule(module, session.params, self.definitions), op)
                if status != DIFFERENT or not cut.deepen():
                    break
        except OutsideError as error:
            status, why, text, graphs = OUTSIDE, str(error), "", ""
        verdict = RuleVerdict(rule.name, rule.place, status, why, nodes, graphs if status == DIFFERENT else "")
        if text:
            self.known[text] = verdict
        return verdict


def _renamed(verdict: RuleVerdict, rule: Rule, nodes: tuple[str, ...]) -> RuleVerdict:
    return RuleVerdict(rule.name, rule.place, verdict.status, verdict.why, nodes, verdict.graphs)


class _Cut(ABC):
    """Two graphs, as functions of the same inputs."""

    @abstractmethod
    def module(self, location: ir.Location) -> ir.Module:
        """Return a module with a function of each."""

    def deepen(self) -> bool:
        """Add operators that compute the inputs; return whether any were added."""
        return False


class _OperatorCut(_Cut):
    """An operator, and its conversion."""

    def __init__(
        self, op: ir.Operation, operands: Sequence[ir.Value], values: Sequence[ir.Value], module: ir.OpView
    ):  # fmt: skip
        self.op, self.operands, self.values, self.parent = op, list(operands), list(values), module

    def module(self, location: ir.Location) -> ir.Module:
        module = ir.Module.create(location)
        inputs = [i for i, value in enumerate(self.operands) if not _is_constant(value)]
        types = [self.op.operands[i].type for i in inputs]
        for name, operands, results in (
            (OLD, list(self.op.operands), list(self.op.results)),
            (NEW, self.operands, self.values),
        ):
            function_in(module, name, [operands[i] for i in inputs], types, results, location, self.parent)
        return module


class _GraphCut(_Cut):
    """The graphs of both values, from common values on."""

    def __init__(self, replaced: Sequence[tuple[ir.Value, ir.Value]], emitted: Sequence[ir.Operation]):
        self.old = [old for old, _ in replaced]
        self.new = [new for _, new in replaced]
        self.emitted = list(emitted)
        read = [value for op in self.emitted for value in (*op.operands, *captured(op))]
        common = [value for value in (*read, *self.new) if not self._is_emitted(value) and not _is_constant(value)]
        self.inputs: dict[ir.Value, None] = dict.fromkeys(common)
        self._add_others()

    def _is_emitted(self, value: ir.Value) -> bool:
        return isinstance(value, ir.OpResult) and value.owner.operation in self.emitted

    def _add_others(self) -> None:
        """Add the values from which the old values are computed and which the new ones do not read."""
        left = MOST_OPERATORS
        reaching: dict[ir.Value, bool] = {}

        def reaches(value: ir.Value) -> bool:
            nonlocal left
            if value in reaching:
                return reaching[value]
            if value in self.inputs:
                return True
            if not isinstance(value, ir.OpResult) or left == 0:
                return False
            left -= 1
            # All operands are looked at: which ones reach an input decides about the cut.
            reaching[value] = any([reaches(operand) for operand in value.owner.operation.operands])
            return reaching[value]

        def add(value: ir.Value, is_root: bool) -> None:
            if value in self.inputs or _is_constant(value):
                return
            if not isinstance(value, ir.OpResult) or not (is_root or reaches(value)):
                self.inputs[value] = None
                return
            for operand in value.owner.operation.operands:
                add(operand, False)

        for value in self.old:
            if value not in self.inputs:
                reaches(value)
                add(value, True)

    def deepen(self) -> bool:
        """Replace inputs by the values from which they are computed; return whether any were replaced."""
        inputs: dict[ir.Value, None] = {}
        for value in self.inputs:
            owner = value.owner.operation if isinstance(value, ir.OpResult) else None
            if owner is None or len(owner.regions) or not _is_relax(owner):
                inputs[value] = None
            else:
                inputs.update(dict.fromkeys(each for each in owner.operands if not _is_constant(each)))
        if inputs.keys() == self.inputs.keys():
            return False
        self.inputs = inputs
        return True

    def module(self, location: ir.Location) -> ir.Module:
        """Return a module with a function of each side."""
        module = ir.Module.create(location)
        inputs = list(self.inputs)
        for name, values in ((OLD, self.old), (NEW, self.new)):
            function_in(module, name, inputs, [value.type for value in inputs], values, location)
        return module


def function_in(
    module: ir.Module, name: str, inputs: Sequence[ir.Value], types: Sequence[ir.Type], values: Sequence[ir.Value],
    location: ir.Location, parent: ir.OpView | None = None,
) -> None:  # fmt: skip
    """Append a function that computes values from inputs; prim functions that it calls are copied from a parent."""
    kind = ir.FunctionType.get(list(types), [value.type for value in values])
    attributes = {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(kind)}
    with ir.InsertionPoint(module.body), location:
        function = ir.Operation.create("func.func", attributes=attributes, regions=1)
        block = function.regions[0].blocks.append(*kind.inputs, arg_locs=[location] * len(types))
    copies: dict[ir.Value, ir.Value] = dict(zip(inputs, block.arguments, strict=True))
    callees: dict[str, None] = {}
    with ir.InsertionPoint(block), location:
        for value in values:
            _copy(value, copies, callees)
        ir.Operation.create("func.return", operands=[copies[value] for value in values])
    for member in parent.operation.regions[0].blocks[0].operations if parent is not None and callees else ():
        if member.operation.name == "func.func" and symbol_name(member) in callees:
            member.operation.clone(ip=ir.InsertionPoint(module.body))


def _copy(value: ir.Value, copies: dict[ir.Value, ir.Value], callees: dict[str, None]) -> None:
    """Copy the operations that compute a value to the insertion point; record the functions that they call."""
    if value in copies:
        return
    if not isinstance(value, ir.OpResult):
        raise OutsideError("a value of another block")
    op = value.owner.operation
    if len(op.regions) or not op.name.startswith("relax."):
        raise OutsideError(f"'{op.name}' in what a rule replaces")
    if op.name == "relax.call_tir":
        callees[op.opview.callee] = None
    for operand in op.operands:
        _copy(operand, copies, callees)
    clone = op.clone()
    for i, operand in enumerate(op.operands):
        clone.operands[i] = copies[operand]
    copies.update(zip(op.results, clone.results, strict=True))


def _is_constant(value: ir.Value) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.name == "relax.constant"


def _is_relax(op: ir.Operation) -> bool:
    return bool(op.name.startswith("relax.")) and op.name != "relax.call_tir"


def _compared(graphs: GraphModule, op: ir.Operation) -> tuple[str, str]:
    """Return the status of two functions of a module, and the reason if they are not equal where an operation is."""
    symbols = graphs.symbols(OLD)
    facts = facts_before(op) if symbols else []
    for number in range(ROUNDS):
        wanted = {name: SIZES[(i + number) % len(SIZES)] for i, name in enumerate(symbols)}
        sizes = graphs.sizes(OLD, wanted, facts)
        round_ = common_round(number, sizes, graphs)
        why = _difference(graphs, round_)
        if why and any(op.name in _TO_INTEGERS for op in operations_in(graphs.module.operation)):
            return OUTSIDE, "numbers are rounded to integers, which residues have no order for"
        if why:
            construct = _construct(graphs)
            if construct and _are_near(graphs, round_):
                return OUTSIDE, f"results are equal as 64-bit floats, but not modulo a prime: {construct}"
            return DIFFERENT, f"{why} (round {number})"
    return EQUAL, ""


def _results(graphs: GraphModule, round_: GraphRound) -> Iterator[tuple[Array, Array]]:
    """Yield the results of both functions on the same inputs."""
    inputs = round_.inputs(graphs.function(OLD))
    expected, actual = (graphs.run(name, round_, inputs) for name in (OLD, NEW))
    for left, right in zip(expected, actual, strict=True):
        yield left.planes[0], right.planes[0]


def _difference(graphs: GraphModule, round_: GraphRound) -> str:
    for position, (left, right) in enumerate(_results(graphs, round_)):
        wrong = left != right
        if wrong.any():
            return f"result {position} differs in {int(wrong.sum())} of {wrong.size} elements"
    return ""


def _construct(graphs: GraphModule) -> str:
    """Return a construct of two graphs without exact meaning, on which rules may rely; empty if there is none."""
    root = graphs.module.operation
    operations = OperationList(root)
    constants, names = [f"{value:.9g}" for value in operations.rounded_constants()], operations.names
    if constants:
        return f"they have rounded constants ({_shown(constants)})"
    if any(_has_rounded_elements(op, graphs) for op in operations_in(root) if op.name == "relax.constant"):
        return "they have constants with rounded elements"
    order = sorted(names & {*MAXIMA, "arith.cmpf", "tir.abs"})
    if order:
        return f"they count on the order of numbers ({_shown(order)})"
    hashed = sorted(name for name in names if name.removeprefix("tir.") in INTRINSICS and name not in EXACT_FUNCTIONS)
    return f"they have functions without a meaning in the field ({_shown(hashed)})" if hashed else ""


def _shown(names: Sequence[str]) -> str:
    return ", ".join([*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])])


def _has_rounded_elements(op: ir.Operation, graphs: GraphModule) -> bool:
    return any(plane.dtype.kind == "f" and rounded_elements(plane).any() for plane in graphs.constant(op, DOUBLES))


def _are_near(graphs: GraphModule, round_: GraphRound) -> bool:
    """Return whether results agree in 64-bit floats, up to the effect of neighbours of rounded constants."""
    try:
        plain = list(_results(graphs, replace(round_, arithmetic=DOUBLES)))
        moved = [
            list(_results(graphs, replace(round_, arithmetic=MovedDoubleArithmetic(seed)))) for seed in range(MOVES)
        ]
    except OutsideError:
        return False
    for position, (left, right) in enumerate(plain):
        change = sum(max(_distance(each[position][side], plain[position][side]) for each in moved) for side in (0, 1))
        scale = float(np.abs(left[np.isfinite(left)]).max(initial=1.0))
        if not _distance(left, right) <= MARGIN * change + PRECISION * scale:
            return False
    return True


def _distance(left: Array, right: Array) -> float:
    """Return the greatest difference of two arrays; infinity if infinities or NaNs are at different positions."""
    with np.errstate(invalid="ignore"):
        differences = np.abs(left - right)
    is_same = (left == right) | (np.isnan(left) & np.isnan(right))
    differences = np.where(is_same, 0.0, np.where(np.isnan(differences), np.inf, differences))
    return float(differences.max(initial=0.0))


def counts_by_rule(verdicts: Sequence[RuleVerdict]) -> Mapping[str, Mapping[str, int]]:
    """Return for each rule how many of its replacements have each status."""
    counts: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        own = counts.setdefault(verdict.rule, dict.fromkeys((EQUAL, DIFFERENT, OUTSIDE), 0))
        own[verdict.status] += 1
    return counts
