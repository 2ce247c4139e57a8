"""Conversion of products with weights of 2, 4 and 8 bits: they read them packed, in panels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.surgery import ancestors
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallTir, ViewRow
from mirlo.dialects.relax.create import Constant
from mirlo.passes.fuse.kinds import KIND, FusionKind
from mirlo.passes.graph.constants import emit_derived_constant
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.graph.unknown import DeferredElements
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.container import empty_aligned
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits.code import CodeLookup, Dots
from mirlo.targets.llvm.nbits.functions import product_function
from mirlo.targets.llvm.nbits.layout import PanelLayout
from mirlo.targets.llvm.nbits.product import Product
from mirlo.targets.llvm.nbits.weights import (
    MANY_ROWS,
    SCALES,
    PackedWeights,
    Reader,
    constant_source,
    stored_elements,
)

if TYPE_CHECKING:
    from mirlo.passes.graph.unknown import Answer, ConstantSource

FEW_BITS = ((5, -16), (5, 0), (6, -32), (6, 0))
"""Bits and least values that weights of 8 bits may have to take less memory."""
DIGITS = {"exact": 0, "bf16": 0, "i8": 1, "i8x2": 2}


class ProductFunctions:
    """The kernels of a module, each once."""

    def __init__(self, module: ir.OpView, machine: Machine):
        self.machine = machine
        self.body = module.operation.regions[0].blocks[0]
        self.symbols = ir.SymbolTable(module.operation)
        self.known: dict[Product, str] = {}

    def name_of(self, product: Product, location: ir.Location) -> str:
        if product not in self.known:
            function = product_function(product, self.machine, location)
            function.operation.attributes[KIND] = ir.StringAttr.get(FusionKind.OPAQUE.label)
            self.body.append(function.operation)
            self.known[product] = ir.StringAttr(self.symbols.insert(function.operation)).value
        return self.known[product]


class ProductConverter:
    """Rewrites one product."""

    def __init__(
        self,
        matmul: ir.OpView,
        weights: PackedWeights,
        b: Rewriter,
        functions: ProductFunctions,
        panels: dict[Hashable, str],
    ):
        self.matmul, self.weights, self.b, self.functions, self.panels = matmul, weights, b, functions, panels

    def product(self, activations: str) -> Product | Decline:
        """Return the product that is computed, or decline."""
        weights = self.weights
        kind = kind_of(self.matmul.lhs)
        if kind.dtype.name not in SCALES:
            return decline("the rows are of another type", operand=str(kind))
        if kind.shape[-1] != weights.rows:
            return decline("the rows of K are cut off elsewhere", operand=str(kind))
        count, digits = D.product(list(kind.shape[:-1])), DIGITS[activations]
        layout = PanelLayout(
            weights.bits, weights.block, weights.columns, weights.rows, kind_of(weights.scales).dtype.name,
            _zero_type(weights), weights.floats, weights.codebook,
        )  # fmt: skip
        machine = self.functions.machine
        if weights.codebook and not (machine.avx512 or machine.avx2 or (layout.table and CodeLookup.supports(machine))):
            return decline(
                "a table of weights is looked up by an instruction of AVX2, AVX-512 or, of integers, AArch64"
            )
        if digits and not (layout.is_integer and Dots.supports(machine, layout)):
            digits = 0  # what is permitted is not faster
        is_tall = isinstance(count, int) and count >= MANY_ROWS and not machine.invariant
        if weights.is_shared and weights.bits == 8 and not digits and is_tall:
            return decline("there are many rows, and f32 weights are computed beforehand", rows=count)
        if weights.floats and not layout.is_integer and self._decide(weights.values, _has_nan, "nan"):
            return decline("a weight is not a number", dtype=weights.dtype)
        if layout.zero == "i8" and layout.block >= 64:
            layout = replace(layout, zero="f32")
        unit = np.float32(weights.unit)

        def fits_f16(matrices: Iterable[np.ndarray]) -> bool:
            return all(_fits_f16(scales * unit) for scales in matrices)

        if layout.scale == "f32" and self._decide(weights.scales, fits_f16, ("f16", weights.unit)):
            layout = replace(layout, scale="f16")
        if layout.bits == 8 and not digits:
            layout = self._few_bits(layout) or replace(layout, is_by_row=True, is_signed=layout.is_integer)
        elif layout.bits == 8 and Dots(self.functions.machine).is_signed:
            layout = replace(layout, is_signed=True)
        return Product(layout, count, digits)

    def _decide(self, value: ir.Value, question: Callable[[Iterable[np.ndarray]], Answer], key: Hashable) -> Answer:
        """Return the answer to a question about the elements of all matrices that may be chosen."""
        return stored_elements(value).decide(question, key, self.weights.positions, self.b.session)

    def _few_bits(self, layout: PanelLayout) -> PanelLayout | None:
        """Return the layout of weights of 8 bits that need only 5 or 6, for machines that decode them fast."""
        if not (self.functions.machine.avx512 and layout.is_integer):
            return None
        middle, sub = self.weights.middle, layout.sub

        def fewest(matrices: Iterable[np.ndarray]) -> tuple[int, int] | None:
            ranges = [(int(each.min()), int(each.max())) for each in matrices if each.size]
            if not ranges:
                return None
            low, high = min(low for low, _ in ranges) - middle, max(high for _, high in ranges) - middle
            forms = (form for form in FEW_BITS if form[1] <= low and high < form[1] + (1 << form[0]))
            return next((form for form in forms if sub * form[0] % 32 == 0), None)

        form = self._decide(self.weights.values, fewest, ("fewest bits", middle, sub))
        return None if form is None else replace(layout, bits=form[0], least=form[1])

    def convert(self, product: Product, activations: str) -> ir.Value:
        """Emit the product and return its value, of the type of the original."""
        layout, b, matmul = product.layout, self.b, self.matmul
        kind, result = kind_of(matmul.lhs), kind_of(matmul.output)
        x = matmul.lhs
        if activations == "bf16" and kind.dtype.name != "bf16":
            x = b.emit(OPS["cast"], x, dtype="bf16")
        if kind_of(x).dtype.name != "f32":
            x = b.emit(OPS["cast"], x, dtype="f32")
        x = b.emit(OPS["reshape"], x, shape=(product.count, layout.rows))
        values = self._quantized(product, x) if product.digits else self._floats(product, x)
        flat = [
            b.emit(OPS["reshape"], value, shape=wanted.shape)
            for value, wanted in zip(values, product.activations, strict=True)
        ]
        name = self.functions.name_of(product, b.op.location)
        with ir.InsertionPoint(b.op), b.op.location:
            call = CallTir.build([*flat, self._packed(layout)], result_types=[product.result], callee=name)
        output = b.emit(OPS["reshape"], call.operation.results[0], shape=result.shape)
        return output if result.dtype.name == "f32" else b.emit(OPS["cast"], output, dtype=result.dtype)

    def _quantized(self, product: Product, x: ir.Value) -> list[ir.Value]:
        layout = product.layout
        op = OPS["quantize_rows"]
        return self.b.emit_all(op, x, block=layout.sub, digits=product.digits, offset=-layout.middle)

    def _floats(self, product: Product, x: ir.Value) -> list[ir.Value]:
        """Return the rows in sub-blocks, and the sums of these if there are zero points."""
        layout, b = product.layout, self.b
        padding = layout.sub_blocks * layout.sub - layout.rows
        if padding:
            x = b.emit(OPS["pad"], x, pads=[0, 0, 0, padding], mode="constant", value=0.0)
        x = b.emit(OPS["reshape"], x, shape=(product.count, layout.sub_blocks, layout.sub))
        if product.count != 1:
            x = b.emit(OPS["permute"], x, axes=(1, 0, 2))
        else:
            x = b.emit(OPS["reshape"], x, shape=(layout.sub_blocks, 1, layout.sub))
        return [x, b.emit(OPS["reduce_sum"], x, axes=[2], keepdims=False)] if layout.zero else [x]

    def _packed(self, layout: PanelLayout) -> ir.Value:
        """Emit the constant of the panels; products with the same weights share it."""
        weights, b = self.weights, self.b
        choice = weights.choice
        key = (layout, choice is None, *(_key(v) for v in (weights.values, weights.scales, weights.zeros)))
        kind = TensorType.of((layout.bytes,) if choice is None else (choice.count, layout.bytes), "u8")
        with ir.InsertionPoint(_beside(constant_source(weights.values), b.op)), b.op.location:
            if key in self.panels:
                result: ir.Value = Constant.make(param=self.panels[key], result_types=[kind])
            else:
                result = self._made(layout, kind)
                self.panels[key] = result.owner.opview.param
        if choice is None:
            return result
        with ir.InsertionPoint(b.op), b.op.location:
            row: ir.Value = ViewRow.make(result, choice.position)
        return row

    def _made(self, layout: PanelLayout, kind: TensorType) -> ir.Value:
        """Emit a constant of panels, or of those of all matrices that may be chosen."""
        weights = self.weights
        values = [weights.values, weights.scales, *([] if isinstance(weights.zeros, int) else [weights.zeros])]
        stored = [stored_elements(value) for value in values]
        readers, pack = [each.reader_of for each in stored], packer(layout, weights)
        count = None if weights.choice is None else weights.choice.count

        def elements(sources: Sequence[ConstantSource]) -> DeferredElements:
            packed = pack([reader(source) for reader, source in zip(readers, sources, strict=True)])
            if count is None:
                return DeferredElements(lambda: packed(0))

            def fill(to: np.ndarray) -> None:
                for position in range(count):
                    to[position] = packed(position)

            def make() -> np.ndarray:
                panels = empty_aligned(np.dtype(np.uint8), kind.static_shape)
                fill(panels)
                return panels

            return DeferredElements(make, fill)

        zeros = weights.zeros if isinstance(weights.zeros, int) else None
        key = (
            "panels", layout, count, weights.dtype, weights.by_column, weights.rows, weights.is_shared, zeros,
            *((each.decoding, each.is_slice) for each in stored),
        )  # fmt: skip
        constants = [each.constant for each in stored]
        result = emit_derived_constant(elements, key, constants, kind, self.b.session, "panels")
        assert result is not None  # numpy packs all weights
        return result


def _beside(constant: ir.Value, op: ir.Operation | ir.OpView) -> ir.Operation:
    """Return an operation, or the loop or branch that it is in, in the block of a constant."""
    block = constant.owner.operation.block
    return next(each for each in (op.operation, *ancestors(op)) if each.block == block)


def packer(layout: PanelLayout, weights: PackedWeights) -> Callable[[Sequence[Reader]], Reader]:
    """Return a function that makes the panels of a matrix, by readers of its values, scales and zero points."""
    bits, middle, by_column, rows = weights.bits, weights.middle, weights.by_column, weights.rows
    columns, is_shared, in_blocks = weights.columns, weights.is_shared, bool(weights.codebook)
    is_signed, unit = weights.dtype[0] == "i", weights.unit
    relative = weights.zeros if isinstance(weights.zeros, int) else None

    def by_columns(array: np.ndarray) -> np.ndarray:
        return array if by_column else array.T

    def by_blocks(array: np.ndarray) -> np.ndarray:
        shared = (columns, layout.blocks)
        return np.broadcast_to(array.reshape(-1, 1), shared) if is_shared else by_columns(array)

    def make(readers: Sequence[Reader], position: int) -> np.ndarray:
        values, scales, *zeros = readers
        if in_blocks:
            values, scales = _reshaped(values, (columns, rows)), _reshaped(scales, (columns, -1))
        codes = by_columns(values(position))[:, :rows]
        if layout.floats:
            codes = codes.view(np.uint8)
        if is_signed:
            codes = (codes.astype(np.int8) + np.int8(-128 if bits == 8 else 1 << (bits - 1))).view(np.uint8)
        scale_columns = by_blocks(scales(position))
        scale = scale_columns if unit == 1 else scale_columns * scale_columns.dtype.type(unit)
        if layout.scale == "f16":
            scale = scale.astype(np.float16)
        if not layout.zero:
            return layout.pack(codes, scale, None)
        points = by_blocks(zeros[0](position)) if zeros else np.full(scale_columns.shape, relative, np.int64)
        wide = points.astype(np.float32) - np.float32(middle)
        return layout.pack(codes, scale, wide if layout.zero == "f32" else wide.astype(np.int8))

    return lambda readers: lambda position: make(readers, position)


def _has_nan(matrices: Iterable[np.ndarray]) -> bool:
    return any((codes.view(np.uint8) & 0x7F == 0x7F).any() for codes in matrices)


def _reshaped(read: Reader, shape: tuple[int, int]) -> Reader:
    return lambda position: read(position).reshape(shape)


def _zero_type(weights: PackedWeights) -> str:
    """Return the element type of zero points that are not in the middle, else nothing."""
    if isinstance(weights.zeros, int):
        return "" if weights.zeros == weights.middle else "i8"
    return "f32" if kind_of(weights.zeros).dtype.is_float else "i8"


def _fits_f16(scales: np.ndarray) -> bool:
    """Return whether f16 represents all scales exactly."""
    with np.errstate(over="ignore"):
        return bool((scales.astype(np.float16).astype(np.float32) == scales).all())


def _key(value: ir.Value | int) -> Hashable:
    """Return a key of a constant, packed or not, or of a number."""
    if isinstance(value, int):
        return value
    cut = defining(value, "relax.strided_slice")
    constant = constant_source(value if cut is None else cut.x).owner.opview
    return str(value.type), constant.param, str(constant.value)
