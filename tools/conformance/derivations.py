"""Graphs derived from a pattern's own structure: one for each choice of its alternatives."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

import numpy as np

from mirlo.passes.byoc.connected import Several
from mirlo.passes.byoc.operators import OpPattern
from mirlo.passes.byoc.pattern import Alternatives, Both, LeafPattern, MaybeAbsent, Not, Pattern
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.programs import operator_class

MAX_DERIVATIONS = 12
"""Graphs of one pattern: enough for each arm of its alternatives, as operators of one kind behave alike."""


class NoGraph(Exception):
    """A pattern from which no graph follows, and the reason."""


@dataclass(eq=False)
class GraphLeaf:
    """A value that the graph reads: an argument or a constant."""

    is_constant: bool | None = False
    """None where it may be either."""
    value: float | None = None
    """What all elements equal, where the pattern says so."""


@dataclass(eq=False)
class GraphOperation:
    """An operation of the graph; its operands by the names that its class declares, a list for a variadic one."""

    name: str
    operands: dict[str, GraphOperand]
    attributes: dict[str, object] = field(default_factory=dict)
    """Values that the pattern requires, a set of values, or a predicate."""


@dataclass(eq=False)
class GraphResult:
    """A result of an operation."""

    operation: GraphOperation
    number: int = 0


GraphValue = GraphLeaf | GraphResult
GraphOperand = GraphValue | list[GraphValue] | None


@dataclass
class PatternGraph:
    """A graph that a pattern should match, operations in the order in which they are computed."""

    operations: list[GraphOperation]
    outputs: list[GraphResult]

    @property
    def leaves(self) -> list[GraphLeaf]:
        """Return what it reads, in order of first use."""
        read = (value for op in self.operations for value in read_by(op))
        return [value for value in dict.fromkeys(read) if isinstance(value, GraphLeaf)]

    def __str__(self) -> str:
        return ", ".join(map(_text, self.outputs))


def _text(value: GraphOperand) -> str:
    """Return a value as text, such as `relu(conv(?, constant))`."""
    if isinstance(value, GraphResult):
        operation = value.operation
        listed = ", ".join(_text(operand) for operand in operation.operands.values() if operand is not None)
        return f"{operation.name.rpartition('.')[2]}({listed})"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if value is None:
        return ""
    return {True: "constant", False: "argument", None: "?"}[value.is_constant]


def read_by(operation: GraphOperation) -> Iterator[GraphValue]:
    """Yield the operands of an operation that are present."""
    for operand in operation.operands.values():
        if isinstance(operand, list):
            yield from operand
        elif operand is not None:
            yield operand


def graphs_of(patterns: Iterable[Pattern]) -> tuple[list[PatternGraph], str]:
    """Return graphs that patterns should match, and the reason why one of them has none."""
    graphs: list[PatternGraph] = []
    why = ""
    for pattern in patterns:
        try:
            graphs += derivations(pattern)
        except NoGraph as reason:
            why = str(reason)
    return graphs, why


def with_more_operands(graph: PatternGraph, count: int) -> PatternGraph | None:
    """Return a graph whose operators of any number of operands have that many; None where there is none."""
    extended = copy.deepcopy(graph)
    lists = [o for operation in extended.operations for o in operation.operands.values() if isinstance(o, list)]
    for values in lists:
        values += [GraphLeaf(False) for _ in range(count - len(values))]
    return extended if lists else None


def producing(producer: PatternGraph, consumer: PatternGraph) -> PatternGraph | None:
    """Return a graph in which a result of one graph is an argument of another; None where it reads constants only."""
    first, last = copy.deepcopy(producer), copy.deepcopy(consumer)
    leaf = next((leaf for leaf in last.leaves if not leaf.is_constant), None)
    if leaf is None:
        return None
    value = first.outputs[-1]
    for operation in last.operations:
        for name, operand in operation.operands.items():
            if isinstance(operand, list):
                operation.operands[name] = [value if item is leaf else item for item in operand]
            elif operand is leaf:
                operation.operands[name] = value
    return PatternGraph([*first.operations, *last.operations], last.outputs)


def derivations(pattern: Pattern) -> list[PatternGraph]:
    """Return graphs that the pattern should match, which between them take each arm of its alternatives."""
    used: Counter[tuple[object, int]] = Counter()
    random = np.random.default_rng(0)
    graphs: dict[str, PatternGraph] = {}
    for _ in range(2 * MAX_DERIVATIONS):
        graph = _Derivation(used, random).graph(pattern)
        graphs.setdefault(str(graph), graph)
    return list(graphs.values())[:MAX_DERIVATIONS]


@dataclass
class _Derivation:
    """One derivation; of alternatives it takes the arm that was taken least."""

    used: Counter[tuple[object, int]]
    random: np.random.Generator
    labels: dict[str, GraphValue] = field(default_factory=dict)
    operations: list[GraphOperation] = field(default_factory=list)
    linked: dict[str, list[tuple[int, GraphValue]]] = field(default_factory=dict)
    """What a labelled part must read, by index (-1 for any), as its links say."""

    def graph(self, pattern: Pattern) -> PatternGraph:
        outputs = self._several(pattern) if isinstance(pattern, Several) else [self._value(pattern)]
        results = [value for value in outputs if isinstance(value, GraphResult)]
        if not results:
            raise NoGraph("the pattern has no operation")
        return PatternGraph(self.operations, results)

    def _several(self, pattern: Several) -> list[GraphValue]:
        sources = {producer for producer, _, _ in pattern.links}
        pending, values = list(range(len(pattern.points))), dict[int, GraphValue]()
        while pending:
            ready = [i for i in pending if all(p in values for p, c, _ in pattern.links if c == i)]
            if not ready:
                raise NoGraph("the links of the pattern form a cycle")
            point = pattern.points[ready[0]]
            self.linked[str(point.label)] = [(k.index, values[p]) for p, c, k in pattern.links if c == ready[0]]
            values[ready[0]] = self._value(point)
            pending.remove(ready[0])
        return [values[i] for i in range(len(pattern.points)) if i not in sources]

    def _arm(self, of: object, count: int) -> int:
        """Return the number of the arm to take."""
        least = min(self.used[of, i] for i in range(count))
        arm = int(self.random.choice([i for i in range(count) if self.used[of, i] == least]))
        self.used[of, arm] += 1
        return arm

    def _value(self, pattern: Pattern) -> GraphValue:
        if pattern.label is not None and pattern.label in self.labels:
            return self.labels[pattern.label]
        value = self._made(pattern)
        if pattern.label is not None:
            self.labels[pattern.label] = value
        return value

    def _made(self, pattern: Pattern) -> GraphValue:
        if isinstance(pattern, Alternatives):
            return self._value(pattern.choices[self._arm(id(pattern), len(pattern.choices))])
        if isinstance(pattern, Both):
            has_operation = pattern.left.roots() is not None
            return self._value(pattern.left if has_operation else pattern.right)
        if isinstance(pattern, LeafPattern):
            return GraphLeaf(pattern.is_constant, pattern.constant)
        if isinstance(pattern, Not):
            return GraphLeaf(None)
        if isinstance(pattern, OpPattern):
            return self._operation(pattern)
        raise NoGraph(f"nothing is known of patterns of class '{type(pattern).__name__}'")

    def _operation(self, pattern: OpPattern) -> GraphResult:
        name = pattern.names[self._arm((id(pattern), "name"), len(pattern.names))]
        fields = operator_class(name.removeprefix("relax."))._operand_layout.fields
        if pattern.operands is not None:
            operands = self._in_order(name, pattern, [(f.name, f.kind) for f in fields])
        else:
            operands = {f.name: self._named(pattern, f.name, f.kind) for f in fields}
        self._link(operands, self.linked.get(str(pattern.label), ()))
        operation = GraphOperation(name, operands, dict(pattern.attributes))
        self.operations.append(operation)
        return GraphResult(operation, pattern.number or 0)

    def _in_order(self, name: str, pattern: OpPattern, fields: Sequence[tuple[str, str]]) -> dict[str, GraphOperand]:
        assert pattern.operands is not None
        rest = [self._value(part) for part in pattern.operands]
        required = sum(kind == "single" for _, kind in fields)
        spare = len(rest) - required
        operands: dict[str, GraphOperand] = {}
        for field_name, kind in fields:
            if kind == "variadic":
                operands[field_name], rest, spare = rest[: max(spare, 0)], rest[max(spare, 0) :], 0
            elif kind == "optional":
                operands[field_name] = rest.pop(0) if spare > 0 and rest else None
                spare -= 1
            else:
                operands[field_name] = rest.pop(0) if rest else GraphLeaf(None)
        if rest:
            raise NoGraph(f"the pattern gives {name} more operands than it has")
        return operands

    def _named(self, pattern: OpPattern, name: str, kind: str) -> GraphOperand:
        part = pattern.by_name.get(name)
        if isinstance(part, MaybeAbsent):
            return self._value(part.present) if self._arm(id(part), 2) == 0 else None
        if part is not None:
            return self._value(part)
        leaf = GraphLeaf(None)
        return None if kind == "optional" else [leaf, GraphLeaf(None)] if kind == "variadic" else leaf

    def _link(self, operands: dict[str, GraphOperand], links: Sequence[tuple[int, GraphValue]]) -> None:
        """Give an operation the operands that links of the pattern require."""
        names = list(operands)
        free = [name for name in names if isinstance(operands[name], GraphLeaf)]
        for index, value in links:
            held = [v for operand in operands.values() for v in (operand if isinstance(operand, list) else [operand])]
            if any(v is value for v in held):
                continue
            name = names[min(index, len(names) - 1)] if index >= 0 else free.pop(0) if free else names[0]
            operands[name] = [value] if isinstance(operands[name], list) else value
