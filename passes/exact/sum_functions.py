"""The function that computes the sums of products of a loop, for all kernels: its code is compiled once.

A table has the accesses of the loop, and which two of them each sum adds the product of. Each sum is computed for
some iterations at a time, so that what it reads stays in the processor's cache. Products of residues are added without
a reduction, four at a time, and what is above 32 bits is summed apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.field import FieldArithmetic, reduced, times
from mirlo.passes.exact.ir_text import FunctionText, ModuleText
from mirlo.passes.exact.primes import P, Plane
from mirlo.passes.exact.values import FloatValue, llvm_type
from mirlo.runtime.records import dataclass

HEAD_WORDS = 2
"""The first words of a table: the number of accesses and of products, of which there is a row each."""
ACCESS_WORDS, PRODUCT_WORDS = 3, 4
"""Of an access: its base, bytes from it to the first element, bytes from one iteration to the next. Of a product: the
position of the sum in bytes, whether it starts at zero, the words at which the rows of its factors start."""
BLOCK = 128
"""The iterations in which a sum is computed at a time."""
MOST_ITERATIONS = 1 << 31
"""The most iterations of a loop that reads what its accesses name: no kernel has more."""
_UNREDUCED = 4
"""How many products of residues, and a number of 32 bits, are less than 2^64."""
_HALF = (1 << 32) - 1


@dataclass(frozen=True)
class SumSignature:
    """What sums of products have in common that one function computes."""

    lanes: int | None
    are_splats: tuple[bool, bool]
    """Whether a factor is one element in all lanes."""
    bases: int
    """How many buffers and positions of run time there are."""
    guard_bytes: int

    def name(self, arithmetic: Arithmetic) -> str:
        kinds = "".join("s" if each else "v" for each in self.are_splats)
        special = isinstance(arithmetic, FieldArithmetic) and arithmetic.has_infinities
        what = f"{arithmetic.element}_{arithmetic.planes}_{int(special)}"
        return f"exact.sums_{what}_{self.lanes or 0}_{kinds}_{self.bases}"


def sum_function(module: ModuleText, arithmetic: Arithmetic, signature: SumSignature) -> str:
    """Return the name of the function for sums, with parameters `acc`, `table`, `n` and for each base `d`, `o`."""
    name = signature.name(arithmetic)
    if name not in module.helpers:
        _SumFunction(module, arithmetic, signature, name).emit()
    return name


def half_of(lanes: int | None) -> int | None:
    return None if lanes is None else lanes // 2


def halves(g: FunctionText, address: str, is_splat: bool, lanes: int | None) -> list[str]:
    """Return residues in memory as integers of 64 bits, those of even lanes and those of odd ones."""
    half = half_of(lanes)
    if half is None:
        return [g.op(f"zext i32 {g.op(f'load i32, ptr {address}, align 4')} to i64")]
    kind = llvm_type("i64", half)
    if is_splat:  # an instruction loads a number into all lanes of 32 bits, and none into those of 64
        element = g.splat(g.op(f"load i32, ptr {address}, align 4"), "i32", lanes)
        both = g.op(f"bitcast {llvm_type('i32', lanes)} {element} to {kind}")
    else:
        both = g.op(f"load {kind}, ptr {address}, align 4")
    low = g.op(f"and {kind} {both}, {g.constant(_HALF, 64, half)}")
    return [low, low if is_splat else g.op(f"lshr {kind} {both}, {g.constant(32, 64, half)}")]


def store_halves(g: FunctionText, numbers: Sequence[str], address: str, lanes: int | None) -> None:
    """Emit a store of residues, which are those of even lanes and those of odd ones."""
    half = half_of(lanes)
    kind = llvm_type("i64", half)
    if len(numbers) == 1:
        g.effect(f"store i32 {g.op(f'trunc i64 {numbers[0]} to i32')}, ptr {address}, align 4")
        return
    odd = g.op(f"shl {kind} {numbers[1]}, {g.constant(32, 64, half)}")
    g.effect(f"store {kind} {g.op(f'or {kind} {numbers[0]}, {odd}')}, ptr {address}, align 4")


def parts_of(g: FunctionText, total: str, half: int | None) -> tuple[str, str]:
    """Return the lower 32 bits of integers of 64 bits, and those above."""
    kind = llvm_type("i64", half)
    low = g.op(f"and {kind} {total}, {g.constant(_HALF, 64, half)}")
    return low, g.op(f"lshr {kind} {total}, {g.constant(32, 64, half)}")


def residue_of_parts(g: FunctionText, low: str, high: str, half: int | None, plane: Plane) -> str:
    """Return the residue of a sum of lower parts, and of one of parts above 32 bits."""
    power = g.constant((1 << 32) % plane.modulus, 64, half)
    scaled = times(g, reduced(g, high, half, plane), power, half)
    return reduced(g, g.op(f"add {llvm_type('i64', half)} {scaled}, {low}"), half, plane)


class _SumFunction:
    def __init__(self, module: ModuleText, arithmetic: Arithmetic, signature: SumSignature, name: str):
        self.g = FunctionText(module, name)
        self.g.is_inline = True
        self.arithmetic, self.signature = arithmetic, signature
        self.lanes, self.planes = signature.lanes, arithmetic.planes
        self.plane_bytes = arithmetic.bytes * (self.lanes or 1)

    def emit(self) -> None:
        g = self.g
        bases = g.at_entry(f"alloca [{2 * self.signature.bases} x i64], align 8")
        for i in range(self.signature.bases):
            address = g.op(f"ptrtoint ptr %d{i} to i64")
            for word, value in ((2 * i, address), (2 * i + 1, f"%o{i}")):
                g.effect(f"store i64 {value}, ptr {g.op(f'getelementptr i64, ptr {bases}, i64 {word}')}, align 8")
        self.bases = bases
        self.last = g.op("sub i64 %n, 1")
        arithmetic = self.arithmetic
        if not isinstance(arithmetic, FieldArithmetic):
            self._blocks(self._general)
        elif not arithmetic.has_infinities:
            self._blocks(self._residues)
        else:
            special = self._has_special()
            labels = [g.new_label(hint) for hint in ("special", "usual", "end")]
            g.effect(f"br i1 {special}, label %{labels[0]}, label %{labels[1]}")
            for label, products in zip(labels, (self._general, self._residues), strict=False):
                g.label(label)
                self._blocks(products)
                g.effect(f"br label %{labels[2]}")
            g.label(labels[2])
        g.effect("ret void")
        parameters = {
            f"{kind[0]}{i}": kind[1] for i in range(self.signature.bases) for kind in (("d", "ptr"), ("o", "i64"))
        }
        g.finish_helper("void", acc="ptr", table="ptr", n="i64", **parameters)

    # ----------------------------------------------------------------------------------------------------------- loops

    def _blocks(self, products: Callable[[str, str, str, str], None]) -> None:
        """Emit the loops over blocks of iterations and over products; a loop of no iteration has one block."""
        g = self.g
        blocks = g.extreme("umax", g.op(f"udiv i64 {g.op(f'add i64 %n, {BLOCK - 1}')}, {BLOCK}"), "1")
        accesses, count = self._word("%table", 0), self._word("%table", 1)
        first = g.op(f"add i64 {g.op(f'mul i64 {accesses}, {ACCESS_WORDS}')}, {HEAD_WORDS}")

        def block(number: str) -> None:
            start = g.op(f"mul i64 {number}, {BLOCK}")
            iterations = g.extreme("umin", g.op(f"sub i64 %n, {start}"), str(BLOCK))
            is_first = g.op(f"icmp eq i64 {number}, 0")

            def product(position: str) -> None:
                word = g.op(f"add i64 {g.op(f'mul i64 {position}, {PRODUCT_WORDS}')}, {first}")
                products(g.op(f"getelementptr i64, ptr %table, i64 {word}"), start, iterations, is_first)

            g.each(count, product)

        g.each(blocks, block)

    def _word(self, row: str, word: int | str) -> str:
        return self.g.op(f"load i64, ptr {self.g.op(f'getelementptr i64, ptr {row}, i64 {word}')}, align 8")

    # ---------------------------------------------------------------------------------------------------------- memory

    def _access(self, row: str, start: str, is_splat: bool) -> tuple[list[str], str]:
        """Return the addresses of an access at an iteration, and the bytes to the next one.

        Where any iteration is outside of the memory and its guards, all of them read the same place, which is not.
        """
        g, guard = self.g, self.signature.guard_bytes
        base, moved, step = (self._word(row, word) for word in range(ACCESS_WORDS))
        at = g.op(f"mul i64 {base}, 2")
        buffer = g.op(f"inttoptr i64 {self._word(self.bases, at)} to ptr")
        offset = g.op(f"add i64 {self._word(self.bases, g.op(f'add i64 {at}, 1'))}, {moved}")
        whole = g.op(f"mul i64 {step}, {self.last}")
        end = g.op(f"add i64 {offset}, {whole}")
        least, greatest = g.extreme("smin", offset, end), g.extreme("smax", offset, end)
        size = self.arithmetic.bytes if is_splat else self.plane_bytes
        limit = g.op(f"add i64 {self._word(buffer, self.planes)}, {guard - size}")
        is_below, is_above = g.op(f"icmp sge i64 {least}, {-guard}"), g.op(f"icmp sle i64 {greatest}, {limit}")
        is_short = g.op(f"icmp ule i64 %n, {MOST_ITERATIONS}")
        is_inside = g.op(f"and i1 {g.op(f'and i1 {is_below}, {is_above}')}, {is_short}")
        here = g.op(f"add i64 {offset}, {g.op(f'mul i64 {step}, {start}')}")
        place = g.op(f"select i1 {is_inside}, i64 {here}, i64 0")
        step = g.op(f"select i1 {is_inside}, i64 {step}, i64 0")
        roots = (g.op(f"inttoptr i64 {self._word(buffer, plane)} to ptr") for plane in range(self.planes))
        return [g.op(f"getelementptr i8, ptr {root}, i64 {place}") for root in roots], step

    def _factors(self, row: str, start: str) -> list[tuple[list[str], str]]:
        g = self.g
        return [
            self._access(g.op(f"getelementptr i64, ptr %table, i64 {self._word(row, 2 + i)}"), start, is_splat)
            for i, is_splat in enumerate(self.signature.are_splats)
        ]

    def _at(self, address: str, step: str, index: str) -> str:
        return self.g.op(f"getelementptr i8, ptr {address}, i64 {self.g.op(f'mul i64 {step}, {index}')}")

    def _sum_at(self, row: str, plane: int) -> str:
        position = self.g.op(f"add i64 {self._word(row, 0)}, {plane * self.plane_bytes}")
        return self.g.op(f"getelementptr i8, ptr %acc, i64 {position}")

    def _is_zero(self, row: str, is_first: str) -> str:
        starts = self.g.op(f"icmp ne i64 {self._word(row, 1)}, 0")
        return self.g.op(f"and i1 {starts}, {is_first}")

    # --------------------------------------------------------------------------------------------- any kind of numbers

    def _general(self, row: str, start: str, iterations: str, is_first: str) -> None:
        """Emit the sum of a product, by the operations of the arithmetic."""
        g, lanes = self.g, self.lanes
        kind = llvm_type(self.arithmetic.element, lanes)
        factors = self._factors(row, start)
        is_zero = self._is_zero(row, is_first)
        addresses = [self._sum_at(row, plane) for plane in range(self.planes)]
        zeros = self.arithmetic.constant(g, 0.0, lanes).planes
        known = [g.op(f"load {kind}, ptr {address}, align 4") for address in addresses]
        totals = [g.op(f"select i1 {is_zero}, {kind} {x}, {kind} {y}") for x, y in zip(zeros, known, strict=True)]

        def add(index: str, carried: list[str]) -> Sequence[str]:
            values = []
            for (places, step), is_splat in zip(factors, self.signature.are_splats, strict=True):
                names = [self._element(self._at(place, step, index), is_splat) for place in places]
                values.append(FloatValue(tuple(names), lanes))
            left, right = values
            total = self.arithmetic.fma(g, left, right, FloatValue(tuple(carried), lanes))
            return self.arithmetic.canonical(g, total).planes

        totals = g.loop(iterations, [kind] * self.planes, totals, add)
        for address, total in zip(addresses, totals, strict=True):
            g.effect(f"store {kind} {total}, ptr {address}, align 4")

    def _element(self, address: str, is_splat: bool) -> str:
        """Return a loaded element, or a vector of elements."""
        element = self.arithmetic.element
        if is_splat:
            return self.g.splat(self.g.op(f"load {element}, ptr {address}, align 4"), element, self.lanes)
        return self.g.op(f"load {llvm_type(element, self.lanes)}, ptr {address}, align 4")

    # -------------------------------------------------------------------------------------------------------- residues

    def _residues(self, row: str, start: str, iterations: str, is_first: str) -> None:
        """Emit the sum of a product of residues."""
        factors, is_zero = self._factors(row, start), self._is_zero(row, is_first)
        assert isinstance(self.arithmetic, FieldArithmetic)
        for plane in self.arithmetic.moduli:
            places = [(addresses[plane.index], step) for addresses, step in factors]
            self._residues_of_plane(plane, places, self._sum_at(row, plane.index), iterations, is_zero)

    def _residues_of_plane(
        self, plane: Plane, factors: Sequence[tuple[str, str]], address: str, iterations: str, is_zero: str
    ) -> None:
        g, lanes = self.g, half_of(self.lanes)
        kind = llvm_type("i64", lanes)
        zero = g.constant(0, 64, lanes)
        known = [
            g.op(f"select i1 {is_zero}, {kind} {zero}, {kind} {each}") for each in halves(g, address, False, self.lanes)
        ]
        kinds, count = [kind] * 2 * len(known), len(known)

        def add(index: str, totals: Sequence[str]) -> list[str]:
            """Return totals with the products of an iteration."""
            left, right = (
                halves(g, self._at(place, step, index), is_splat, self.lanes)
                for (place, step), is_splat in zip(factors, self.signature.are_splats, strict=True)
            )
            products = (g.op(f"mul {kind} {x}, {y}") for x, y in zip(left, right, strict=True))
            return [g.op(f"add {kind} {x}, {y}") for x, y in zip(totals, products, strict=True)]

        def split(totals: Sequence[str], highs: Sequence[str]) -> list[str]:
            parts = [parts_of(g, each, lanes) for each in totals]
            lows, others = zip(*parts, strict=True)
            return [*lows, *(g.op(f"add {kind} {x}, {y}") for x, y in zip(highs, others, strict=True))]

        def some(index: str, carried: list[str]) -> Sequence[str]:
            totals = carried[:count]
            for i in range(_UNREDUCED):
                totals = add(g.op(f"add i64 {g.op(f'mul i64 {index}, {_UNREDUCED}')}, {i}"), totals)
            return split(totals, carried[count:])

        whole = g.op(f"udiv i64 {iterations}, {_UNREDUCED}")
        totals = g.loop(whole, kinds, [*known, *[zero] * count], some)
        first = g.op(f"mul i64 {whole}, {_UNREDUCED}")

        def one(index: str, carried: list[str]) -> Sequence[str]:
            return split(add(g.op(f"add i64 {first}, {index}"), carried[:count]), carried[count:])

        totals = g.loop(g.op(f"sub i64 {iterations}, {first}"), kinds, totals, one)
        pairs = zip(totals[:count], totals[count:], strict=True)
        store_halves(g, [residue_of_parts(g, *parts, lanes, plane) for parts in pairs], address, self.lanes)

    def _has_special(self) -> str:
        """Return whether a number outside of the field is among the elements, or the sums."""
        g, kind = self.g, llvm_type("i32", self.lanes)
        accesses, count = self._word("%table", 0), self._word("%table", 1)
        special_flag = g.at_entry("alloca i1, align 1")
        g.effect(f"store i1 false, ptr {special_flag}, align 1")

        def note(greatest: str, lanes: int | None) -> None:
            text = greatest
            if lanes is not None:
                text = g.call("i32", f"llvm.vector.reduce.umax.v{lanes}i32", (llvm_type("i32", lanes), greatest))
            is_special = g.op(f"icmp uge i32 {text}, {g.constant(P, 32, None)}")
            before = g.op(f"load i1, ptr {special_flag}, align 1")
            g.effect(f"store i1 {g.op(f'or i1 {before}, {is_special}')}, ptr {special_flag}, align 1")

        def access(number: str) -> None:
            word = g.op(f"add i64 {g.op(f'mul i64 {number}, {ACCESS_WORDS}')}, {HEAD_WORDS}")
            row = g.op(f"getelementptr i64, ptr %table, i64 {word}")
            # a splat is read as a vector: what is beside it may be special without need, and is in the buffer's memory
            (place, *_), step = self._access(row, "0", is_splat=False)

            def element(index: str, carried: list[str]) -> Sequence[str]:
                loaded = g.op(f"load {kind}, ptr {self._at(place, step, index)}, align 4")
                return [g.extreme("umax", carried[0], loaded, 32, self.lanes)]

            (greatest,) = g.loop("%n", [kind], [g.constant(0, 32, self.lanes)], element)
            note(greatest, self.lanes)

        g.each(accesses, access)
        first = g.op(f"add i64 {g.op(f'mul i64 {accesses}, {ACCESS_WORDS}')}, {HEAD_WORDS}")

        def total(number: str) -> None:
            word = g.op(f"add i64 {g.op(f'mul i64 {number}, {PRODUCT_WORDS}')}, {first}")
            row = g.op(f"getelementptr i64, ptr %table, i64 {word}")
            starts = g.op(f"icmp ne i64 {self._word(row, 1)}, 0")
            loaded = g.op(f"load {kind}, ptr {self._sum_at(row, 0)}, align 4")
            zero = g.constant(0, 32, self.lanes)
            note(g.op(f"select i1 {starts}, {kind} {zero}, {kind} {loaded}"), self.lanes)

        g.each(count, total)
        return g.op(f"load i1, ptr {special_flag}, align 1")
