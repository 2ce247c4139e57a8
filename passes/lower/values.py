"""SSA values with Python operators: the expressions of rules for intrinsics.

    x = op.nums[0]                      # a Num: an MLIR value, a scalar or a vector
    y = b.select(x < 0.0, -x, x)        # arith.cmpf, arith.select, with constants splatted to the shape of x
    n = b.bits(y) >> 23                 # arith.bitcast, arith.shrui

A `Num` has an element type (`kind`), and its operators emit one operation each. All Nums of one builder have one
shape, so that a rule is written once for scalars and vectors; the emitted code has no branch and no call, so that a
scalar loop over it vectorizes as well.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.value import FLOAT_PREDICATES, INT_PREDICATES
from mirlo.dialects.tir import intrinsics as tir_intrinsics
from mirlo.dialects.tir.block import CallExtern
from mirlo.dialects.tir.compute.expr import Expr
from mirlo.dialects.tir.compute.loops import LoopBuilder, stack_buffer
from mirlo.dialects.tir.compute.narrow import as_expr, emit
from mirlo.dialects.tir.own_intrinsics import OWN, emit_own
from mirlo.passes.lower.formats import FORMATS
from mirlo.passes.lower.num import Num, Number
from mirlo.runtime.errors import nearest


class IndexValue:
    """A scalar of type index."""

    def __init__(self, value: ir.Value):
        self.value = value

    def __floordiv__(self, divisor: int) -> IndexValue:
        index = ir.IndexType.get()
        by = _create("arith.constant", index, value=ir.IntegerAttr.get(index, divisor))
        return IndexValue(_create("arith.divsi", index, self.value, by))


def _create(op: str, result: ir.Type, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
    return ir.Operation.create(op, results=[result], operands=operands, attributes=attributes).results[0]


def _at(position: tuple[int, ...]) -> dict[str, ir.Attribute]:
    return {"static_position": ir.DenseI64ArrayAttr.get(list(position))}


class ValueBuilder:
    """Emitter of operations at the insertion point, on scalars (`shape` None) or vectors of one shape.

    `constants` may be shared by builders whose insertion points follow each other in one block.
    """

    def __init__(
        self,
        shape: tuple[int, ...] | None,
        constants: dict[tuple[str, tuple[int, ...] | None, int | bytes], ir.Value] | None = None,
    ):
        self.shape = shape
        self._types: dict[str, ir.Type] = {}
        self._constants = {} if constants is None else constants

    @property
    def constants(self) -> dict[tuple[str, tuple[int, ...] | None, int | bytes], ir.Value]:
        """Return the constants emitted so far, for a builder that continues at the same position."""
        return self._constants

    # Types and values

    def type(self, kind: str) -> ir.Type:
        """Return the MLIR type of a Num of this kind."""
        result = self._types.get(kind)
        if result is None:
            scalar = ir.Type.parse(kind)
            result = self._types[kind] = scalar if self.shape is None else ir.VectorType.get(self.shape, scalar)
        return result

    def num(self, value: ir.Value) -> Num:
        """Return a Num for an MLIR value of this builder's shape."""
        if isinstance(value, Num):
            return value
        mlir_type = value.type
        element = mlir_type.element_type if isinstance(mlir_type, ir.VectorType) else mlir_type
        return Num(self, value, str(element))

    def emit(self, op: str, kind: str, *operands: Num, **attributes: ir.Attribute | str) -> Num:
        """Emit any operation with one result, a Num of this kind; attributes are MLIR's, or text."""
        if not isinstance(kind, str):
            raise TypeError(
                f"emit('{op}', ...): expected the element type of the result, such as 'f32', found {kind!r}"
            )
        as_attributes = {name: ir.StringAttr.get(v) if isinstance(v, str) else v for name, v in attributes.items()}
        new_op = ir.Operation.create(
            op, results=[self.type(kind)], operands=[x.value for x in operands], attributes=as_attributes
        )
        return Num(self, new_op.results[0], kind)

    def call(self, name: str, *operands: Num) -> Any:
        """Emit another intrinsic, `tir.<name>` or one of a plug-in, which is lowered by its own rule."""
        values = [x.value if isinstance(x, Num) else x for x in operands]
        if name in OWN and OWN[name].result is None:
            emit_own(name, *values)
            return None
        return self.num(tir_intrinsics.emit(name, *values))

    def call_extern(self, function: str, kind: str | None, *operands: Num | ir.Value) -> Any:
        """Call a C function that takes scalars and returns one of this kind; for a vector, once per lane.

        Where the kind is None, the function returns nothing, and is called for its effect. Operands may be handles
        (values of `op.args`) as well, and the kind `!llvm.ptr`.
        """
        values = [x.value if isinstance(x, Num) else x for x in operands]
        if kind is None:
            CallExtern.build(values, result_types=[], function=function)
            return None
        nums = [x for x in operands if isinstance(x, Num)]
        if len(nums) != len(operands):
            result = CallExtern.make(values, result_types=[ir.Type.parse(kind)], function=function)
            return result if kind.startswith("!") else Num(self, result, kind)
        return self._by_lane(lambda *lanes: self._call_scalar(function, kind, list(lanes)), kind, nums)

    def statements(
        self,
        body: Callable[..., Expr | None],
        kind: str | None,
        *operands: Num,
        scratch: Sequence[tuple[Sequence[int], str]] = (),
    ) -> Num | None:
        """Write loops, branches and memory: `body(loops, *scalars, *buffers)` returns the result, of this kind.

        `loops` is the builder of `call_loops`; `scratch` lists the shapes and element types of buffers on the stack,
        which are there for this computation only. For vectors the body is written once per lane.
        """

        def scalar(*values: ir.Value) -> ir.Operation:
            types = [] if kind is None else [ir.Type.parse(kind)]
            scope = ir.Operation.create("memref.alloca_scope", results=types, regions=1)
            with ir.InsertionPoint(ir.Block.create_at_start(scope.regions[0], [])):
                buffers = [stack_buffer(shape, element) for shape, element in scratch]
                arguments = [as_expr(value, DTYPES[x.kind]) for value, x in zip(values, operands, strict=True)]
                result = body(LoopBuilder(None), *arguments, *buffers)
                ir.Operation.create("memref.alloca_scope.return", operands=[] if result is None else [emit(result)])
            return scope

        if kind is None:
            scalar(*(x.value for x in operands))
            return None
        return self._by_lane(lambda *values: scalar(*values).results[0], kind, operands)

    def _by_lane(self, function: Callable[..., ir.Value], kind: str, operands: Sequence[Num]) -> Num:
        """Apply a function of scalars, to each lane of vectors."""
        if self.shape is None:
            return Num(self, function(*(x.value for x in operands)), kind)
        result = self.constant(kind, 0).value
        for at in itertools.product(*map(range, self.shape)):
            lanes = [_create("vector.extract", ir.Type.parse(x.kind), x.value, **_at(at)) for x in operands]
            result = _create("vector.insert", result.type, function(*lanes), result, **_at(at))
        return Num(self, result, kind)

    def _call_scalar(self, function: str, kind: str, operands: list[ir.Value]) -> ir.Value:
        result: ir.Value = CallExtern.make(operands, result_types=[ir.Type.parse(kind)], function=function, pure=True)
        return result

    def constant(self, kind: str, number: float | int) -> Num:
        """Return a constant in every lane. An integer is taken modulo its width: bit patterns may be unsigned."""
        as_float = kind in FORMATS
        key = (kind, self.shape, struct.pack("<d", number) if as_float else int(number))
        cached = self._constants.get(key)
        if cached is None:
            cached = self._make_constant(kind, number)
            self._constants[key] = cached
        return Num(self, cached, kind)

    def _make_constant(self, kind: str, number: float | int) -> ir.Value:
        mlir_type = self.type(kind)
        element = mlir_type.element_type if self.shape is not None else mlir_type
        attribute: ir.Attribute
        if kind in FORMATS:
            attribute = ir.FloatAttr.get(element, float(number))
        else:
            bits = 64 if kind == "index" else int(kind[1:])
            wrapped = int(number) & ((1 << bits) - 1)
            if bits > 1 and wrapped >= 1 << (bits - 1):
                wrapped -= 1 << bits
            attribute = ir.IntegerAttr.get(element, wrapped)
        if self.shape is not None:
            attribute = ir.DenseElementsAttr.get_splat(mlir_type, attribute)
        return ir.Operation.create("arith.constant", results=[mlir_type], attributes={"value": attribute}).results[0]

    def like(self, x: Num, other: Number) -> Num:
        """Return `other` as a Num of the kind of x."""
        if not isinstance(other, Num):
            return self.constant(x.kind, other)
        if other.kind != x.kind:
            raise TypeError(f"operands must have one element type, got {x.kind} and {other.kind}")
        return other

    # Choices

    def compare(self, predicate: str, x: Num, y: Number) -> Num:
        """Return an i1 Num; float comparisons are ordered (false for NaN), except 'ne' and 'unordered'."""
        table, op = (FLOAT_PREDICATES, "arith.cmpf") if x.is_float else (INT_PREDICATES, "arith.cmpi")
        if predicate not in table:
            kinds = "floats" if x.is_float else "integers"
            near = nearest(predicate, table)
            raise ValueError(f"compare '{predicate}' of {kinds}: expected one of {', '.join(table)}{near}")
        i64 = ir.IntegerType.get_signless(64)
        return self.emit(op, "i1", x, self.like(x, y), predicate=ir.IntegerAttr.get(i64, table[predicate]))

    def select(self, condition: Num, yes: Number, no: Number) -> Num:
        if isinstance(yes, Num):
            no = self.like(yes, no)
        elif isinstance(no, Num):
            yes = self.like(no, yes)
        else:
            raise TypeError("select needs a Num for at least one of its choices")
        return self.emit("arith.select", yes.kind, condition, yes, no)

    def clamp_above(self, x: Num, limit: Number) -> Num:
        """Return min(x, limit), or x if it is NaN; one instruction on most machines."""
        return self.select(x > limit, limit, x)

    def clamp_below(self, x: Num, limit: Number) -> Num:
        """Return max(x, limit), or x if it is NaN."""
        return self.select(x < limit, limit, x)

    # Arithmetic

    def fma(self, x: Num, y: Number, z: Number) -> Num:
        """Return x·y + z, rounded once."""
        return self.emit("math.fma", x.kind, x, self.like(x, y), self.like(x, z))

    def multiply_add(self, x: Num, y: Number, z: Number) -> Num:
        """Return x·y + z, rounded once or twice: for machines on which a fused operation is slow."""
        loose = {"fastmath": ir.Attribute.parse("#arith.fastmath<contract>")}
        return self.emit("math.fma", x.kind, x, self.like(x, y), self.like(x, z), **loose)

    def quotient(self, x: Num, y: Num) -> Num:
        """Return x / y for positive y, where operands and result are far from the ends of the range.

        Otherwise the result must be unused: a target may compute the quotient in a way that results in NaN.
        """
        return x / y

    def polynomial(self, x: Num, coefficients: Sequence[float]) -> Num:
        """Evaluate a polynomial by Horner's scheme; the coefficient of the highest power first."""
        result = self.constant(x.kind, coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.multiply_add(result, x, coefficient)
        return result

    def unary(self, op: str, x: Num) -> Num:
        """Emit an upstream operation that every LLVM back end supports without a call, such as 'math.sqrt'."""
        return self.emit(op, x.kind, x)

    def sqrt(self, x: Num) -> Num:
        return self.unary("math.sqrt", x)

    def abs(self, x: Num) -> Num:
        return self.unary("math.absf", x)

    def copysign(self, x: Num, sign: Num) -> Num:
        return self.emit("math.copysign", x.kind, x, sign)

    def shift_right_signed(self, x: Num, count: Number) -> Num:
        return self.emit("arith.shrsi", x.kind, x, self.like(x, count))

    # Control flow

    def if_any(self, condition: Num, body: Callable[[], Sequence[Num]], *otherwise: Num) -> list[Num]:
        """Return the results of `body` (for all lanes) if the condition holds in any lane, else `otherwise`."""
        flag = condition.value
        if self.shape is not None:
            flat = ir.VectorType.get([math.prod(self.shape)], ir.Type.parse("i1"))
            if len(self.shape) != 1:
                flag = _create("vector.shape_cast", flat, flag)
            flag = _create("vector.reduction", flat.element_type, flag, kind=ir.Attribute.parse("#vector.kind<or>"))
        types = [x.value.type for x in otherwise]
        op = ir.Operation.create("scf.if", results=types, operands=[flag], regions=2)
        self._yield_in(op.regions[0], [], lambda _: body())
        self._yield_in(op.regions[1], [], lambda _: otherwise)
        return [Num(self, value, x.kind) for value, x in zip(op.results, otherwise, strict=True)]

    def _yield_in(
        self, region: ir.Region, arguments: list[ir.Type], body: Callable[[ir.BlockArgumentList], Sequence[Num]]
    ) -> None:
        block = ir.Block.create_at_start(region, arguments)
        # Earlier constants are visible in the block; those created in it are not visible after it.
        outside, self._constants = self._constants, dict(self._constants)
        try:
            with ir.InsertionPoint(block):
                results = body(block.arguments)
                ir.Operation.create("scf.yield", operands=[x.value for x in results])
        finally:
            self._constants = outside

    def largest_lane(self, n: Num) -> IndexValue:
        """Return the maximum over the lanes of a signed integer."""
        value = n.value
        if self.shape is not None:
            kind = ir.Attribute.parse("#vector.kind<maxsi>")
            value = _create("vector.reduction", ir.Type.parse(n.kind), value, kind=kind)
        return IndexValue(_create("arith.index_cast", ir.IndexType.get(), value))

    def repeat(self, count: IndexValue, body: Callable[..., Sequence[Num]], *initial: Num) -> list[Num]:
        """Apply `body` `count` times, and at least once, each time to its previous results."""
        index = ir.IndexType.get()
        zero, one = (_create("arith.constant", index, value=ir.IntegerAttr.get(index, k)) for k in (0, 1))
        limit = _create("arith.maxsi", index, count.value, one)
        types = [x.value.type for x in initial]
        loop = ir.Operation.create(
            "scf.for", results=types, operands=[zero, limit, one, *(x.value for x in initial)], regions=1
        )

        def step(arguments: Sequence[ir.Value]) -> Sequence[Num]:
            return body(*(Num(self, arguments[i + 1], x.kind) for i, x in enumerate(initial)))

        self._yield_in(loop.regions[0], [index, *types], step)
        return [Num(self, value, x.kind) for value, x in zip(loop.results, initial, strict=True)]

    # Representations

    def bits(self, x: Num) -> Num:
        """Return the bit pattern of a float as an integer."""
        return self.emit("arith.bitcast", x.format.int_kind, x)

    def from_bits(self, x: Num, kind: str) -> Num:
        """Return the float with this bit pattern."""
        return self.emit("arith.bitcast", kind, x)

    def power_of_two(self, n: Num, kind: str) -> Num:
        """Return 2^n for integers n from 1 - bias to bias; only the low bits of n count."""
        form = FORMATS[kind]
        return self.from_bits((n << form.fraction) + (form.bias << form.fraction), kind)

    def round_to_int(self, x: Num) -> tuple[Num, Num]:
        """Round x to the nearest integer; return it as a float, and as an integer whose low bits are valid.

        For |x| below 2^(fraction - 2); cheaper than a conversion, and never undefined.
        """
        shifted = x + x.format.rounding_constant
        return shifted - x.format.rounding_constant, self.bits(shifted)

    def to_int(self, x: Num, kind: str) -> Num:
        """Truncate towards zero; undefined outside the range of the integer."""
        return self.emit("arith.fptosi", kind, x)

    def to_float(self, x: Num, kind: str) -> Num:
        """Convert a signed integer to a float."""
        return self.emit("arith.sitofp", kind, x)

    def small_int_to_float(self, n: Num, kind: str) -> Num:
        """Convert a signed integer n, |n| below 2^(fraction - 2) and as wide as the float, by addition alone."""
        form = FORMATS[kind]
        magic_bits = (
            struct.unpack("<q", struct.pack("<d", form.rounding_constant))[0] if form.bits == 64 else 0x4B400000
        )
        return self.from_bits(n + magic_bits, kind) - form.rounding_constant

    def extend(self, x: Num, kind: str, signed: bool = True) -> Num:
        return self.emit("arith.extsi" if signed else "arith.extui", kind, x)

    def truncate(self, x: Num, kind: str) -> Num:
        return self.emit("arith.trunci", kind, x)

    def convert(self, x: Num, kind: str) -> Num:
        """Convert a float to another format, rounded to nearest even."""
        if x.kind == kind:
            return x
        if x.kind == "bf16":
            wide = self.from_bits(self.extend(self.bits(x), "i32", signed=False) << 16, "f32")
            return self.convert(wide, kind)
        if kind == "bf16":
            return self._to_bf16(self.convert(x, "f32"))
        return self.emit("arith.extf" if FORMATS[kind].bits > x.format.bits else "arith.truncf", kind, x)

    def _to_bf16(self, x: Num) -> Num:
        # By bits: LLVM calls a run-time function if the machine has no such instruction.
        bits = self.bits(x)
        rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
        quiet = (bits >> 16) | 0x40
        return self.from_bits(self.truncate(self.select(x.is_nan, quiet, rounded), "i16"), "bf16")
