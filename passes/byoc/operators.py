"""Patterns of operations and their constructors: `is_op`, `is_const`, `is_var`, `wildcard`, `maybe`."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType

from mirlo.dialects import relax
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import EXTRA_DIALECTS
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.passes.byoc.graph import BlockNode, BlockValue
from mirlo.passes.byoc.pattern import LeafPattern, MaybeAbsent, Pattern, walk
from mirlo.passes.byoc.predicates import argument_name, attribute_is, same_shape
from mirlo.passes.byoc.search import PatternError, Predicate, Search, State
from mirlo.passes.rules import Decline
from mirlo.runtime.errors import nearest


class OpPattern(Pattern):
    """A pattern of an operation; made by `is_op`."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.operands: tuple[Pattern, ...] | None = None
        """Patterns of the operands in order, or None for any operands."""
        self.more = False
        """Whether further operands may follow."""
        self.by_name: dict[str, Pattern] = {}
        self.number: int | None = None
        self.in_order = False
        self.in_any_order = False
        self.attributes: dict[str, object] = {}

    def __call__(self, *operands: Pattern | EllipsisType, **by_name: Pattern) -> OpPattern:
        """Set the operand patterns: all in order (a final `...` allows others), or some by name."""
        if operands and by_name:
            raise PatternError(f"{self.names[0]}: give the operands in order or by name, not both")
        more = bool(operands) and operands[-1] is ...
        patterns = tuple(operands[:-1] if more else operands)
        for pattern in (*patterns, *by_name.values()):
            if not isinstance(pattern, Pattern):
                raise PatternError(f"{self.names[0]}: an operand must be a pattern, got {pattern!r}")
        return self._with(operands=None if by_name or not operands else patterns, more=more, by_name=by_name)

    def has_attr(self, **attributes: object) -> OpPattern:
        """Require attributes: `groups=1`; a set for one of several values; a function that returns True or a reason."""
        return self._with(attributes={**self.attributes, **attributes})

    def result(self, number: int) -> OpPattern:
        """Match only this result of an operation with several."""
        return self._with(number=number)

    def ordered(self) -> OpPattern:
        """Match the operands of a commutative operator in the given order only."""
        return self._with(in_order=True)

    def unordered(self) -> OpPattern:
        """Match the operands in any order, such as the inputs of a concat."""
        return self._with(in_any_order=True)

    def check_names(self) -> None:
        known = {name: op for dialect in (relax.DIALECT, *EXTRA_DIALECTS) for name, op in dialect.operations.items()}
        namespaces = {name.partition(".")[0] for name in known}
        for name in self.names:
            if name not in known:
                if name.partition(".")[0] in namespaces:
                    raise PatternError(f"a pattern names '{name}', which is not an operator{nearest(name, known)}")
                continue
            layout = known[name]._operand_layout
            self._check_count(name, layout.least, layout.most)
            operands = [field.name for field in layout.fields]
            for kind, asked, has in (
                ("operand", self.by_name, operands),
                ("attribute", self.attributes, list(known[name]._attributes)),
            ):
                for word in asked:
                    if word not in has:
                        near = difflib.get_close_matches(word, has, n=1)
                        hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(has) or 'none'}"
                        raise PatternError(
                            f"a pattern asks for the {kind} '{word}' of '{name}', which has none such; {hint}"
                        )

    def _check_count(self, name: str, least: int, most: int | None) -> None:
        """Refuse more or fewer operands than the operator ever has."""
        count = None if self.operands is None else len(self.operands)
        if count is None or ((count >= least or self.more) and (most is None or count <= most)):
            return
        takes = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise PatternError(f"a pattern gives '{name}' {count} operands, which takes {takes}: it would never match")

    @property
    def expected(self) -> str:
        return " or ".join(self.names)

    def roots(self) -> frozenset[str] | None:
        return frozenset(self.names)

    def parts(self) -> list[Pattern]:
        return [*(self.operands or ()), *self.by_name.values()]

    def with_parts(self, parts: Sequence[Pattern]) -> OpPattern:
        count = len(self.operands or ())
        operands = None if self.operands is None else tuple(parts[:count])
        return self._with(operands=operands, by_name=dict(zip(self.by_name, parts[count:], strict=True)))

    def _on_value(self, function: Callable[[BlockValue], bool | str | Decline], name: str) -> OpPattern:
        return self._with(predicates=(*self.predicates, _OnResult(name, function)))

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        node = value.node
        if node is None or node.name not in self.names:
            search.unexpected(state, value, self.expected)
        elif self.number is not None and value.number != self.number:
            search.fail(state, value, f"expected result {self.number} of {node.name}, found result {value.number}")
        elif (owner := search.owner(node)) is not None:
            search.fail(state, value, f"{node.name} is taken by {owner}", lost_to=owner)
        elif self._fits(node, value, state, search):
            yield from self._operand_matches(node, value, state.with_node(node, self.is_output), search)

    def _fits(self, node: BlockNode, value: BlockValue, state: State, search: Search) -> bool:
        for name, wanted in self.attributes.items():
            reason = attribute_is(node, name, wanted)
            if reason is not None:
                search.fail(state, value, reason, predicate=f"has_attr({name})")
                return False
        return all(
            search.holds([predicate], value if isinstance(predicate, _OnResult) else node.op.opview, state, value)
            for predicate in self.predicates
        )

    def _operand_matches(self, node: BlockNode, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        if self.by_name:
            yield from self._operator_matches(node, value, state, search)
        elif self.operands is None:
            yield state
        else:
            operands = node.operands
            if not (len(operands) >= len(self.operands) if self.more else len(operands) == len(self.operands)):
                least = "at least " if self.more else ""
                search.fail(
                    state, value, f"{node.name} has {len(operands)} operands, expected {least}{len(self.operands)}"
                )
                return
            for order in self._orders(node):
                yield from solve_all(list(zip(self.operands, order, strict=False)), state, search)

    def _operator_matches(self, node: BlockNode, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        pairs: list[tuple[Pattern, BlockValue]] = []
        for name, pattern in self.by_name.items():
            operand = node.operand(name)
            if isinstance(pattern, MaybeAbsent):
                if operand is not None:
                    pairs.append((pattern.present, operand))
            elif operand is None:
                search.fail(state, value, f"{node.name} has no operand '{name}' here")
                return
            else:
                pairs.append((pattern, operand))
        yield from solve_all(pairs, state, search)

    def _orders(self, node: BlockNode) -> Iterator[Sequence[BlockValue]]:
        assert self.operands is not None
        if self.in_any_order:
            yield from itertools.permutations(node.operands, len(self.operands))
            return
        yield node.operands
        if self._is_commutative(node.op):
            yield node.operands[::-1]

    def _parts_exclude(self, value: ir.Value) -> bool:
        op = value.owner
        if self.operands is None or self.in_any_order or len(op.regions):
            return False
        operands = list(op.operands)
        if len(operands) < len(self.operands) or (len(operands) > len(self.operands) and not self.more):
            return True
        if not any(pattern.excludes(each) for pattern, each in zip(self.operands, operands, strict=False)):
            return False
        return not self._is_commutative(op) or any(map(Pattern.excludes, self.operands, reversed(operands)))

    def producers(self, root: str) -> frozenset[str] | None:
        if root not in self.names:
            return frozenset()
        operands = [part.roots() for part in self.parts() if part.label is None and not isinstance(part, MaybeAbsent)]
        return min((names for names in operands if names is not None), key=len, default=None)

    def _is_commutative(self, op: ir.Operation | ir.OpView) -> bool:
        """Return whether the two operands of an operation may be matched in reverse order."""
        return len(self.operands or ()) == 2 and not self.in_order and Trait.COMMUTATIVE in traits_of(op.operation)

    def __str__(self) -> str:
        listed = [str(operand) for operand in self.operands or ()] + ["..."] * self.more
        listed += [f"{name}={pattern}" for name, pattern in self.by_name.items()]
        return f"{self.expected}({', '.join(listed)})" if listed else self.expected


class _OnResult(Predicate):
    """A predicate on the value of an operation pattern."""


def solve_all(pairs: list[tuple[Pattern, BlockValue]], state: State, search: Search) -> Iterator[State]:
    """Return all joint matches of patterns and values."""
    if not pairs:
        yield state
        return
    (pattern, value), rest = pairs[0], pairs[1:]
    for solution in pattern.solve(value, state, search):
        yield from solve_all(rest, solution, search)


def is_op(*names: str) -> OpPattern:
    """Return a pattern of an operation with one of these names; call it to set the operands."""
    if not names or not all(isinstance(name, str) and "." in name for name in names):
        raise PatternError(f'is_op takes names of operators such as "relax.conv", got {names}')
    return OpPattern(names)


def is_const(value: float | None = None) -> Pattern:
    """Return a pattern of a constant; given a number, of one whose elements all equal it."""
    result = LeafPattern(lambda candidate: candidate.is_constant, "a constant", is_constant=True)
    if value is None:
        return result
    result.constant = value

    def all_are(block_value: BlockValue) -> bool | str:
        array = block_value.array()
        if array is None:
            return "the elements of the constant are not known here"
        return True if (array == value).all() else f"the constant is not {value} everywhere"

    return result.where(all_are, f"is_const({value})")


def is_var(name: str = "") -> Pattern:
    """Return a pattern of an external value; given a name, of the argument that users call so."""
    result = LeafPattern(lambda candidate: candidate.is_input, "an argument", is_constant=False)
    if not name:
        return result

    def is_called(block_value: BlockValue) -> bool | str:
        called = argument_name(block_value)
        return True if called == name else f"expected the argument '{name}', found '{called}'"

    return result.where(is_called, f"is_var({name})")


def wildcard() -> Pattern:
    """Return a pattern of any value, which stays an input of the composite."""
    return LeafPattern(lambda candidate: True, "anything")


def maybe(operand: Pattern) -> Pattern:
    """Make a named operand optional: if present, it must match the pattern."""
    return MaybeAbsent(operand)


def same_shape_as(*labels: str) -> Predicate:
    """Return a check that these parts have one shape."""
    return Predicate(f"same_shape_as({', '.join(labels)})", same_shape(labels))


def operators(pattern: Pattern) -> set[str]:
    """Return the operators that the pattern can match somewhere."""
    return {name for part in walk(pattern) if isinstance(part, OpPattern) for name in part.names}
