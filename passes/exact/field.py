"""Arithmetic of residues: exact sums, products and quotients, a keyed order, exp as a power, hashes for the rest.

A value is a residue modulo P, with exponentials also one modulo Q. Sums of products stay below
`Plane.loose` in loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial

from mirlo.passes.exact.arithmetic import Arithmetic, format_of, wide_bits
from mirlo.passes.exact.ir_text import ROUND_TABLES, WINDOW, WINDOWS, FunctionText
from mirlo.passes.exact.named_numbers import named
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import EXPONENTS, INFINITY, MINUS_INFINITY, NAN, RESIDUE, VALUES, P, Plane
from mirlo.passes.exact.values import FloatValue, IntValue, llvm_type
from mirlo.passes.lower.formats import FloatFormat

ORDER_FACTOR, ORDER_SHIFT, HASH_KEY = 0, 1, 2
"""Positions of constants of the round: the key of the order is x * factor + shift mod P."""
EXPONENTIAL = 77
"""Key of the hash that is the second residue of an exponential."""
_TESTS = {"gt": "sgt", "ge": "sge", "lt": "slt", "le": "sle", "eq": "eq", "ne": "ne"}


class FieldArithmetic(Arithmetic):
    """Residues modulo P, and with `has_exponents` modulo Q; with `has_infinities`, infinities and NaN occur.

    With `has_named_numbers`, constants are the numbers that they stand for; those in `scaled` are others.
    """

    element = "i32"
    bytes = RESIDUE.itemsize

    def __init__(
        self, has_exponents: bool, has_infinities: bool, has_exact_casts: bool = False, has_named_numbers: bool = False,
        has_common_functions: bool = False, scaled: Mapping[float, Fraction] | None = None,
    ):  # fmt: skip
        self._scaled = dict(scaled or {})
        self.has_infinities, self.has_exact_casts = has_infinities, has_exact_casts
        self.has_named_numbers, self.has_common_functions = has_named_numbers, has_common_functions
        self.moduli: tuple[Plane, ...] = (VALUES, EXPONENTS) if has_exponents else (VALUES,)
        self.planes = len(self.moduli)
        self.key = (
            "field", has_exponents, has_infinities, has_exact_casts, has_named_numbers, has_common_functions,
            *sorted(self._scaled),
        )  # fmt: skip
        self.fuses = not has_infinities

    # ------------------------------------------------------------------------------------------------------- reduction

    def canonical(self, f: FunctionText, x: FloatValue) -> FloatValue:
        if not x.is_loose:
            return x

        def narrow(plane: Plane, g: FunctionText, name: str) -> str:
            return _narrow(g, reduced(g, name, x.lanes, plane), x.lanes)

        names = (
            _helper_call(f, f"reduced_{plane.index}", partial(narrow, plane), [name], x.lanes, "i64")
            for name, plane in zip(x.planes, self.moduli, strict=True)
        )
        return FloatValue(tuple(names), x.lanes)

    def carried(self, f: FunctionText, x: FloatValue) -> FloatValue:
        """Return a value for a loop to carry: not reduced where sums are inline."""
        if not (self.fuses and f.is_inline):
            return self.canonical(f, x)
        if x.is_loose:
            return x
        return FloatValue(tuple(_wide(f, name, x.lanes) for name in x.planes), x.lanes, is_loose=True)

    def _each(
        self, f: FunctionText, name: str, operands: Sequence[FloatValue], compute: Callable[..., str],
        is_shared: bool = True,
    ) -> FloatValue:  # fmt: skip
        """Apply a function to the residues in each plane; an operand outside of the field stays."""
        lanes, count = operands[0].lanes, len(operands)
        operands = [self.canonical(f, x) for x in operands]
        first = [x.planes[0] for x in operands]

        def result(plane: Plane, g: FunctionText, *names: str) -> str:
            number = compute(plane, g, *names[:count])
            return self._unless_special(g, number, names[-count:], lanes) if self.has_infinities else number

        names = []
        for plane in self.moduli:
            parts = [x.planes[plane.index] for x in operands]
            parts += first if self.has_infinities and plane.index else []
            title = f"{name}_{plane.index}_{int(self.has_infinities)}"
            names.append(_shared(f, title, partial(result, plane), parts, lanes, is_shared))
        return FloatValue(tuple(names), lanes)

    def _unless_special(self, f: FunctionText, number: str, operands: Sequence[str], lanes: int | None) -> str:
        """Return a number, or the first of the operands that is outside of the field."""
        kind = llvm_type("i64", lanes)
        for x in reversed(operands):
            number = f.op(f"select {self._is_special(f, x, lanes)}, {kind} {x}, {kind} {number}")
        return number

    @staticmethod
    def _is_special(f: FunctionText, x: str, lanes: int | None) -> str:
        """Return the type and the name of the flag whether a residue of 64 bits is outside of the field."""
        test = f.op(f"icmp uge {llvm_type('i64', lanes)} {x}, {f.constant(P, 64, lanes)}")
        return f"{llvm_type('i1', lanes)} {test}"

    # ------------------------------------------------------------------------------------------------------ arithmetic

    @staticmethod
    def special_number(value: float) -> int:
        """Return the value outside of the field for an infinity or NaN."""
        return NAN if math.isnan(value) else INFINITY if value > 0 else MINUS_INFINITY

    def constant(self, f: FunctionText, value: float, lanes: int | None) -> FloatValue:
        if math.isfinite(value):
            number = named(value) if self.has_named_numbers else Fraction(value)
            number = self._scaled.get(value, number)
            numbers = [plane.residue(number) for plane in self.moduli]
        elif not self.has_infinities:
            raise OutsideError("an infinity or NaN among values that have none")
        else:
            numbers = [self.special_number(value)] * self.planes
        return FloatValue(tuple(f.constant(number, 32, lanes) for number in numbers), lanes)

    def add(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        kind = llvm_type("i64", a.lanes)

        def total(plane: Plane, g: FunctionText, x: str, y: str) -> str:
            return _below_twice(g, g.op(f"add {kind} {x}, {y}"), a.lanes, plane)

        return self._each(f, "total", [a, b], total)

    def sub(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        kind = llvm_type("i64", a.lanes)

        def difference(plane: Plane, g: FunctionText, x: str, y: str) -> str:
            less = g.op(f"sub {kind} {x}, {y}")
            more = g.op(f"add {kind} {less}, {g.constant(plane.modulus, 64, a.lanes)}")
            return g.extreme("umin", less, more, 64, a.lanes)

        return self._each(f, "difference", [a, b], difference)

    def neg(self, f: FunctionText, a: FloatValue) -> FloatValue:
        return self.sub(f, self.constant(f, 0.0, a.lanes), a)

    def mul(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        def product(plane: Plane, g: FunctionText, x: str, y: str) -> str:
            return reduced(g, times(g, x, y, a.lanes), a.lanes, plane)

        return self._each(f, "product", [a, b], product)

    def fma(self, f: FunctionText, a: FloatValue, b: FloatValue, c: FloatValue) -> FloatValue:
        if self.has_infinities:
            return self.add(f, self.mul(f, a, b), c)
        a, b = self.canonical(f, a), self.canonical(f, b)
        c = self.carried(f, c)
        kind = llvm_type("i64", a.lanes)

        def total(g: FunctionText, x: str, y: str, z: str) -> str:
            return g.op(f"add {kind} {times(g, x, y, a.lanes)}, {z}")

        def reduced_total(plane: Plane, g: FunctionText, x: str, y: str, z: str) -> str:
            return reduced(g, total(g, x, y, z), a.lanes, plane)

        names = []
        for plane, x, y, z in zip(self.moduli, a.planes, b.planes, c.planes, strict=True):
            if c.is_loose:
                x, y = _wide(f, x, a.lanes), _wide(f, y, a.lanes)
                names.append(_below(f, total(f, x, y, z), a.lanes, plane.loose))
            else:
                names.append(_shared(f, f"sum_{plane.index}", partial(reduced_total, plane), [x, y, z], a.lanes))
        return FloatValue(tuple(names), a.lanes, is_loose=c.is_loose)

    def div(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        def inverse(plane: Plane, g: FunctionText, x: str) -> str:
            return _call(g, _inverse_helper(g, plane, b.lanes), [x], b.lanes)

        return self.mul(f, a, self._each(f, "inverse", [b], inverse, is_shared=False))

    def exp2(self, f: FunctionText, a: FloatValue) -> FloatValue:
        if self.planes == 1:
            raise OutsideError("an exponential among values without exponents")
        a = self.canonical(f, a)
        kind, zero = llvm_type("i64", a.lanes), f.constant(0, 64, a.lanes)
        number, exponent = (_wide(f, name, a.lanes) for name in a.planes)
        if not self.has_infinities:
            power = _call(f, _power_helper(f, a.lanes), [exponent], a.lanes)
        else:  # exp(-inf) = 0
            special = self._is_special(f, number, a.lanes)
            safe = f.op(f"select {special}, {kind} {zero}, {kind} {exponent}")
            power = _call(f, _power_helper(f, a.lanes), [safe], a.lanes)
            power = f.op(f"select {special}, {kind} {zero}, {kind} {power}")
        hashed = _hashed(f, power, a.lanes, EXPONENTIAL, EXPONENTS)
        return FloatValue((_narrow(f, power, a.lanes), _narrow(f, hashed, a.lanes)), a.lanes)

    # ------------------------------------------------------------------------------------------------------- the order

    def _order_key(self, f: FunctionText, x: FloatValue) -> str:
        kind = llvm_type("i64", x.lanes)

        def key(g: FunctionText, number: str) -> str:
            scaled = times(g, number, g.round_constant(ORDER_FACTOR, x.lanes), x.lanes)
            shifted = g.op(f"add {kind} {scaled}, {g.round_constant(ORDER_SHIFT, x.lanes)}")
            place = reduced(g, shifted, x.lanes, VALUES)
            if not self.has_infinities:
                return place
            return g.op(f"select {self._is_special(g, number, x.lanes)}, {kind} {number}, {kind} {place}")

        return _shared(f, f"order_{int(self.has_infinities)}", key, x.planes[:1], x.lanes)

    def compare(self, f: FunctionText, predicate: str, a: FloatValue, b: FloatValue) -> IntValue:
        if predicate in ("ord", "uno") and self.has_infinities:
            names = [self.classify(f, "isnan", x).name for x in (a, b)]
            kind = llvm_type("i1", a.lanes)
            either = f.op(f"or {kind} {names[0]}, {names[1]}")
            flip = f.constant(int(predicate == "ord"), 1, a.lanes)
            return IntValue(f.op(f"xor {kind} {either}, {flip}"), 1, a.lanes)
        if predicate in ("ord", "uno", "true", "false"):
            return IntValue(f.constant(int(predicate in ("ord", "true")), 1, a.lanes), 1, a.lanes)
        a, b = self.canonical(f, a), self.canonical(f, b)
        left, right = self._order_key(f, a), self._order_key(f, b)
        kind = llvm_type(self.element, a.lanes)
        return IntValue(f.op(f"icmp {_TESTS[predicate[1:]]} {kind} {left}, {right}"), 1, a.lanes)

    def maximum(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._extreme(f, "ogt", a, b)

    def minimum(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._extreme(f, "olt", a, b)

    def _extreme(self, f: FunctionText, predicate: str, a: FloatValue, b: FloatValue) -> FloatValue:
        """Return the operand that is greater or less than the other one."""
        lanes = a.lanes
        a, b = self.canonical(f, a), self.canonical(f, b)
        if f.is_inline:
            return self.select(f, self.compare(f, predicate, a, b), a, b)

        def chosen(g: FunctionText, x: str, y: str, *others: str) -> str:
            test = self.compare(g, predicate, FloatValue((x,), lanes), FloatValue((y,), lanes))
            return self.select(g, test, *(FloatValue((each,), lanes) for each in others or (x, y))).planes[0]

        names = []
        for plane in self.moduli:
            others = [x.planes[plane.index] for x in (a, b)] if plane.index else []
            title = f"extreme_{predicate}_{int(plane.index > 0)}_{int(self.has_infinities)}"
            names.append(_helper_call(f, title, chosen, [a.planes[0], b.planes[0], *others], lanes))
        return FloatValue(tuple(names), lanes)

    def absolute(self, f: FunctionText, a: FloatValue) -> FloatValue:
        return self.maximum(f, a, self.neg(f, a))

    def classify(self, f: FunctionText, name: str, a: FloatValue) -> IntValue:
        x, kind = self.canonical(f, a).planes[0], llvm_type(self.element, a.lanes)
        if name == "isfinite":
            test = f.op(f"icmp ult {kind} {x}, {f.constant(P, 32, a.lanes)}")
        elif name == "isnan":
            test = f.op(f"icmp eq {kind} {x}, {f.constant(NAN, 32, a.lanes)}")
        else:
            low = f.op(f"icmp eq {kind} {x}, {f.constant(MINUS_INFINITY, 32, a.lanes)}")
            high = f.op(f"icmp eq {kind} {x}, {f.constant(INFINITY, 32, a.lanes)}")
            test = f.op(f"or {llvm_type('i1', a.lanes)} {low}, {high}")
        return IntValue(test, 1, a.lanes)

    # ---------------------------------------------------------------------------------------------------------- hashes

    def function(self, f: FunctionText, name: str, operands: Sequence[FloatValue]) -> FloatValue:
        operands = [self.canonical(f, x) for x in operands]
        lanes, key = operands[0].lanes, hash_key(name)
        kind = llvm_type("i64", lanes)

        def hashed(plane: Plane, g: FunctionText, x: str, *others: str) -> str:
            for other in others:
                x = g.op(f"mul {kind} {x}, {g.constant(0x2545F4914F6CDD1D, 64, lanes)}")
                x = g.op(f"add {kind} {other}, {x}")
            return _hashed(g, x, lanes, key, plane)

        firsts = [each.planes[0] for each in operands]
        titles = (f"function_{key}_{len(firsts)}_{plane.index}" for plane in self.moduli)
        pairs = zip(titles, self.moduli, strict=True)
        return FloatValue(
            tuple(_shared(f, title, partial(hashed, plane), firsts, lanes) for title, plane in pairs), lanes
        )

    def truncated(self, f: FunctionText, a: FloatValue, kind: str) -> FloatValue:
        return self.function(f, f"truncf {kind}", [a]) if self.has_exact_casts else a

    def to_int(self, f: FunctionText, a: FloatValue, bits: int, name: str) -> IntValue:
        return self._narrowed(f, self.function(f, name, [a]).planes[0], bits, a.lanes)

    @staticmethod
    def _narrowed(f: FunctionText, x: str, bits: int, lanes: int | None) -> IntValue:
        if bits != 32:
            how = "trunc" if bits < 32 else "sext"
            x = f.op(f"{how} {llvm_type('i32', lanes)} {x} to {llvm_type(f'i{bits}', lanes)}")
        return IntValue(x, bits, lanes)

    def to_bits(self, f: FunctionText, a: FloatValue, kind: str) -> IntValue:
        """Return bits in the order of floats, by which kernels sort, if they are enough and there are no infinities."""
        bits = format_of(kind).bits
        is_ordered = bits >= VALUES.bits and not self.has_infinities
        x = self._order_key(f, self.canonical(f, a)) if is_ordered else self.function(f, "bitcast", [a]).planes[0]
        return self._narrowed(f, x, bits, a.lanes)

    def from_int(self, f: FunctionText, a: IntValue, is_signed: bool) -> FloatValue:
        kind, x = llvm_type("i64", a.lanes), a.name
        if a.bits < 64:
            narrow = llvm_type(f"i{a.bits}", a.lanes)
            x = f.op(f"{'sext' if is_signed else 'zext'} {narrow} {x} to {kind}")
        names = []
        for plane in self.moduli:
            modulus = f.constant(plane.modulus, 64, a.lanes)
            rest = f.op(f"{'srem' if is_signed else 'urem'} {kind} {x}, {modulus}")
            more = f.op(f"add {kind} {rest}, {modulus}")
            names.append(_narrow(f, f.extreme("umin", rest, more, 64, a.lanes), a.lanes))
        return FloatValue(tuple(names), a.lanes)

    def from_bits(self, f: FunctionText, a: IntValue, kind: str) -> FloatValue:
        """Return the number that the bits of a float stand for."""
        form = format_of(kind)
        x = wide_bits(f, a)
        names = [_call(f, _decode_helper(f, form, plane, a.lanes), [x], a.lanes) for plane in self.moduli]
        if self.has_infinities:
            special, which = _special_bits(f, form, x, a.lanes)
            kind_, test = llvm_type("i64", a.lanes), f"{llvm_type('i1', a.lanes)} {special}"
            names = [f.op(f"select {test}, {kind_} {which}, {kind_} {name}") for name in names]
        return FloatValue(tuple(_narrow(f, name, a.lanes) for name in names), a.lanes)


# ------------------------------------------------------------------------------------------------------------- helpers


def times(f: FunctionText, x: str, y: str, lanes: int | None) -> str:
    """Return the product of numbers below 2^32, by one instruction if the processor has no 64-bit products."""
    kind = llvm_type("i64", lanes)
    low = f.constant((1 << 32) - 1, 64, lanes)
    x, y = (f.op(f"and {kind} {each}, {low}") if each.startswith("%") else each for each in (x, y))
    return f.op(f"mul {kind} {x}, {y}")


def _folded(f: FunctionText, x: str, lanes: int | None, plane: Plane) -> str:
    """Return a smaller number that is equal modulo the prime: 2^bits = c."""
    kind = llvm_type("i64", lanes)
    low = f.op(f"and {kind} {x}, {f.constant((1 << plane.bits) - 1, 64, lanes)}")
    high = f.op(f"lshr {kind} {x}, {f.constant(plane.bits, 64, lanes)}")
    scaled = times(f, high, f.constant(plane.c, 64, lanes), lanes)
    return f.op(f"add {kind} {low}, {scaled}")


def _below(f: FunctionText, x: str, lanes: int | None, limit: int) -> str:
    """Subtract a limit from a number below twice the limit, unless it is less."""
    less = f.op(f"sub {llvm_type('i64', lanes)} {x}, {f.constant(limit, 64, lanes)}")
    return f.extreme("umin", x, less, 64, lanes)


def _below_twice(f: FunctionText, x: str, lanes: int | None, plane: Plane) -> str:
    """Reduce a number below twice the modulus."""
    return _below(f, x, lanes, plane.modulus)


def reduced(f: FunctionText, x: str, lanes: int | None, plane: Plane) -> str:
    """Return a number below 2^62 modulo the prime."""
    return _below_twice(f, _folded(f, _folded(f, x, lanes, plane), lanes, plane), lanes, plane)


def hash_key(name: str) -> int:
    """Return the key of the hash that stands for a function of this name."""
    key: int = sum(ord(c) * 131**i for i, c in enumerate(name)) % 1000003
    return key


def _hashed(f: FunctionText, x: str, lanes: int | None, key: int, plane: Plane) -> str:
    """Return a residue that depends on all bits of a number, on the key, and on the key of the round."""
    kind = llvm_type("i64", lanes)
    factor = 0x9E3779B97F4A7C15 + 2 * (key * 0x1F3D5B79 + plane.index * 0x51ED27)
    x = f.op(f"add {kind} {x}, {f.round_constant(HASH_KEY, lanes)}")
    x = f.op(f"mul {kind} {x}, {f.constant(factor, 64, lanes)}")
    high = f.op(f"lshr {kind} {x}, {f.constant(31, 64, lanes)}")
    x = f.op(f"xor {kind} {x}, {high}")
    x = f.op(f"mul {kind} {x}, {f.constant(0xBF58476D1CE4E5B9, 64, lanes)}")
    x = f.op(f"lshr {kind} {x}, {f.constant(64 - plane.bits, 64, lanes)}")
    return _below_twice(f, x, lanes, plane)


def _call(f: FunctionText, helper: str, operands: Sequence[str], lanes: int | None) -> str:
    kind = llvm_type("i64", lanes)
    return f.op(f"call {kind} @{helper}({', '.join(f'{kind} {x}' for x in operands)}, ptr %round)")


def _wide(f: FunctionText, x: str, lanes: int | None) -> str:
    """Return a reduced value as an integer of 64 bits."""
    text = x.removeprefix("splat (i32 ").removesuffix(")")
    if text.removeprefix("-").isdigit():
        return f.constant(int(text), 64, lanes)
    return f.op(f"sext {llvm_type('i32', lanes)} {x} to {llvm_type('i64', lanes)}")


def _narrow(f: FunctionText, x: str, lanes: int | None) -> str:
    """Return a reduced value of 64 bits as it is between operations."""
    return f.op(f"trunc {llvm_type('i64', lanes)} {x} to {llvm_type('i32', lanes)}")


def _shared(
    f: FunctionText, name: str, compute: Callable[..., str], operands: Sequence[str], lanes: int | None,
    is_shared: bool = True,
) -> str:  # fmt: skip
    """Return the result of a function of a few instructions on 64 bits: a helper's, unless the module is inline.

    Kernels have hundreds of products. Where they run for a short time, most of the time is LLVM's, and half as much
    with calls.
    """

    def on_reduced(g: FunctionText, *names: str) -> str:
        return _narrow(g, compute(g, *(_wide(g, each, lanes) for each in names)), lanes)

    return _helper_call(f, name, on_reduced, operands, lanes) if is_shared else on_reduced(f, *operands)


def _helper_call(
    f: FunctionText, name: str, compute: Callable[..., str], operands: Sequence[str], lanes: int | None,
    element: str = "i32",
) -> str:  # fmt: skip
    """Return a reduced value that a helper computes of operands with this type of elements."""
    if f.is_inline:
        return compute(f, *operands)
    name = f"exact.{name}_{lanes or 0}"
    kind, result = llvm_type(element, lanes), llvm_type("i32", lanes)
    if name not in f.module.helpers:
        g = FunctionText(f.module, name)
        g.is_inline = True
        parameters = [f"x{i}" for i in range(len(operands))]
        g.effect(f"ret {result} {compute(g, *(f'%{each}' for each in parameters))}")
        g.finish_helper(result, **dict.fromkeys(parameters, kind))
    return f.op(f"call {result} @{name}({', '.join(f'{kind} {x}' for x in operands)}, ptr %round)")


def _inverse_helper(f: FunctionText, plane: Plane, lanes: int | None) -> str:
    """Return the name of a function that computes inverses; 0 has the inverse 0.

    Of two halves of a vector, only products are inverted: the inverse of one is that of the product times the other.
    """
    name = f"exact.inverse_{plane.index}_{lanes or 0}"
    if name in f.module.helpers:
        return name
    if lanes is None or lanes % 2:
        return _power_of_inverse(f, plane, lanes, name)
    half = lanes // 2
    inner = _inverse_helper(f, plane, half)
    kind, part = llvm_type("i64", lanes), llvm_type("i64", half)
    g = FunctionText(f.module, name)
    g.declare(part, inner, [part, "ptr"])
    zero = g.constant(0, 64, lanes)
    is_zero = g.op(f"icmp eq {kind} %x, {zero}")
    test = f"{llvm_type('i1', lanes)} {is_zero}"
    safe = g.op(f"select {test}, {kind} {g.constant(1, 64, lanes)}, {kind} %x")
    halves = [
        g.op(f"shufflevector {kind} {safe}, {kind} poison, {_lanes_text(range(first, first + half))}")
        for first in (0, half)
    ]
    product = reduced(g, times(g, halves[0], halves[1], half), half, plane)
    inverse = _call(g, inner, [product], half)
    low, high = (reduced(g, times(g, inverse, other, half), half, plane) for other in reversed(halves))
    joined = g.op(f"shufflevector {part} {low}, {part} {high}, {_lanes_text(range(lanes))}")
    result = g.op(f"select {test}, {kind} {zero}, {kind} {joined}")
    g.effect(f"ret {kind} {result}")
    g.finish_helper(kind, x=kind)
    return name


def _lanes_text(lanes: range) -> str:
    return f"<{len(lanes)} x i32> <" + ", ".join(f"i32 {i}" for i in lanes) + ">"


def _power_of_inverse(f: FunctionText, plane: Plane, lanes: int | None, name: str) -> str:
    """Make a function that computes x^(modulus - 2), and return its name."""
    kind = llvm_type("i64", lanes)
    g = FunctionText(f.module, name)
    g.lines += [
        "  br label %head", "head:", "  %i = phi i64 [ 0, %body ], [ %j, %head ]",
        f"  %r = phi {kind} [ {g.constant(1, 64, lanes)}, %body ], [ %next, %head ]",
        f"  %b = phi {kind} [ %x, %body ], [ %square, %head ]",
    ]  # fmt: skip
    shifted = g.op(f"lshr i64 {plane.modulus - 2}, %i")
    is_odd = g.op(f"trunc i64 {shifted} to i1")
    product = reduced(g, times(g, "%r", "%b", lanes), lanes, plane)
    g.effect(f"%next = select i1 {is_odd}, {kind} {product}, {kind} %r")
    square = reduced(g, times(g, "%b", "%b", lanes), lanes, plane)
    g.effect(f"%square = add {kind} {square}, {g.constant(0, 64, lanes)}")
    g.effect("%j = add i64 %i, 1")
    g.effect(f"%more = icmp ult i64 %j, {plane.modulus.bit_length()}")
    g.effect("br i1 %more, label %head, label %end")
    g.lines += ["end:", f"  ret {kind} %next"]
    g.finish_helper(kind, x=kind)
    return name


def _fields(f: FunctionText, form: FloatFormat, x: str, lanes: int | None) -> tuple[str, str, str]:
    """Return the sign, the exponent and the fraction of a float."""
    kind = llvm_type("i64", lanes)
    fraction = f.op(f"and {kind} {x}, {f.constant((1 << form.fraction) - 1, 64, lanes)}")
    moved = f.op(f"lshr {kind} {x}, {f.constant(form.fraction, 64, lanes)}")
    exponent = f.op(f"and {kind} {moved}, {f.constant((1 << form.exponent) - 1, 64, lanes)}")
    top = f.op(f"lshr {kind} {x}, {f.constant(form.fraction + form.exponent, 64, lanes)}")
    return f.op(f"and {kind} {top}, {f.constant(1, 64, lanes)}"), exponent, fraction


def _special_bits(f: FunctionText, form: FloatFormat, x: str, lanes: int | None) -> tuple[str, str]:
    """Return whether bits are those of an infinity or NaN, and which value outside of the field that is."""
    kind, bits = llvm_type("i64", lanes), llvm_type("i1", lanes)
    sign, exponent, fraction = _fields(f, form, x, lanes)
    special = f.op(f"icmp eq {kind} {exponent}, {f.constant((1 << form.exponent) - 1, 64, lanes)}")
    is_number = f.op(f"icmp eq {kind} {fraction}, {f.constant(0, 64, lanes)}")
    is_negative = f.op(f"icmp eq {kind} {sign}, {f.constant(1, 64, lanes)}")
    least, greatest, nan = (f.constant(each, 64, lanes) for each in (MINUS_INFINITY, INFINITY, NAN))
    signed = f.op(f"select {bits} {is_negative}, {kind} {least}, {kind} {greatest}")
    return special, f.op(f"select {bits} {is_number}, {kind} {signed}, {kind} {nan}")


def _decode_helper(f: FunctionText, form: FloatFormat, plane: Plane, lanes: int | None) -> str:
    """Return the name of a function from the bits of a float to its residue.

    It is (2^fraction + f) * 2^(e - bias - fraction), also where the exponent is that of an infinity or NaN.
    """
    name = f"exact.decode_{form.int_kind}_{form.fraction}_{plane.index}_{lanes or 0}"
    if name in f.module.helpers:
        return name
    kind, bits = llvm_type("i64", lanes), llvm_type("i1", lanes)
    g = FunctionText(f.module, name)
    sign, exponent, fraction = _fields(g, form, "%x", lanes)
    one, zero = g.constant(1, 64, lanes), g.constant(0, 64, lanes)
    is_normal = g.op(f"icmp ne {kind} {exponent}, {zero}")
    whole = g.op(f"or {kind} {fraction}, {g.constant(1 << form.fraction, 64, lanes)}")
    number = g.op(f"select {bits} {is_normal}, {kind} {whole}, {kind} {fraction}")
    if form.fraction >= plane.bits:
        number = reduced(g, number, lanes, plane)
    at = g.op(f"select {bits} {is_normal}, {kind} {exponent}, {kind} {one}")
    scale = plane.residue(Fraction(1, 1 << (form.bias + form.fraction)))
    result = reduced(g, times(g, number, g.constant(scale, 64, lanes), lanes), lanes, plane)
    for bit in range(form.exponent):
        factor = g.constant(pow(2, 1 << bit, plane.modulus), 64, lanes)
        moved = g.op(f"lshr {kind} {at}, {g.constant(bit, 64, lanes)}")
        is_set = g.op(f"trunc {kind} {moved} to {bits}")
        chosen = g.op(f"select {bits} {is_set}, {kind} {factor}, {kind} {one}")
        result = reduced(g, times(g, result, chosen, lanes), lanes, plane)
    is_negative = g.op(f"trunc {kind} {sign} to {bits}")
    negative = g.op(f"sub {kind} {g.constant(plane.modulus, 64, lanes)}, {result}")
    result = g.op(f"select {bits} {is_negative}, {kind} {negative}, {kind} {result}")
    result = _below_twice(g, result, lanes, plane)
    g.effect(f"ret {kind} {result}")
    g.finish_helper(kind, x=kind)
    return name


def _power_helper(f: FunctionText, lanes: int | None) -> str:
    """Return the name of a function that computes the power of the round's base, by its tables."""
    name = f"exact.power_{lanes or 0}"
    if name in f.module.helpers:
        return name
    kind = llvm_type("i64", lanes)
    g = FunctionText(f.module, name)
    result = ""
    for window in range(WINDOWS):
        digit = g.op(f"lshr {kind} %x, {g.constant(WINDOW * window, 64, lanes)}")
        digit = g.op(f"and {kind} {digit}, {g.constant((1 << WINDOW) - 1, 64, lanes)}")
        digit = g.op(f"add {kind} {digit}, {g.constant(ROUND_TABLES + (window << WINDOW), 64, lanes)}")
        factor = _table_entry(g, digit, lanes)
        result = reduced(g, times(g, result, factor, lanes), lanes, VALUES) if result else factor
    g.effect(f"ret {kind} {result}")
    g.finish_helper(kind, x=kind)
    return name


def _table_entry(g: FunctionText, position: str, lanes: int | None) -> str:
    if lanes is None:
        pointer = g.op(f"getelementptr i64, ptr %round, i64 {position}")
        return g.op(f"load i64, ptr {pointer}, align 8")
    pointers = g.op(f"getelementptr i64, ptr %round, <{lanes} x i64> {position}")
    return g.call(
        f"<{lanes} x i64>", f"llvm.masked.gather.v{lanes}i64.v{lanes}p0", (f"<{lanes} x ptr>", pointers), ("i32", "8"),
        (f"<{lanes} x i1>", g.constant(1, 1, lanes)), (f"<{lanes} x i64>", "poison"),
    )  # fmt: skip
