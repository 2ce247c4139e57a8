"""Emission of index expressions over loops, named or numbered, each once in a region."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import le
from typing import Any, TypeAlias

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, Remainder, Variable, number
from mirlo.dialects.core.value import Value, create, index
from mirlo.passes.schedule.primitives.tree import PartRange
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class LoopPosition:
    """The index of a loop, by the position of its iterations in the loop that it is a part of, as addresses need it."""

    name: str
    value: ir.Value
    part: PartRange
    start: IndexExpr = IndexExpr()
    """Where a thread begins, in loops over its elements: an expression of the loops over threads."""

    def __str__(self) -> str:
        return self.name

    def scaled(self, count: Dim) -> Dim | None:
        """Return the multiple of the position that a multiple of the index moves by; None if there is none."""
        times = count // self.part.step
        return times if times * self.part.step == count else None

    def index(self, values: LoopValues) -> Value:
        """Emit the index."""
        value = Value(self.value) - values.emit(self.start + self.part.low)
        return value if self.part.step == 1 else create("arith.divui", value.type, value, index(self.part.step))


LoopValue = ir.Value | int | LoopPosition
"""The index of a loop: an integer in an iteration that is emitted by itself."""
LoopIndices: TypeAlias = Mapping[Any, LoopValue]
"""The indices of loops, by their `Variable`s."""
Sum: TypeAlias = tuple[frozenset[tuple[object, Dim]], Dim]
"""Terms and constant of an expression whose loops are values."""


def _shared_part(constant: Dim) -> Dim:
    """Return the constant that is added before the rest, as more accesses share it.

    First the start of a part of a loop, which has quotients; then symbols; at last numbers, which addresses contain.
    """
    if isinstance(constant, int):
        return 0
    terms = D.terms_of(constant)
    symbolic = tuple(term for term in terms if term[0])
    if len(symbolic) < len(terms):
        return D.SymbolicDim(symbolic)
    quotients = tuple(term for term in terms if any(D.atom_parts(atom) for atom in term[0]))
    return D.SymbolicDim(quotients) if 0 < len(quotients) < len(terms) else 0


def _name(atom: object) -> str:
    """Return the sort key of terms of a sum: numbered loops stay in their order."""
    return "" if isinstance(atom, int) else str(atom)


class EmittedIndices:
    """The index expressions that are emitted in a block, and those in the blocks around it."""

    def __init__(self, outer: EmittedIndices | None = None) -> None:
        self.block = ir.InsertionPoint.current.block
        self._known: dict[Sum, Value] = {}
        self._outer = outer
        self.moved: dict[object, tuple[LoopIndices, EmittedIndices]] = {}
        """Loops with other indices, by what these are, and the expressions that are emitted for them."""
        self.loaded: dict[object, list[ir.Value]] = {}
        """The elements that are loaded."""

    def find(self, key: Sum) -> Value | None:
        """Return the value of an expression, None if it is not emitted."""
        scope: EmittedIndices | None = self
        while scope is not None:
            result = scope._known.get(key)
            if result is not None:
                return result
            scope = scope._outer
        return None

    def add(self, key: Sum, value: Value) -> None:
        self._known[key] = value

    def around(self) -> Iterator[EmittedIndices]:
        """Yield the expressions emitted in this block, and in those around it."""
        scope: EmittedIndices | None = self
        while scope is not None:
            yield scope
            scope = scope._outer


class LoopValues:
    """The indices of the loops around the insertion point."""

    def __init__(
        self,
        values: LoopIndices | None = None,
        emitted: EmittedIndices | None = None,
        threads: frozenset[str] = frozenset(),
        iteration: LoopIndices | None = None,
        outer: frozenset[Variable] = frozenset(),
    ) -> None:
        self._values: LoopIndices = values or {}
        self._iteration = iteration
        """The indices of the iteration that is emitted, where they are moved."""
        self._threads = threads
        """The loops whose iterations are threads."""
        self._outer = outer
        """The loops whose terms are one sum, that of `start`."""
        if emitted is None or emitted.block != ir.InsertionPoint.current.block:
            emitted = EmittedIndices(emitted)
        self._emitted = emitted

    def __getitem__(self, loop: Variable) -> LoopValue:
        return self._values[loop]

    def __contains__(self, loop: object) -> bool:
        return loop in self._values

    def at(self, indices: LoopIndices) -> LoopValues:
        """Return the values inside of these loops too, at the insertion point."""
        iteration = None if self._iteration is None else {**self._iteration, **indices}
        return LoopValues({**self._values, **indices}, self._emitted, self._threads, iteration, self._outer)

    def start(self, expression: IndexExpr) -> Value:
        """Emit the start of an expression in loops inside of these: its constant, and its terms of these loops."""
        terms = {atom: count for atom, count in expression.terms.items() if atom in self}
        return self.emit(IndexExpr(terms, expression.constant))

    def inside(self, indices: LoopIndices) -> LoopValues:
        """Return the values at an iteration of loops inside of these: expressions are their start, and the rest."""
        emitted = EmittedIndices(self._emitted)
        return LoopValues({**self._values, **indices}, emitted, self._threads, outer=frozenset(self._values))

    def moved(self, key: object, emit: Callable[[], LoopIndices]) -> LoopValues:
        """Return the values with other indices for some of the loops, which are emitted where the key is new."""
        here = ir.InsertionPoint.current.block
        moved = next((scope.moved[key] for scope in self._emitted.around() if key in scope.moved), None)
        if moved is None:
            moved = emit(), EmittedIndices()
            if here == self._emitted.block:
                self._emitted.moved[key] = moved
        indices, emitted = moved
        return LoopValues({**self._values, **indices}, emitted, self._threads, self._iteration or self._values)

    def in_thread(self, loop: str, index: LoopValue) -> LoopValues:
        """Return the values inside of a loop whose iterations are threads, too."""
        return LoopValues({**self._values, loop: index}, self._emitted, self._threads | {loop}, self._iteration)

    def iteration_of(self, loops: Sequence[str]) -> tuple[LoopValue, ...]:
        """Return the iterations of some loops, as they are where indices are moved."""
        values = self._values if self._iteration is None else self._iteration
        return tuple(values[name] for name in loops)

    def loaded(self, key: object) -> list[ir.Value] | None:
        """Return elements that are loaded in this block or one around it, None if they are not."""
        return next((scope.loaded[key] for scope in self._emitted.around() if key in scope.loaded), None)

    def keep_loaded(self, key: object, elements: list[ir.Value]) -> None:
        """Keep elements that are loaded in this block."""
        if ir.InsertionPoint.current.block == self._emitted.block:
            self._emitted.loaded[key] = elements

    def number(self, expression: IndexExpr) -> Dim | None:
        """Return the value of an expression all of whose loops have an integer as index; None for others."""
        total: Dim = expression.constant
        for atom, count in expression.terms.items():
            if isinstance(atom, FloorDiv):
                replaced = self.with_numbers(expression)
                return replaced.constant if replaced.is_constant else None
            value = self._values.get(atom)
            if not isinstance(value, int):
                return None
            total = total + value * count
        return total

    def with_numbers(self, expression: IndexExpr) -> IndexExpr:
        """Substitute the loops whose index is an integer."""
        known: dict[str, IndexExpr] = {}
        for name in expression.variables():
            value = self._values.get(name)
            if isinstance(value, int):
                known[name] = number(value)
        result: IndexExpr = expression.replace(known) if known else expression
        return result

    def emit(self, expression: IndexExpr | Dim) -> Value:
        """Emit an index expression, or return its value where it is emitted already."""
        if not isinstance(expression, IndexExpr):
            return self._sum({}, expression)
        terms: dict[object, Dim] = {}
        constant: Dim = expression.constant
        starts = IndexExpr()
        for atom, count in expression.terms.items():
            if isinstance(atom, FloorDiv):
                return self._divisions(self.with_numbers(expression))
            value = self._values[atom]
            if isinstance(value, int):
                constant = constant + value * count
            elif isinstance(value, LoopPosition) and (times := value.scaled(count)) is not None:
                terms[value] = times
                constant = constant - value.part.low * times
                starts = starts + value.start * times
            else:
                terms[atom] = count
        for start, count in starts.terms.items():
            terms[start] = terms.get(start, 0) - count
            if terms[start] == 0:
                del terms[start]
        return self._sum(terms, constant)

    def _divisions(self, expression: IndexExpr) -> Value:
        terms, constant = expression.terms_with_remainders()
        return self._sum(dict(terms), constant)

    def _sum(self, terms: Mapping[object, Dim], constant: Dim) -> Value:
        """Emit a sum of terms and a constant; its terms without the constant, and multiples, are found again too."""
        key = frozenset(terms.items()), constant
        result = self._emitted.find(key)
        if result is None:
            result = self._new_sum(terms, constant)
            # Values of a region inside of the block, such as a branch, are not visible after it.
            if ir.InsertionPoint.current.block == self._emitted.block:
                self._emitted.add(key, result)
        return result

    def _new_sum(self, terms: Mapping[object, Dim], constant: Dim) -> Value:
        if not terms:
            return index(constant)
        outer: dict[object, Dim] = {}
        if self._outer:
            outer = {atom: count for atom, count in terms.items() if atom in self._outer}
        if 0 < len(outer) < len(terms):
            inner = ((atom, count) for atom, count in terms.items() if atom not in outer)
            return sum((self._sum({atom: count}, 0) for atom, count in inner), self._sum(outer, constant))
        if constant != 0:
            before = _shared_part(constant)
            return self._sum(terms, before) + self._sum({}, constant - before)
        if len(terms) == 1:
            ((atom, count),) = terms.items()
            if count == 1:
                return self._atom(atom)
            return self._sum({atom: 1}, 0) * self._sum({}, count)
        total: Value | None = None
        for part, count in self._parts(terms):
            value = self._sum({atom: step * count for atom, step in part.items()}, 0) if len(part) == 1 else None
            if value is None:
                value = self._pair(part) if count == 1 else self._pair(part) * self._sum({}, count)
            total = value if total is None else total + value
        assert total is not None
        return total

    def _parts(self, terms: Mapping[object, Dim]) -> list[tuple[dict[object, Dim], Dim]]:
        """Return sums that are parts of others, and their counts: the start of a block plus a thread's offset.

        Elements along several dims are found with the same sums.
        """
        left = dict(terms)
        parts: list[tuple[dict[object, Dim], Dim]] = []
        for atom in sorted((atom for atom in terms if str(atom) in self._threads), key=str):
            count = terms[atom]
            steps = [
                (step // count, str(other), other)
                for other, step in left.items()
                if str(other) not in self._threads and isinstance(step, int) and isinstance(count, int)
                and count > 0 and step > count and step % count == 0
            ]  # fmt: skip
            if steps:
                ratio, _, other = min(steps)
                parts.append(({other: ratio, atom: 1}, count))
                del left[other], left[atom]
        parts += [({atom: left[atom]}, 1) for atom in sorted(left, key=_name)]
        return parts

    def _pair(self, terms: Mapping[object, Dim]) -> Value:
        """Emit the position of a thread: the start of its block, plus its own index."""
        key = frozenset(terms.items()), 0
        result = self._emitted.find(key)
        if result is None:
            (first, step), (second, _) = terms.items()
            result = self._sum({first: step}, 0) + self._sum({second: 1}, 0)
            if ir.InsertionPoint.current.block == self._emitted.block:
                self._emitted.add(key, result)
        return result

    def _atom(self, atom: object) -> Value:
        if isinstance(atom, (FloorDiv, Remainder)):
            return self._division(atom)
        if isinstance(atom, LoopPosition):
            return Value(atom.value)
        value = self._values[atom]
        assert not isinstance(value, int), "integers are substituted"
        return value.index(self) if isinstance(value, LoopPosition) else Value(value)

    def _division(self, atom: FloorDiv | Remainder) -> Value:
        kind = ir.IndexType.get()
        # A divisor is the extent of a loop around this: it is not zero where it divides.
        value, divisor = self.emit(atom.inner), self.emit(atom.divisor)
        terms, constant = atom.inner.terms_with_remainders()
        is_positive = all(D.is_certain(partial(le, 0, part)) for part in (constant, *(count for _, count in terms)))
        if isinstance(atom, FloorDiv):
            return create("arith.divui" if is_positive else "arith.floordivsi", kind, value, divisor)
        if is_positive:
            return create("arith.remui", kind, value, divisor)
        quotient = create("arith.floordivsi", kind, value, divisor)
        return value - quotient * divisor
