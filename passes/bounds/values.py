"""The values of a kernel that indices are computed from, read as index expressions, and conditions read as facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, floor_divide, loop_index, number
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.affine import read_affine
from mirlo.dialects.tir.buffers import INPLACE
from mirlo.passes.bounds.conditions import INDEX_BITS, comparison_facts, constant_condition, width_of
from mirlo.passes.bounds.data import COUNT, LAUNCH, DataDependence, launch_sizes
from mirlo.passes.bounds.limits import SAFE, Limits
from mirlo.passes.bounds.local_buffers import RESHAPES, Merged, Reaching
from mirlo.passes.bounds.prover import Case, Facts, Prover
from mirlo.runtime.records import dataclass

REARRANGED = (
    "vector.shuffle",
    "vector.shape_cast",
    "vector.transpose",
    "vector.extract_strided_slice",
    "vector.insert_strided_slice",
    "vector.insert",
    "vector.interleave",
    "vector.from_elements",
)
"""Operations whose result consists of lanes of their operands."""


_READS = ("memref.load", "vector.load", "vector.maskedload", "vector.gather")


@dataclass(frozen=True)
class Content:
    """Bounds of the elements of a buffer on the stack."""

    lows: tuple[IndexExpr, ...] = ()
    highs: tuple[IndexExpr, ...] = ()
    from_data: bool = False


class ValueReader:
    """The index expressions of the values of one kernel, read when they are needed."""

    def __init__(
        self,
        prover: Prover,
        parameters: Mapping[int, Dim],
        constants: Mapping[int, ir.Attribute],
        data: DataDependence,
    ) -> None:
        self.prover = prover
        self.data = data
        self.parameters = parameters
        """Dims that parameters of the kernel hold, by position."""
        self.constants = constants
        """The elements of buffers that are constants, by the position of the parameter."""
        self._exact, self._clamped = Limits(prover), Limits(prover, only_clamped=True)
        self._read: dict[ir.Value, IndexExpr] = {}
        self._facts: dict[tuple[ir.Value | ir.Block, bool], Facts] = {}
        """What holds where a condition does, or does not, and in a block."""
        self._lanes: dict[tuple[int, int], IndexExpr] = {}
        self._contents: dict[ir.Value, Content | None] = {}
        self._elements: dict[tuple[object, ...], IndexExpr] = {}
        """Elements of parameters that are only read, by parameter and position."""
        self._ranges: dict[int, tuple[int, int] | None] = {}
        self.tables: dict[int, Sequence[int]] = {}
        """The elements, by lane, of variables that stand for one-dimensional vectors of constants."""

    def read(self, value: ir.Value) -> IndexExpr:
        """Return the expression of a scalar, or of any lane of a vector."""
        known = self._read.get(value)
        if known is None:
            known = self._read_new(value)
            self._read[value] = known
        return known

    def _read_new(self, value: ir.Value) -> IndexExpr:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return self._read_argument(ir.BlockArgument(value), owner)
        op = owner.operation
        reader = _READERS.get(op.name)
        if op.name == "scf.if":
            result: IndexExpr | None = self.branch(op, ir.OpResult(value).result_number)
        else:
            result = reader(self, op) if reader is not None else None
        if result is None:
            return self._unknown(op, value.type)
        return result if op.name in _EXACT else self._within_width(result, value.type)

    def lane(self, size: int, from_end: int = 0) -> IndexExpr:
        """Return the number of a lane along a dim of vectors; all vectors of a size share it."""
        if size == 1:
            return number(0)
        known = self._lanes.get((size, from_end))
        if known is None:
            known = self.prover.variable([number(0)], [number(size - 1)])
            self._lanes[size, from_end] = known
            self._add_table(known, range(size))
        return known

    def _add_table(self, variable: IndexExpr, elements: Sequence[int]) -> None:
        (name,) = variable.terms
        self.tables[name] = elements

    def in_lane(self, expression: IndexExpr, lane: int) -> IndexExpr:
        """Return an expression of vectors in one of their lanes, where their constants have one value."""

        def value(name: int) -> IndexExpr:
            table = self.tables.get(name)
            return loop_index(name) if table is None else number(table[lane])

        return expression.substitute(value)

    # ------------------------------------------------------------------------------------------------------- arguments

    def _read_argument(self, argument: ir.BlockArgument, block: ir.Block) -> IndexExpr:
        op = block.owner.operation
        position = argument.arg_number
        if op.name == "func.func" and position in self.parameters:
            return number(self.parameters[position])
        if op.name == "scf.for" and position == 0:
            return self._read_loop(op)
        if op.name == LAUNCH:
            return self._read_thread(op, position)
        return self.prover.variable(from_data=self.data.is_from_data(argument))

    def _read_thread(self, op: ir.Operation, position: int) -> IndexExpr:
        """Return the number of a block or thread along an axis of a launch, or how many there are."""
        axes = len(launch_sizes(op))
        size = self.read(launch_sizes(op)[position % axes])
        if position >= axes:
            return size
        return self.prover.variable([number(0)], [size - 1], from_data=self._of_data(size))

    def _read_loop(self, op: ir.Operation) -> IndexExpr:
        lower, upper, step = (self.read(op.operands[i]) for i in range(3))
        upper = self.prover.only_case(upper, upper - lower - 1)
        of_data = self._of_data(lower, upper, step)
        if not step.is_constant or not isinstance(step.constant, int) or step.constant < 1:
            return self.prover.variable([lower], [upper - 1], from_data=of_data)
        if step.constant == 1:
            if lower.is_constant and lower.constant == 0:
                return self.prover.variable([lower], [upper - 1], from_data=of_data)
            return self.prover.variable([number(0)], [upper - lower - 1], from_data=of_data) + lower
        last = quotient(upper - lower - 1, step.constant)
        return self.prover.variable([number(0)], [last], from_data=of_data) * step.constant + lower

    # ---------------------------------------------------------------------------------------------------------- widths

    def _unknown(self, op: ir.Operation, kind: ir.Type) -> IndexExpr:
        """Return a value of which only the type is known."""
        bits, _ = width_of(kind)
        if bits >= INDEX_BITS:
            of_data = op.name != COUNT or self.data.is_from_data(op.results[0])
            return self.prover.variable(from_data=of_data, is_free=True)
        if bits == 1:
            return self.prover.variable([number(0)], [number(1)], from_data=True)
        half = 1 << (bits - 1)
        return self.prover.variable([number(-half)], [number(half - 1)], from_data=True, is_free=True)

    def _within_width(self, value: IndexExpr, kind: ir.Type) -> IndexExpr:
        """Return the result of arithmetic, or an unknown value where it may have overflowed.

        Indices, loops and sizes do not overflow 64 bits. Data may: `x + n` is exact only if `x` is known to be small.
        """
        bits, is_index = width_of(kind)
        of_data = self.prover.is_from_data(value)
        if not of_data and (is_index or bits >= INDEX_BITS):
            return value
        low, high = self.prover.interval(value)
        half = min(1 << (bits - 1), SAFE)
        if bits >= INDEX_BITS and self._exact.holds(value):
            return value
        if low is not None and high is not None and -half <= low and high < half:
            return value
        if bits >= INDEX_BITS:
            return self.prover.variable(from_data=of_data, unwrapped=value)
        half = 1 << (bits - 1)
        is_free = not self._clamped.holds(value)
        return self.prover.variable([number(-half)], [number(half - 1)], from_data=of_data, is_free=is_free)

    def unwrap(self, value: IndexExpr, facts: Facts) -> IndexExpr:
        """Return a value with the sums in it that do not overflow where the facts hold."""

        def unwrapped(name: int) -> IndexExpr:
            known = self.prover.variables[name].unwrapped
            if known is None:
                return loop_index(name)
            inner = self.unwrap(known, facts)
            return inner if self._exact.holds(inner, facts) else loop_index(name)

        if not any(self.prover.variables[name].unwrapped is not None for name in value.variables()):
            return value
        return value.substitute(unwrapped)

    # ------------------------------------------------------------------------------------------------------ arithmetic

    def operands(self, op: ir.Operation) -> tuple[IndexExpr, IndexExpr]:
        """Return the two operands of an operation."""
        return self.read(op.operands[0]), self.read(op.operands[1])

    def add(self, op: ir.Operation) -> IndexExpr:
        left, right = self.operands(op)
        return left + right

    def subtract(self, op: ir.Operation) -> IndexExpr:
        left, right = self.operands(op)
        return left - right

    def multiply(self, op: ir.Operation) -> IndexExpr:
        left, right = self.operands(op)
        return self._product(left, right)

    def _product(self, left: IndexExpr, right: IndexExpr) -> IndexExpr:
        if right.is_constant:
            return _multiple(left, right.constant)
        if left.is_constant:
            return _multiple(right, left.constant)
        for one, other in ((left, right), (right, left)):
            known = self.prover.known(one)
            if known is not None and known.cases and all(case.value.is_constant for case in known.cases):
                cases = [Case(other * case.value.constant, case.facts) for case in known.cases]
                return self.prover.variable(cases=cases, from_data=self._of_data(left, right))
        lows = [self._least_product(left, right)]
        known_lows = [low for low in lows if low is not None]
        return self.prover.variable(known_lows, from_data=self._of_data(left, right), operands=(left, right))

    def _least_product(self, left: IndexExpr, right: IndexExpr) -> IndexExpr | None:
        lows = (self.prover.interval(left)[0], self.prover.interval(right)[0])
        return number(0) if all(low is not None and low >= 0 for low in lows) else None

    def _of_data(self, *values: IndexExpr) -> bool:
        return any(map(self.prover.is_from_data, values))

    def divide(self, op: ir.Operation) -> IndexExpr | None:
        """Return a quotient that is rounded down, or the same for operands that are not negative."""
        left, right = self.operands(op)
        if not right.is_constant or not _is_positive(right.constant):
            return self._quotient_by_variable(op, left, right)
        if op.name != "arith.floordivsi" and not self.prover.is_nonnegative(left):
            return self.prover.variable(from_data=self._of_data(left), operands=(left,))
        return quotient(left, right.constant)

    def _quotient_by_variable(self, op: ir.Operation, left: IndexExpr, right: IndexExpr) -> IndexExpr:
        """Return a quotient by a value that is no constant: no larger than the dividend if neither is negative."""
        of_data = self._of_data(left, right)
        if self.prover.is_nonnegative(left) and self._is_positive_at(right, op):
            highs = [left, *self._largest_quotients(op, left, right)]
            return self.prover.variable([number(0)], highs, from_data=of_data)
        return self.prover.variable(from_data=of_data, operands=(left,))

    def _largest_quotients(self, op: ir.Operation, left: IndexExpr, right: IndexExpr) -> Iterator[IndexExpr]:
        """Yield `n - 1` where a dividend is less than `n` times the divisor, a dim."""
        if not right.is_constant or isinstance(right.constant, int):
            return
        known = self.prover.known(left)
        ends = [high + 1 for high in known.highs] if known is not None else []
        for end in (*ends, *(fact + left + 1 for fact in self._facts_at(op))):
            if end.is_constant and not isinstance(end.constant, int):
                count = D.apply("floordiv", end.constant, right.constant)
                if count * right.constant == end.constant:
                    yield number(count - 1)

    def ceil_divide(self, op: ir.Operation) -> IndexExpr | None:
        left, right = self.operands(op)
        if not right.is_constant or not _is_positive(right.constant):
            return None
        return quotient(left + (right.constant - 1), right.constant)

    def remainder(self, op: ir.Operation) -> IndexExpr | None:
        left, right = self.operands(op)
        if not self.prover.is_nonnegative(left):
            return self._signed_remainder(op, left, right) if op.name == "arith.remsi" else None
        if right.is_constant and _is_positive(right.constant):
            return left - _multiple(quotient(left, right.constant), right.constant)
        if self._is_positive_at(right, op):
            return self.prover.variable([number(0)], [right - 1, left], from_data=self._of_data(left, right))
        return None

    def _signed_remainder(self, op: ir.Operation, left: IndexExpr, right: IndexExpr) -> IndexExpr | None:
        if not self._is_positive_at(right, op):
            return None
        return self.prover.variable([number(1) - right], [right - 1], from_data=self._of_data(left, right))

    def _is_positive_at(self, value: IndexExpr, op: ir.Operation) -> bool:
        """Return whether a value is at least 1 where an operation is executed."""
        if self.prover.is_nonnegative(value - 1):
            return True
        facts = self._facts_at(op)
        return len(facts) > 0 and self.prover.is_nonnegative(value - 1, facts)

    def shift_left(self, op: ir.Operation) -> IndexExpr | None:
        left, right = self.operands(op)
        return left * (1 << right.constant) if _is_count(right) else None

    def shift_right(self, op: ir.Operation) -> IndexExpr | None:
        left, right = self.operands(op)
        if not _is_count(right) or (op.name == "arith.shrui" and not self.prover.is_nonnegative(left)):
            return None
        return quotient(left, 1 << right.constant)

    def bits_of(self, op: ir.Operation) -> IndexExpr | None:
        """Return the range of `x & mask` for a mask that is not negative."""
        for mask in self.operands(op):
            if mask.is_constant and isinstance(mask.constant, int) and mask.constant >= 0:
                return self.prover.variable([number(0)], [mask], from_data=self._of_data(*self.operands(op)))
        return None

    def minimum(self, op: ir.Operation) -> IndexExpr | None:
        left, right = self.operands(op)
        if op.name == "arith.minui":
            return self._unsigned_minimum(left, right)
        return self._smaller(left, right)

    def _smaller(self, left: IndexExpr, right: IndexExpr) -> IndexExpr:
        if left.is_constant and right.is_constant:
            return number(D.minimum(left.constant, right.constant))
        difference = left - right
        if self.prover.is_certain(difference):
            return right
        if self.prover.is_certain(difference * -1):
            return left
        cases = (Case(left, (difference * -1,)), Case(right, (difference,)))
        return self.prover.variable(highs=(left, right), cases=cases, from_data=self._of_data(left, right))

    def _unsigned_minimum(self, left: IndexExpr, right: IndexExpr) -> IndexExpr | None:
        positive = [value for value in (left, right) if self.prover.is_nonnegative(value)]
        if len(positive) == 2:
            return self._smaller(left, right)
        if positive:
            return self.prover.variable([number(0)], positive, from_data=self._of_data(left, right))
        return None

    def maximum(self, op: ir.Operation) -> IndexExpr | None:
        left, right = self.operands(op)
        if op.name == "arith.maxui" and not all(map(self.prover.is_nonnegative, (left, right))):
            return None
        if left.is_constant and right.is_constant:
            return number(D.maximum(left.constant, right.constant))
        difference = left - right
        if self.prover.is_certain(difference):
            return left
        if self.prover.is_certain(difference * -1):
            return right
        cases = (Case(left, (difference,)), Case(right, (difference * -1,)))
        return self.prover.variable(lows=(left, right), cases=cases, from_data=self._of_data(left, right))

    def select(self, op: ir.Operation) -> IndexExpr | None:
        if width_of(op.results[0].type)[0] == 1:
            return None
        condition = op.operands[0]
        yes, no = self.read(op.operands[1]), self.read(op.operands[2])
        return self._choice(condition, yes, no)

    def _choice(self, condition: ir.Value, yes: IndexExpr, no: IndexExpr) -> IndexExpr:
        if yes == no:
            return yes
        cases = (Case(yes, self.facts(condition, True)), Case(no, self.facts(condition, False)))
        for case, other in (cases, cases[::-1]):
            if any(self.prover.is_certain(fact * -1 - 1) for fact in other.facts):
                return case.value
        from_data = self._of_data(yes, no) or not self._is_of_sizes(condition)
        return self.prover.variable(cases=cases, from_data=from_data, choice=condition)

    def _is_of_sizes(self, condition: ir.Value) -> bool:
        """Return whether a condition depends on loops and sizes only."""
        owner = condition.owner
        if isinstance(owner, ir.Block):
            return False
        op = owner.operation
        if op.name == "arith.cmpi":
            return width_of(op.operands[0].type)[0] > 1 and not self._of_data(*self.operands(op))
        if op.name in ("arith.andi", "arith.ori", "arith.xori"):
            return all(map(self._is_of_sizes, op.operands))
        return bool(op.name == "arith.constant")

    def branch(self, op: ir.Operation, position: int) -> IndexExpr:
        """Return a result of `scf.if`."""
        yes, no = (list(region.blocks[0].operations)[-1].operation.operands[position] for region in op.regions)
        return self._choice(op.operands[0], self.read(yes), self.read(no))

    # ----------------------------------------------------------------------------------------- constants, conversions

    def constant(self, op: ir.Operation) -> IndexExpr | None:
        value = op.attributes["value"]
        if isinstance(value, ir.IntegerAttr):
            return number(value.value)
        if isinstance(value, ir.BoolAttr):
            return number(int(value.value))
        if not isinstance(value, ir.DenseIntElementsAttr):
            return None
        if value.is_splat:
            splat = value.get_splat_value()
            return number(int(splat.value) if isinstance(splat, (ir.IntegerAttr, ir.BoolAttr)) else 0)
        elements = [_signed(each, op.results[0].type) for each in value]
        if elements == list(range(len(elements))) and len(op.results[0].type.shape) == 1:
            return self.lane(len(elements))
        table = self.prover.variable([number(min(elements))], [number(max(elements))])
        if len(op.results[0].type.shape) == 1:
            self._add_table(table, elements)
        return table

    def cast(self, op: ir.Operation) -> IndexExpr | None:
        """Return the value of a cast that keeps it: sign-extended, or not negative."""
        value = self.read(op.operands[0])
        bits, _ = width_of(op.operands[0].type)
        if bits == 1:
            return self.prover.variable([number(0)], [number(1)], from_data=True) if op.name != "arith.extsi" else None
        if op.name in ("arith.extui", "arith.index_castui") and not self.prover.is_nonnegative(value):
            if bits >= INDEX_BITS:
                return None
            is_free, of_data = not self._clamped.holds(value), self._of_data(value)
            return self.prover.variable([number(0)], [number((1 << bits) - 1)], from_data=of_data, is_free=is_free)
        kind = op.results[0].type
        return self._within_width(value, kind) if width_of(kind)[0] < bits else value

    def apply(self, op: ir.Operation) -> IndexExpr | None:
        """Return the value of `affine.apply`."""
        map_ = ir.AffineMapAttr(op.attributes["map"]).value
        if map_.n_symbols:
            return None
        return read_affine(map_.results[0], [self.read(value) for value in op.operands])

    def broadcast(self, op: ir.Operation) -> IndexExpr:
        return self.read(op.operands[0])

    def step(self, op: ir.Operation) -> IndexExpr:
        return self.lane(op.results[0].type.shape[0])

    def extract(self, op: ir.Operation) -> IndexExpr | None:
        """Return one lane of a vector, which need not be that of other vectors."""
        value = self.read(op.operands[0])
        if self._of_data(value):
            return self.rearrange(op)
        lanes = {next(iter(each.terms)): each for each in self._lanes.values()}
        used = [name for name in value.variables() if name in lanes]
        if not used:
            return value
        if any(name >= min(used) and name not in lanes for name in value.variables()):
            return self._range_of(value)
        fresh = {
            name: self.prover.variable(self.prover.variables[name].lows, self.prover.variables[name].highs)
            for name in used
        }
        return value.substitute(lambda name: fresh.get(name, loop_index(name)))

    def rearrange(self, op: ir.Operation) -> IndexExpr | None:
        """Return any lane of a vector that is put together from lanes of others, in another order."""
        parts = [self.read(value) for value in op.operands if not isinstance(value.type, ir.IndexType)]
        if len(parts) == 1:
            lows = [low for low, _ in map(self.prover.interval, parts) if low is not None]
            tops = self.prover.tops(parts[0])
            return self.prover.variable(map(number, lows), tops, from_data=self._of_data(*parts), operands=tuple(parts))
        intervals = [self.prover.interval(part) for part in parts]
        least, most = [low for low, _ in intervals if low is not None], [top for _, top in intervals if top is not None]
        lows = [min(least)] if len(least) == len(parts) else []
        highs = [max(most)] if len(most) == len(parts) else []
        of_data = self._of_data(*parts)
        return self.prover.variable(map(number, lows), map(number, highs), from_data=of_data, operands=tuple(parts))

    def _range_of(self, value: IndexExpr) -> IndexExpr:
        low, high = self.prover.interval(value)
        lows, highs = ([] if bound is None else [number(bound)] for bound in (low, high))
        return self.prover.variable(lows, highs, from_data=self._of_data(value), operands=(value,))

    # --------------------------------------------------------------------------------------------- buffers on the stack

    def load(self, op: ir.Operation) -> IndexExpr | None:
        """Return an element of a buffer on the stack, within the bounds of all that is stored to it."""
        buffer = op.operands[0]
        if not isinstance(op.results[0].type, (ir.IndexType, ir.IntegerType)):
            return None
        owner = buffer.owner
        if isinstance(owner, ir.Block):
            return self._load_parameter(op, ir.BlockArgument(buffer), owner)
        if owner.operation.name != "memref.alloca":
            return self.load_constant(op)
        if buffer not in self._contents:
            self._contents[buffer] = self._find_content(buffer)
        content = self._contents[buffer]
        if content is None:
            return None
        reaching = None if ir.MemRefType(buffer.type).shape else self.data.local_buffers.reaching_value(op)
        if reaching is not None:
            return self._reached(reaching)
        return self.prover.variable(content.lows, content.highs, (), content.from_data)

    def _load_parameter(self, op: ir.Operation, buffer: ir.BlockArgument, block: ir.Block) -> IndexExpr | None:
        """Return an element of a parameter: the same each time where nothing in the kernel writes to it."""
        function = block.owner.operation
        if function.name != "func.func" or not _is_only_read(buffer, function):
            return self.load_constant(op)
        key = (buffer, *(self.read(index) for index in list(op.operands)[1:]))
        known = self._elements.get(key)
        if known is None:
            known = self._elements[key] = self.load_constant(op) or self._unknown(op, op.results[0].type)
        return known

    def load_constant(self, op: ir.Operation) -> IndexExpr | None:
        """Return an element, or a vector of elements, of a buffer of known elements; masked lanes are left out."""
        elements = self._constant_of(op.operands[0])
        if elements is None:
            return None
        low, high = elements
        if op.name in ("vector.maskedload", "vector.gather"):
            default_low, default_high = self.prover.interval(self.read(list(op.operands)[-1]))
            if default_low is None or default_high is None:
                return None
            low, high = min(low, default_low), max(high, default_high)
        return self.prover.variable([number(low)], [number(high)], from_data=True)

    def _constant_of(self, buffer: ir.Value) -> tuple[int, int] | None:
        """Return the least and the greatest element of a buffer that is a constant."""
        while not isinstance(buffer.owner, ir.Block):
            if buffer.owner.operation.name not in RESHAPES:
                return None
            buffer = buffer.owner.operation.operands[0]
        if buffer.owner.owner.operation.name != "func.func":
            return None
        position = ir.BlockArgument(buffer).arg_number
        if position not in self._ranges:
            self._ranges[position] = _range_of_elements(self.constants.get(position))
        return self._ranges[position]

    def _reached(self, value: Reaching) -> IndexExpr:
        if isinstance(value, Merged):
            return self._choice(value.condition, self._reached(value.yes), self._reached(value.no))
        return self.read(value)

    def _find_content(self, buffer: ir.Value) -> Content | None:
        stores = self.data.local_buffers.stores_of(buffer)
        if stores is None:
            return None
        # What is stored though nothing is known of what is loaded, and the sizes and numbers that bound it.
        with self._assume(buffer, Content()):
            stored = [self.read(store.operands[0]) for store in stores]
            # The buffers that conditions depend on are read here: what is found of them is kept.
            for store in stores:
                self._conditions_at(store)
        least = [low for low, _ in map(self.prover.interval, stored) if low is not None]
        lows = (number(min(least)),) if least else ()
        tops = sorted({top for each in stored for top in self.prover.tops(each)}, key=_size)
        for highs in [*((top,) for top in tops), ()]:
            with self._assume(buffer, Content(lows, highs)):
                values = [self.read(store.operands[0]) for store in stores]
                if all(self._is_within(value, lows, highs, op) for value, op in zip(values, stores, strict=True)):
                    return Content(lows, highs, self._of_data(*values))
        return None

    def _is_within(
        self, value: IndexExpr, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], store: ir.Operation
    ) -> bool:
        """Return whether a value is within bounds where it is stored."""
        goals = [value - low for low in lows] + [high - value for high in highs]
        open_goals = [goal for goal in goals if not self.prover.is_certain(goal)]
        if not open_goals:
            return True
        facts = self._facts_at(store)
        return all(self.prover.is_nonnegative(goal, facts) for goal in open_goals)

    @contextmanager
    def _assume(self, buffer: ir.Value, content: Content) -> Iterator[None]:
        """Read values under an assumption about the elements of a buffer."""
        outside = self._read, self._facts, self._contents
        self._read, self._facts = dict(self._read), dict(self._facts)
        self._contents = {**self._contents, buffer: content}
        try:
            yield
        finally:
            inside, (self._read, self._facts, self._contents) = self._contents, outside
            if content == Content():
                # What follows of other buffers though nothing is known of this one holds everywhere.
                del inside[buffer]
                self._contents.update(inside)

    def _facts_at(self, op: ir.Operation) -> Facts:
        """Return the facts that the branches and loops around an operation imply."""
        return self.prover.refine(self._conditions_at(op))

    def _conditions_at(self, op: ir.Operation) -> list[IndexExpr]:
        return [fact for block, _ in self.data.local_buffers.around(op)[:-1] for fact in self.facts_of_block(block)]

    def facts_of_block(self, block: ir.Block) -> Sequence[IndexExpr]:
        """Return the facts that hold in a block because it is executed: conditions, non-empty loops."""
        key = (block, True)
        known = self._facts.get(key)
        if known is None:
            known = self._facts[key] = tuple(self._facts_of_block(block))
        return known

    def _facts_of_block(self, block: ir.Block) -> Sequence[IndexExpr]:
        op = block.owner.operation
        if op.name == "scf.if":
            return self.facts(op.operands[0], block == op.regions[0].blocks[0])
        if op.name == "scf.for":
            length = self.read(op.operands[1]) - self.read(op.operands[0]) - 1
            return () if length.is_constant and isinstance(length.constant, int) else (length,)
        if op.name == "scf.while" and block == op.regions[1].blocks[0]:
            *_, condition = op.regions[0].blocks[0].operations
            return self.facts(condition.operation.operands[0], True)
        if op.name == LAUNCH:
            return [self.read(size) - 1 for size in launch_sizes(op)]
        return ()

    # ------------------------------------------------------------------------------------------------------ conditions

    def facts(self, condition: ir.Value, holds: bool) -> Facts:
        """Return expressions that are not negative where a condition holds, or where it does not."""
        key = (condition, holds)
        known = self._facts.get(key)
        if known is None:
            known = tuple(self._facts_of(condition, holds))
            self._facts[key] = known
        return known

    def _facts_of(self, condition: ir.Value, holds: bool) -> Sequence[IndexExpr]:
        owner = condition.owner
        if isinstance(owner, ir.Block):
            return ()
        op = owner.operation
        if op.name == ("arith.andi" if holds else "arith.ori"):
            return [*self.facts(op.operands[0], holds), *self.facts(op.operands[1], holds)]
        if op.name == "arith.cmpi":
            left, right = self.operands(op)
            return comparison_facts(op, holds, left, right, self.prover)
        if op.name == "arith.constant":
            return self._constant_condition(op, holds)
        if op.name == "arith.xori":
            other = op.operands[1].owner
            if isinstance(other, ir.Operation | ir.OpView) and other.operation.name == "arith.constant":
                return self.facts(op.operands[0], holds != bool(constant_condition(other.operation)))
            return ()
        if op.name == "vector.broadcast":
            return self.facts(op.operands[0], holds)
        if op.name in ("vector.create_mask", "vector.constant_mask") and holds:
            return self._mask(op)
        return ()

    def _constant_condition(self, op: ir.Operation, holds: bool) -> Sequence[IndexExpr]:
        value = constant_condition(op)
        if value is not None:
            return () if value == holds else [number(-1)]
        shape = op.results[0].type.shape
        if len(shape) != 1:
            return ()
        left = [
            lane for lane, each in enumerate(ir.DenseIntElementsAttr(op.attributes["value"])) if bool(each) == holds
        ]
        lane = self.lane(shape[0])
        return [lane - left[0], number(left[-1]) - lane]

    def _mask(self, op: ir.Operation) -> list[IndexExpr]:
        """Return the facts of the lanes that a mask enables."""
        shape = op.results[0].type.shape
        if op.name == "vector.create_mask":
            sizes = [self.read(value) for value in op.operands]
        else:
            sizes = [number(size) for size in ir.DenseI64ArrayAttr(op.attributes["mask_dim_sizes"])]
        return [
            size - self.lane(extent, len(shape) - 1 - axis) - 1
            for axis, (size, extent) in enumerate(zip(sizes, shape, strict=True))
        ]


def _is_only_read(buffer: ir.BlockArgument, function: ir.Operation) -> bool:
    """Return whether nothing in a kernel writes to a parameter, or to the memory that it may share with another one."""
    if INPLACE in function.attributes and buffer.arg_number in ir.DenseI64ArrayAttr(function.attributes[INPLACE]):
        return False
    return all(use.owner.operation.name in _READS for use in buffer.uses)


def _range_of_elements(elements: ir.Attribute | None) -> tuple[int, int] | None:
    """Return the least and the greatest of some integers."""
    kind = None if elements is None else TensorType.from_mlir(elements.type)
    if elements is None or kind is None or kind.dtype.is_unsigned:
        return None
    array = read_dense(elements, kind)
    return (int(array.min()), int(array.max())) if array.size else None


def quotient(value: IndexExpr, divisor: Dim) -> IndexExpr:
    """Return `value floordiv divisor`.

    A sum of a dim and variables is not split, so that its quotient is seen not to be negative where the sum is not.
    """
    if divisor == 1:
        return value
    if value.is_constant:
        return number(value.constant // divisor)
    if isinstance(value.constant, int):
        return floor_divide(value, divisor)
    return IndexExpr({FloorDiv(value, divisor): 1})


def _size(bound: IndexExpr) -> tuple[int, str]:
    """Return the order in which bounds are tried: the smallest number first, dims last."""
    return (bound.constant, "") if isinstance(bound.constant, int) else (SAFE, str(bound))


def _multiple(value: IndexExpr, factor: Dim) -> IndexExpr:
    return value * factor


def _signed(value: int, kind: ir.Type) -> int:
    """Return an element of a constant as a signed integer."""
    bits, _ = width_of(kind)
    return value - (1 << bits) if value >= 1 << (bits - 1) and bits > 1 else value


def _is_positive(dim: Dim) -> bool:
    return dim > 0 if isinstance(dim, int) else D.is_nonnegative(dim - 1)


def _is_count(value: IndexExpr) -> bool:
    return value.is_constant and isinstance(value.constant, int) and 0 <= value.constant < INDEX_BITS


_READERS: dict[str, Callable[[ValueReader, ir.Operation], IndexExpr | None]] = {
    "arith.constant": ValueReader.constant,
    "arith.addi": ValueReader.add,
    "arith.subi": ValueReader.subtract,
    "arith.muli": ValueReader.multiply,
    "arith.divui": ValueReader.divide,
    "arith.divsi": ValueReader.divide,
    "arith.floordivsi": ValueReader.divide,
    "arith.ceildivsi": ValueReader.ceil_divide,
    "arith.remui": ValueReader.remainder,
    "arith.remsi": ValueReader.remainder,
    "arith.shli": ValueReader.shift_left,
    "arith.shrui": ValueReader.shift_right,
    "arith.shrsi": ValueReader.shift_right,
    "arith.andi": ValueReader.bits_of,
    "arith.minsi": ValueReader.minimum,
    "arith.minui": ValueReader.minimum,
    "arith.maxsi": ValueReader.maximum,
    "arith.maxui": ValueReader.maximum,
    "arith.select": ValueReader.select,
    "arith.index_cast": ValueReader.cast,
    "arith.index_castui": ValueReader.cast,
    "arith.extsi": ValueReader.cast,
    "arith.extui": ValueReader.cast,
    "arith.trunci": ValueReader.cast,
    "affine.apply": ValueReader.apply,
    "vector.broadcast": ValueReader.broadcast,
    "memref.load": ValueReader.load,
    "vector.load": ValueReader.load_constant,
    "vector.maskedload": ValueReader.load_constant,
    "vector.gather": ValueReader.load_constant,
    "vector.step": ValueReader.step,
    "vector.extract": ValueReader.extract,
    **dict.fromkeys(REARRANGED, ValueReader.rearrange),
}
"""How the results of upstream operations depend on their operands; results of others are unknown."""
_EXACT = frozenset(
    [
        *REARRANGED,
        "vector.broadcast",
        "arith.index_cast",
        "arith.index_castui",
        "arith.extsi",
        "arith.extui",
        "arith.trunci",
        "arith.constant",
        "arith.minsi",
        "arith.maxsi",
        "arith.minui",
        "arith.maxui",
        "arith.select",
        "scf.if",
        "memref.load",
        "vector.load",
        "vector.maskedload",
        "vector.gather",
    ]
)
"""Operations whose result cannot overflow, and casts, whose reader sees to that."""
