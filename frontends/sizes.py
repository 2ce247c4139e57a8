"""Arithmetic on sizes while importing: computations on the dims of inputs, and equations that operators require.

It is exact, or not done: a result that depends on the values of symbols raises `Undecided`, and the call computes it.

A program may name two dims differently that can only be equal, or leave a dim dynamic that can only be one number.
When an operator finds that, the equation is solved for one of the inputs' symbols, and the import restarts with the
solution. Inputs then have dims such as `past + 1`, which are checked against the arguments of a call. Data-dependent
sizes are solved for too, and checked when they are known: the import resumes before the node that made the symbol. If
no symbol can be solved for, the dims are assumed equal, with the same check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from functools import cached_property, reduce
from zlib import crc32

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.runtime.records import dataclass


class Undecided(Exception):
    """The answer depends on the values of symbols."""


def quotient(total: Dim, part: Dim) -> Dim | None:
    """Return `total / part` if it is exact for all values of the symbols, else None."""
    if part == 0:
        return None
    return total // part if total % part == 0 else None


@dataclass(frozen=True)
class SizeArithmetic:
    """Arithmetic of integer operators on dims whose symbols have a least value."""

    least: int

    def is_nonnegative(self, dim: Dim) -> bool:
        """Return whether a dim is never negative."""
        if self.least and not isinstance(dim, int):
            dim = D.substitute(dim, {name: D.symbol(name) + self.least for name in dim.symbols()})
        return D.is_nonnegative(dim)

    def sign(self, dim: Dim) -> int:
        """Return the sign of a dim, which all values of its symbols agree on."""
        if dim == 0:
            return 0
        if self.is_nonnegative(dim - 1):
            return 1
        if self.is_nonnegative(dim * -1 - 1):
            return -1
        raise Undecided

    def divide(self, left: Dim, right: Dim) -> Dim:
        """Return the integer quotient, rounded towards zero."""
        if right == 0:
            raise Undecided
        if isinstance(left, int) and isinstance(right, int):
            return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        exact = quotient(left, right)
        if exact is not None:
            return exact
        if not self.is_nonnegative(right):
            raise Undecided
        if self.is_nonnegative(left):
            return left // right
        if isinstance(right, int) and self.is_nonnegative(left + (right - 1)):  # less than one divisor below zero
            return D.maximum(left // right, 0)
        raise Undecided

    def mod(self, left: Dim, right: Dim) -> Dim:
        """Return the remainder of a floor division, which has the sign of the divisor."""
        if right == 0 or not (isinstance(right, int) or (self.is_nonnegative(left) and self.is_nonnegative(right))):
            raise Undecided
        return left % right

    def fmod(self, left: Dim, right: Dim) -> Dim:
        """Return the remainder of `divide`, which has the sign of the dividend."""
        if isinstance(left, int) and isinstance(right, int) and right:
            return abs(left) % abs(right) * (1 if left >= 0 else -1)
        if not self.is_nonnegative(left) or not self.is_nonnegative(right):
            raise Undecided
        return self.mod(left, right)

    def maximum(self, left: Dim, right: Dim) -> Dim:
        """Return the larger dim: one of the two where that is known."""
        return left if self.is_nonnegative(left - right) else D.maximum(left, right)

    def minimum(self, left: Dim, right: Dim) -> Dim:
        """Return the smaller dim: one of the two where that is known."""
        return right if self.is_nonnegative(left - right) else D.minimum(left, right)

    def equal(self, left: Dim, right: Dim) -> bool:
        """Return whether two dims are equal."""
        return self.sign(left - right) == 0

    def less(self, left: Dim, right: Dim) -> bool:
        """Return whether a dim is less than another; the difference may be zero, but not negative."""
        return not self.is_nonnegative(left - right) and self.sign(right - left) > 0

    @cached_property
    def functions(self) -> Mapping[str, Callable[[Dim, Dim], Dim]]:
        """Return functions of two dims for elementwise operators of relax, by name."""
        return {
            "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
            "divide": self.divide, "mod": self.mod, "fmod": self.fmod, "maximum": self.maximum,
            "minimum": self.minimum, "equal": self.equal, "not_equal": lambda a, b: not self.equal(a, b),
            "less": self.less, "greater": lambda a, b: self.less(b, a),
            "less_equal": lambda a, b: not self.less(b, a), "greater_equal": lambda a, b: not self.less(a, b),
        }  # fmt: skip


OF_ARRAYS = SizeArithmetic(0)
"""Arithmetic on dims of arrays, which may be empty."""
OF_INPUTS = SizeArithmetic(1)
"""Arithmetic on dims of inputs that are not empty, as programs of JAX have them."""


@dataclass(frozen=True)
class DimFraction:
    """A dim, which may be negative, divided by a power of two."""

    numerator: Dim
    denominator: int = 1

    @staticmethod
    def of(numerator: Dim, denominator: int) -> DimFraction:
        """Return a fraction in lowest terms."""
        terms = [numerator] if isinstance(numerator, int) else [factor for _, factor in numerator.terms]
        common = math.gcd(denominator, *terms)
        return DimFraction(numerator // common, denominator // common)

    def __add__(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, lambda a, b: a + b))

    def __sub__(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, lambda a, b: a - b))

    def __mul__(self, other: DimFraction) -> DimFraction:
        if not isinstance(self.numerator, int) and not isinstance(other.numerator, int):
            raise Undecided  # a product of dims may exceed what f32 holds exactly
        return DimFraction.of(self.numerator * other.numerator, self.denominator * other.denominator)

    def __truediv__(self, other: DimFraction) -> DimFraction:
        number = other.numerator
        if not isinstance(number, int) or number <= 0 or number & (number - 1):
            raise Undecided
        return self * DimFraction(other.denominator, number)

    def maximum(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, D.maximum))

    def minimum(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, D.minimum))

    def floor(self) -> DimFraction:
        return DimFraction(self.numerator // self.denominator)

    def ceil(self) -> DimFraction:
        return DimFraction(D.ceildiv(self.numerator, self.denominator))

    def truncated(self) -> Dim:
        """Return the integer towards zero."""
        if self.denominator == 1:
            return self.numerator
        if not D.is_nonnegative(self.numerator):
            raise Undecided
        return self.numerator // self.denominator

    def _common(self, other: DimFraction, apply: Callable[[Dim, Dim], Dim]) -> tuple[Dim, int]:
        """Return the result of a function of both numerators over a common denominator."""
        common = math.lcm(self.denominator, other.denominator)
        left, right = (each.numerator * (common // each.denominator) for each in (self, other))
        return apply(left, right), common


FRACTION_FUNCTIONS: Mapping[str | None, Callable[[DimFraction], DimFraction]] = {
    "ceil": DimFraction.ceil, "floor": DimFraction.floor, "relu": lambda x: x.maximum(DimFraction(0)),
    "negative": lambda x: DimFraction(0) - x,
}  # fmt: skip
"""What operators of relax compute of a fraction, by their names."""
FRACTION_ARITHMETIC: Mapping[str | None, Callable[[DimFraction, DimFraction], DimFraction]] = {
    "add": DimFraction.__add__, "subtract": DimFraction.__sub__, "multiply": DimFraction.__mul__,
    "divide": DimFraction.__truediv__, "maximum": DimFraction.maximum, "minimum": DimFraction.minimum,
}  # fmt: skip
"""What operators of relax compute of two fractions, by their names."""


def broadcast_dim(left: Dim, right: Dim) -> Dim | None:
    """Return the dim that two dims broadcast to, each of which may be 1, or equal to the other; None if undecided."""
    if left == 1 or left == right or (isinstance(left, int) and isinstance(right, int) and right != 1):
        return right
    if right == 1:
        return left
    for one, other in ((left, right), (right, left)):
        if isinstance(one, int):
            return one
        if D.is_nonnegative(1 - one):  # 0 or 1
            return one * other
        if other == D.maximum(one, 0):  # a dim of an array is not negative
            return one
    for one, other in ((left, right), (right, left)):
        if _is_equal_unless_empty(one, other):
            return one
    largest = D.maximum(left, right)
    result = largest * D.minimum(1, left) * D.minimum(1, right)
    return result if result in (left, right) else None


def _is_equal_unless_empty(one: Dim, other: Dim) -> bool:
    """Return whether a dim is 0 where some symbol is, and equal to the other dim where none is."""
    names = D.symbols_of(one)
    if not names or D.symbols_of(other) != names:
        return False
    positive = {name: D.symbol(name) + 1 for name in names}
    return D.substitute(one, positive) == D.substitute(other, positive) and all(
        D.substitute(one, {name: 0}) == 0 for name in names
    )


def broadcast_of(dims: Collection[Dim]) -> Dim:
    """Return the dim that dims broadcast to, each of which may be 1 in a call: the largest, or 0 if one is 0."""
    ordered = sorted(dims, key=str)
    return reduce(D.maximum, ordered) * D.product([D.minimum(1, dim) for dim in ordered])


MULTIPLE = "_times"
"""The end of the name of a symbol that stands for a quotient."""


def divisor_of(dim: Dim) -> int | None:
    """Return the number that must divide a dim; None if the dim is not that number times the symbol of a quotient."""
    terms = D.terms_of(dim)
    if len(terms) != 1 or len(terms[0][0]) != 1 or not terms[0][0][0].endswith(f"_per_{terms[0][1]}{MULTIPLE}"):
        return None
    return terms[0][1]


MAX_EQUATIONS = 64
"""Most times that the nodes of a model are imported again for equations."""


class Solved(Exception):
    """Raised when a symbol of the inputs, or of a data-dependent size, must equal this dim."""

    def __init__(self, name: str, dim: Dim, of_data: bool = False) -> None:
        super().__init__(name)
        self.name = name
        self.dim = dim
        self.of_data = of_data
        self.also: list[Solved] = []
        """What follows for other symbols of the inputs, in this order, from what else the node requires."""

    def substitute(self, dim: Dim) -> Dim:
        """Return a dim with these solutions substituted."""
        for each in (self, *self.also):
            dim = D.substitute(dim, {each.name: each.dim})
        return dim


@dataclass
class Solutions:
    """The solutions found so far, by symbol."""

    dims: dict[str, Dim] = field(default_factory=dict)
    restarts: int = 0
    """Imports that began with the first node again."""
    _of_data: set[str] = field(default_factory=set)
    _repeated: int = 0
    """Nodes that were imported again from a checkpoint."""

    @property
    def is_open(self) -> bool:
        """Return whether further equations may be solved."""
        return self.restarts < MAX_EQUATIONS

    def add(self, solved: Solved) -> None:
        """Add the solution for one symbol."""
        self._substitute({solved.name: solved.dim})
        if solved.of_data:
            self._of_data.add(solved.name)

    def restart(self, solved: Solved) -> None:
        """Add the solution for one symbol before the import begins with the first node again."""
        self.restarts += 1
        for each in (solved, *solved.also):
            self.add(each)
        if not solved.of_data:  # symbols of data-dependent sizes may be named differently now, and are solved again
            self.dims = {name: dim for name, dim in self.dims.items() if name not in self._of_data}
            self._of_data.clear()

    def restart_with(self, sizes: Mapping[str, Dim]) -> None:
        """Add data-dependent sizes before the import begins with the first node again.

        They stand in the order in which their symbols were created: a later one may depend on those before.
        """
        self.restarts += 1
        known = dict(self.dims)
        for name, dim in sizes.items():
            known[name] = D.substitute(dim, known)
        self._substitute({name: known[name] for name in sizes})
        self._of_data.update(sizes)

    def add_repeated(self, nodes: int, imported: int) -> bool:
        """Count nodes that are imported again; return whether their number is allowed for an import of this size."""
        self._repeated += nodes
        return self._repeated <= MAX_EQUATIONS * imported

    def _substitute(self, solutions: Mapping[str, Dim]) -> None:
        self.dims = {name: D.substitute(dim, solutions) for name, dim in self.dims.items()} | dict(solutions)


def solve(left: Dim, right: Dim, symbols: Collection[str], of_data: Mapping[str, int] | None = None) -> Solved | None:
    """Return the solution for one of these symbols that makes two dims equal; None if there is none.

    Of symbols for data-dependent sizes, solve for the one that was created last.
    """
    if left is D.UNKNOWN or right is D.UNKNOWN:
        return None
    difference = left - right
    if isinstance(difference, int):
        return None
    names = D.symbols_of(difference)
    positions = of_data or {}
    data_names = sorted((name for name in names if name in positions), key=positions.__getitem__)
    if any(name not in symbols and name not in data_names and not name.endswith(MULTIPLE) for name in names):
        return None
    candidates = data_names[-1:] or symbols
    solutions = []
    for atoms, factor in difference.terms:
        rest = difference - D.SymbolicDim(((atoms, factor),))
        if len(atoms) != 1 or atoms[0] not in candidates or atoms[0] in D.symbols_of(rest):
            continue
        dim = quotient(rest * -1, factor)
        if dim is not None and not (isinstance(dim, int) and dim < 0):
            solutions.append(Solved(atoms[0], dim, bool(data_names)))
    return min(solutions, key=_preference) if solutions else None


def _preference(solved: Solved) -> tuple[bool, bool, int]:
    """Rank solutions: numbers first; a difference last, since its sign is known at run time only."""
    dim = solved.dim
    return not isinstance(dim, int), not D.is_certain(lambda: dim >= 0), len(str(dim))


def multiple_of(dim: Dim, number: int) -> Dim:
    """Write a dim that must be a multiple of a number in a form that shows it."""
    name = "".join(part if part.isalnum() or part in "._" else "_" for part in str(dim))
    return D.symbol(f"{'_' * name[0].isdigit()}{name}_per_{number}{MULTIPLE}") * number


def divisible(dim: Dim, number: int) -> tuple[Dim, Dim]:
    """Return two dims that are equal if this number divides the dim: `3*n` is a multiple of 6 if `n` is one of 2."""
    common = math.gcd(*(factor for _, factor in D.terms_of(dim)))
    part = dim // max(common, 1)
    return part, multiple_of(part, number // math.gcd(number, common))


@dataclass(frozen=True)
class SymbolMark:
    """The number of symbols of each kind at a point of an import."""

    count: int
    of_data: int
    bound: int
    broadcasts: int


class DimSymbols:
    """The symbols of a function that is being built.

    Those of its inputs may be solved for, if there are `solutions` to add to. Others stand for sizes that data
    determine, and for what dims broadcast to. The latter remain symbols until the import ends, because operators may
    require one of the dims.
    """

    def __init__(self, taken: set[str], solutions: Solutions | None = None) -> None:
        self.taken = taken
        """Names of dims of the inputs."""
        self.solutions = solutions
        """The solutions of symbols; None if none are searched for."""
        self.bound: dict[str, None] = {}
        """Symbols that are bound to run-time values, in order of creation."""
        self._of_data: dict[str, int] = {}
        """Symbols for data-dependent sizes, with their position in the order of creation."""
        self._count = 0
        """Number of symbols made for data-dependent sizes."""
        self._sizes: dict[frozenset[Dim], Dim] = {}
        """What dims broadcast to."""
        self._parts: dict[Dim, frozenset[Dim]] = {}
        """The dims of each size that is none of them."""
        self._names: dict[frozenset[Dim], str] = {}
        """The symbol that was made for each."""

    def new(self, base: str) -> str:
        """Return a name that no symbol has; `base` is an identifier."""
        while True:
            self._count += 1
            name = f"{base}.s{self._count}"
            if name not in self.taken:
                return name

    def bind(self, base: str) -> str:
        """Return a new name that is bound to a run-time value."""
        name = self.new(base)
        self.bound[name] = None
        return name

    def of_data(self, base: str) -> tuple[str, Dim]:
        """Return a new name for a data-dependent size, and the dim it must equal: its symbol if any dim will do."""
        name = self.bind(base)
        if self.solutions is None:
            return name, D.symbol(name)
        return name, self._required(name)

    def _required(self, name: str) -> Dim:
        """Return the dim that a new symbol must equal."""
        assert self.solutions is not None
        self._of_data[name] = len(self._of_data)
        return self.solutions.dims.get(name, D.symbol(name))

    def solve(self, left: Dim, right: Dim, with_inputs: bool) -> Solved | None:
        """Return the solution for a symbol, of inputs or of data, for two dims that must be equal."""
        inputs = self.taken if with_inputs and self.solutions is not None else ()
        return solve(left, right, inputs, self._of_data)

    def broadcast(self, key: str, base: str, dims: Collection[Dim]) -> Dim:
        """Return the dim that dims broadcast to; `key` identifies the place across imports."""
        parts = self._flat(dims)
        if parts not in self._sizes:
            if self.solutions is None:
                size = broadcast_of(parts)
            else:
                name = f"{base}.at_{crc32(key.encode()):x}"
                while name in self._of_data or name in self.taken:
                    name += "_"
                size = self._required(name)
                self._names[parts] = name
            self._sizes[parts] = size
            if size not in parts:
                self._parts[size] = parts
        return self._sizes[parts]

    def broadcast_requirement(self, dims: Collection[Dim]) -> tuple[Dim, Dim] | None:
        """Return the size that operators require of the broadcast of dims, and the broadcast; None if one is the other.

        Dims that are all 1 broadcast to any size, but their broadcast is 1.
        """
        parts = self._flat(dims)
        size, name = self._sizes[parts], self._names.get(parts)
        if name is None or size in parts or size == D.symbol(name) or size == (broadcast := broadcast_of(parts)):
            return None
        return size, broadcast

    def _flat(self, dims: Collection[Dim]) -> frozenset[Dim]:
        """Return dims with the dims of each broadcast in its place."""
        return frozenset().union(*(self._parts.get(dim, frozenset([dim])) for dim in dims))

    def undecided(self) -> dict[str, Dim]:
        """Return the dims that symbols of broadcasts stand for, where no operator required more."""
        return {
            name: broadcast_of(parts) for parts, name in self._names.items() if self._sizes[parts] == D.symbol(name)
        }

    def mark(self) -> SymbolMark:
        """Return a point to which `restore` returns."""
        return SymbolMark(self._count, len(self._of_data), len(self.bound), len(self._sizes))

    def is_made_after(self, name: str, mark: SymbolMark) -> bool:
        """Return whether a symbol for a size of data was made after a point."""
        return self._of_data.get(name, -1) >= mark.of_data

    def restore(self, mark: SymbolMark) -> None:
        """Forget the symbols that were made after a point."""
        self._count = mark.count
        while len(self._of_data) > mark.of_data:
            self._of_data.popitem()
        while len(self.bound) > mark.bound:
            self.bound.popitem()
        while len(self._sizes) > mark.broadcasts:
            parts, size = self._sizes.popitem()
            self._parts.pop(size, None)
            self._names.pop(parts, None)
