"""f16 and bf16 on processors without instructions for them, as f32 arithmetic and integers.

LLVM otherwise calls a function of its run-time library for each conversion (`__truncsfbf2`, `__extendhfsf2`), which few
processes define, even to load single lanes. So code for such a processor contains no such type at all: arithmetic is
done in f32, conversions in integers, and loads, moves and stores are of i16.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir, passmanager
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import walk
from mirlo.passes.lower.calls import find_all

if TYPE_CHECKING:
    from mirlo.passes.lower.values import Num, ValueBuilder

KINDS = ("f16", "bf16")
"""The element types that may be emulated."""
_CONVERSIONS = ("arith.extf", "arith.truncf")
_NAMES = re.compile(r"(?:(?<=x)|(?<![\w@]))b?f16\b")
"""Types: words of their own, or after the dims of a shape; not parts of the digests that name kernels."""


def used_floats(text: str) -> set[str]:
    """Return the types of 16 bits in the text of a module."""
    return set(_NAMES.findall(text)) if "f16" in text else set()


def emulate_floats(module: ir.Module | ir.OpView, kinds: Sequence[str]) -> None:
    """Rewrite arithmetic and conversions of these types as f32 arithmetic and integers, rounding after each."""
    if not kinds:
        return
    native = [kind for kind in KINDS if kind not in kinds]
    supported = f"extra-types={','.join(native)} " if native else ""
    widen = (
        f"builtin.module(math-extend-to-supported-types{{{supported}target-type=f32}},"
        f"arith-emulate-unsupported-floats{{source-types={','.join(kinds)} target-type=f32}})"
    )
    passmanager.PassManager.parse(widen).run(module.operation)
    for conversions in find_all(module, *_CONVERSIONS).values():
        for op in conversions:
            _expand_conversion(op, kinds)


def round_once(module: ir.Module, kinds: Sequence[str]) -> None:
    """Convert f64 to these types by way of f32, rounded as if at once: for processors without such instructions."""
    for op in find_all(module, "arith.truncf")["arith.truncf"] if kinds else ():
        b, (x,) = _builder(op)
        kind = _element(op.results[0])
        if x.kind == "f64" and kind in kinds:
            with ir.InsertionPoint(op), op.location:
                _replace(op, b.emit("arith.truncf", kind, _odd_f32(b, x)))


def _expand_conversion(op: ir.Operation, kinds: Sequence[str]) -> None:
    b, (x,) = _builder(op)
    kind = _element(op.results[0])
    with ir.InsertionPoint(op), op.location:
        if x.kind in kinds:
            _replace(op, b.convert(_widened(b, x), kind))
        elif kind in kinds:
            wide = _odd_f32(b, x) if x.kind == "f64" else x
            _replace(op, _narrowed(b, wide, kind))
        elif "fastmath" in op.attributes:
            # The pass may contract a rounding with the following extension: results would depend on fusion.
            op.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<none>")


def _builder(op: ir.Operation) -> tuple[ValueBuilder, list[Num]]:
    from mirlo.passes.lower.values import ValueBuilder  # few processors lack these types

    kind = op.results[0].type
    b = ValueBuilder(tuple(kind.shape) if isinstance(kind, ir.VectorType) else None)
    return b, [b.num(operand) for operand in op.operands]


def _element(value: ir.Value) -> str:
    kind = value.type
    return str(kind.element_type if isinstance(kind, ir.VectorType) else kind)


def _replace(op: ir.Operation, result: Num) -> None:
    op.results[0].replace_all_uses_with(result.value)
    op.erase()


def _widened(b: ValueBuilder, x: Num) -> Num:
    """Return an f32 of the same value."""
    if x.kind == "bf16":
        return b.convert(x, "f32")
    half = b.extend(b.bits(x), "i32", signed=False)
    exponent = half & 0x7C00
    moved = (half & 0x7FFF) << 13
    # The exponent's bias is 112 larger, and that of infinities and NaN 112 more; a NaN becomes quiet.
    normal = moved + (112 << 23)
    special = moved + (224 << 23) | b.select((half & 0x03FF).differs(0), b.constant("i32", 1 << 22), 0)
    # Without an implicit bit: as a fraction of the smallest normal number, from which that is taken away.
    small = b.bits(b.from_bits(moved + (113 << 23), "f32") - 2.0**-14)
    bits = b.select(exponent.equals(0x7C00), special, b.select(exponent.equals(0), small, normal))
    return b.from_bits(bits | (half & 0x8000) << 16, "f32")


def _narrowed(b: ValueBuilder, x: Num, kind: str) -> Num:
    """Return an f32 rounded to the nearest value of another type, to the even one of two."""
    if kind == "bf16":
        return b.convert(x, "bf16")
    bits = b.bits(x)
    size = bits & 0x7FFFFFFF
    rounded = (size - (112 << 23) + ((size >> 13) & 1) + 0xFFF) >> 13
    # Below the smallest normal number an addition rounds at the place of the last bit.
    small = b.bits(b.from_bits(size, "f32") + 0.5) - (126 << 23)
    quiet = (size >> 13) & 0x3FF | 0x7E00
    largest = b.select(size > 255 << 23, quiet, 0x7C00)
    result = b.select(size >= 143 << 23, largest, b.select(size < 113 << 23, small, rounded))
    return b.from_bits(b.truncate(result | (bits >> 16) & 0x8000, "i16"), "f16")


def _odd_f32(b: ValueBuilder, x: Num) -> Num:
    """Return an f64 as f32, rounded to the odd one of two neighbours: rounding that again is rounding once."""
    near = b.convert(x, "f32")
    back = b.abs(b.convert(near, "f64"))
    size = b.abs(x)
    bits = b.bits(near)
    is_above, is_below = back > size, back < size
    toward_zero = bits - b.select(is_above, b.constant("i32", 1), 0)
    return b.from_bits(b.select(is_above | is_below, toward_zero | 1, bits), "f32")


def move_as_integers(module: ir.Module, kinds: Sequence[str]) -> None:
    """Replace these types in a module of the LLVM dialect, without arithmetic on them, by i16."""
    mover = _Mover(kinds)
    operations: list[ir.Operation] = []

    def visit(operation: ir.Operation | ir.OpView) -> ir.WalkResult:
        operations.append(operation.operation)
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    for operation in operations:
        for name in list(operation.attributes):
            changed = mover.attribute(operation.attributes[name])
            if changed is not None:
                operation.attributes[name] = changed
        for region in operation.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    mover.retype(argument)
        for result in operation.results:
            mover.retype(result)


class _Mover:
    """Replaces types of 16 bits by i16."""

    def __init__(self, kinds: Sequence[str]):
        self.kinds = frozenset(kinds)
        # 'f16' is also the end of 'bf16'.
        self.names = re.compile("|".join("(?<!b)f16(?!\\d)" if kind == "f16" else f"{kind}(?!\\d)" for kind in kinds))

    def retype(self, value: ir.Value) -> None:
        text = str(value.type)
        if self.names.search(text):
            value.set_type(self._integers(text))

    def _integers(self, text: str) -> ir.Type:
        # Few types of the LLVM dialect (structures, functions, arrays) have classes in the bindings; their text
        # contains no names.
        return ir.Type.parse(self.names.sub("i16", text))

    def attribute(self, attribute: ir.Attribute) -> ir.Attribute | None:
        """Return the attribute with i16 in place of the types; None if it contains none."""
        if isinstance(attribute, ir.TypeAttr):
            text = str(attribute.value)
            return ir.TypeAttr.get(self._integers(text)) if self.names.search(text) else None
        i16 = ir.IntegerType.get_signless(16)
        if isinstance(attribute, ir.FloatAttr) and str(attribute.type) in self.kinds:
            scalar = ir.DenseElementsAttr.get_splat(ir.VectorType.get([1], attribute.type), attribute)
            return ir.IntegerAttr.get(i16, int(_bits(scalar, [1], str(attribute.type))[0]))
        if isinstance(attribute, ir.DenseElementsAttr):
            kind = ir.ShapedType(attribute.type)
            element = str(kind.element_type)
            if element in self.kinds:
                bits = _bits(attribute, kind.shape, element)
                return ir.DenseElementsAttr.get(bits, type=self._integers(str(attribute.type)))
        return None


def _bits(elements: ir.Attribute, shape: Sequence[int], kind: str) -> np.ndarray:
    return np.ascontiguousarray(read_dense(elements, TensorType.of(tuple(shape), kind))).view("int16")
