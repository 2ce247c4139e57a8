"""Loops that do nothing but sum products of elements in memory, as most of the time of most kernels is.

One function computes the sums of all such loops (`sum_functions.py`): LLVM compiles no loops for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.values import INDEX_BITS, IntValue, is_float, lanes_of
from mirlo.runtime.records import dataclass

LOADS = ("memref.load", "vector.load")
_SAME = ("vector.broadcast", "arith.extf")
"""Operations whose result has the numbers of their operand."""
_IGNORED = ("memref.prefetch",)
_PURE = ("arith.", "affine.")
"""Dialects of operations that only compute their results."""
_LINEAR = ("arith.addi", "arith.subi", "arith.muli", "affine.apply")
"""Operations of indices that may change with the iteration."""


@dataclass(frozen=True)
class SumTerm:
    """A product of loaded elements that each iteration adds to a carried sum."""

    total: int
    """The position of the sum among the carried values."""
    loads: tuple[ir.Operation, ir.Operation]


@dataclass(frozen=True)
class SumLoop:
    """A loop whose carried values are sums of products of loaded elements."""

    counter: ir.Value
    products: Sequence[SumTerm]
    fixed: Sequence[ir.Operation]
    """Operations that compute the same in each iteration."""
    lanes: int | None
    """The lanes of all sums."""

    @property
    def has_one_each(self) -> bool:
        """Return whether an iteration adds one product to each sum."""
        return len({each.total for each in self.products}) == len(self.products)


@dataclass
class _Values:
    """What is known of the values of a loop's body."""

    moving: set[ir.Value]
    """Values that may change with the iteration."""
    totals: dict[ir.Value, int]
    """Sums, by the carried value that they add to."""
    loaded: dict[ir.Value, ir.Operation] = field(default_factory=dict)
    products: dict[ir.Value, tuple[ir.Operation, ir.Operation]] = field(default_factory=dict)
    """Products that are not added yet."""
    added: list[SumTerm] = field(default_factory=list)
    fixed: list[ir.Operation] = field(default_factory=list)

    def take(self, op: ir.Operation) -> bool:
        """Add an operation; return False if the loop does something else than to sum products."""
        name, operands = op.name, list(op.operands)
        if name in _IGNORED:
            return True
        if name in LOADS:
            self.loaded[op.results[0]] = op
            return is_float(_element(op.results[0].type))
        if name in _SAME and operands[0] in self.loaded:
            self.loaded[op.results[0]] = self.loaded[operands[0]]
            return True
        if name == "vector.fma":
            return self._multiply(op.results[0], *operands[:2]) and self._add(op.results[0], op.results[0], operands[2])
        if name == "arith.mulf":
            return self._multiply(op.results[0], *operands)
        if name == "arith.addf":
            return self._add(op.results[0], *operands) or self._add(op.results[0], *reversed(operands))
        if not name.startswith(_PURE) or any(value in self.loaded or value in self.totals for value in operands):
            return False
        if any(value in self.moving for value in operands):
            self.moving.add(op.results[0])
            return name in _LINEAR
        self.fixed.append(op)
        return True

    def _multiply(self, result: ir.Value, left: ir.Value, right: ir.Value) -> bool:
        if left not in self.loaded or right not in self.loaded:
            return False
        self.products[result] = self.loaded[left], self.loaded[right]
        return True

    def _add(self, result: ir.Value, product: ir.Value, total: ir.Value) -> bool:
        if product not in self.products or total not in self.totals or not _is_used_once(total):
            return False
        if product != result and not _is_used_once(product):
            return False
        self.totals[result] = self.totals.pop(total)
        self.added.append(SumTerm(self.totals[result], self.products.pop(product)))
        return True


def sum_loop(op: ir.Operation) -> SumLoop | None:
    """Return a loop as sums of products, None if it is anything else."""
    block = op.regions[0].blocks[0]
    counter, *carried = block.arguments
    *operations, terminator = block.operations
    if not carried or not all(is_float(_element(value.type)) for value in carried):
        return None
    values = _Values({counter}, {value: i for i, value in enumerate(carried)})
    if not all(values.take(each.operation) for each in operations) or values.products:
        return None
    if [values.totals.get(value) for value in terminator.operation.operands] != list(range(len(carried))):
        return None
    lanes = {lanes_of(value.type) for value in carried}
    if len(lanes) != 1 or any((each or 2) % 2 for each in lanes) or not values.added:
        return None
    return SumLoop(counter, values.added, values.fixed, lanes.pop())


def _element(kind: ir.Type) -> ir.Type:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


def _is_used_once(value: ir.Value) -> bool:
    return sum(1 for _ in value.uses) == 1


class LinearIndex(NamedTuple):
    """An index in a loop: a value that is known before the loop, a constant, and a step for each iteration."""

    root: IntValue | None
    constant: int
    step: int


class IndexEmitter:
    """The indices of a loop, of which those parts are emitted that no constants are."""

    def __init__(
        self, arith: Callable[[str, IntValue, IntValue], IntValue], known: Mapping[ir.Value, object],
        counter: ir.Value, first: LinearIndex,
    ):  # fmt: skip
        """Take the emitter of arithmetic, the values before the loop, and the counter with its linear function."""
        self._emit, self._known = arith, known
        self._indices = {counter: first}
        self._emitted: dict[tuple[str, str, str], IntValue] = {}

    def arith(self, op: str, a: IntValue, b: IntValue) -> IntValue:
        """Return the result of an instruction, which is emitted once."""
        key = op, a.name, b.name
        if key not in self._emitted:
            self._emitted[key] = self._emit(op, a, b)
        return self._emitted[key]

    def index(self, value: ir.Value) -> LinearIndex | None:
        """Return an index as a linear function of the iteration; None if it is none with constant factors."""
        if value not in self._indices:
            index = self._computed(value)
            if index is None:
                return None
            self._indices[value] = index
        return self._indices[value]

    def _computed(self, value: ir.Value) -> LinearIndex | None:
        known = self._known.get(value)
        if isinstance(known, IntValue):
            return self.of(known)
        owner = value.owner.operation
        if owner.name == "affine.apply":
            map_ = ir.AffineMapAttr(owner.attributes["map"]).value
            operands = [self.index(each) for each in owner.operands]
            return self._affine(map_.results[0], operands[: map_.n_dims], operands[map_.n_dims :])
        left, right = (self.index(each) for each in owner.operands)
        if owner.name == "arith.muli":
            return self.product(left, right)
        return self.total(left, self.product(right, LinearIndex(None, -1, 0)) if owner.name == "arith.subi" else right)

    @staticmethod
    def of(known: IntValue) -> LinearIndex:
        return LinearIndex(known, 0, 0) if known.constant is None else LinearIndex(None, known.constant, 0)

    def total(self, a: LinearIndex | None, b: LinearIndex | None) -> LinearIndex | None:
        if a is None or b is None:
            return None
        root = a.root or b.root
        if a.root is not None and b.root is not None:
            root = self.arith("add", a.root, b.root)
        return LinearIndex(root, a.constant + b.constant, a.step + b.step)

    def product(self, a: LinearIndex | None, b: LinearIndex | None) -> LinearIndex | None:
        if a is None or b is None:
            return None
        if b.root is not None or b.step:
            a, b = b, a
        if b.root is not None or b.step:
            return None
        factor = b.constant
        root = a.root
        if root is not None and factor != 1:
            root = self.arith("mul", root, IntValue(str(factor), INDEX_BITS))
        return LinearIndex(root, a.constant * factor, a.step * factor)

    def _affine(
        self, expression: ir.AffineExpr, dims: Sequence[LinearIndex | None], symbols: Sequence[LinearIndex | None]
    ) -> LinearIndex | None:
        if isinstance(expression, ir.AffineDimExpr):
            return dims[expression.position]
        if isinstance(expression, ir.AffineSymbolExpr):
            return symbols[expression.position]
        if isinstance(expression, ir.AffineConstantExpr):
            return LinearIndex(None, expression.value, 0)
        if not isinstance(expression, (ir.AffineAddExpr, ir.AffineMulExpr)):
            return None
        left, right = (self._affine(each, dims, symbols) for each in (expression.lhs, expression.rhs))
        return self.total(left, right) if isinstance(expression, ir.AffineAddExpr) else self.product(left, right)
