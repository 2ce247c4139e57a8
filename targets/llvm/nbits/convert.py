"""Pass `pack-nbits`: products with weights of 2, 4 and 8 bits read them packed, in panels."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.surgery import blocks, erase_dead, replace_op
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.relax.constant import Constant
from mirlo.passes.fuse.kinds import KIND, FusionKind
from mirlo.passes.graph.activations import ACTIVATIONS, REQUESTED
from mirlo.passes.graph.constants import constant_reader, emit_deferred_constant, is_available
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits.code import Dots
from mirlo.targets.llvm.nbits.functions import product_function
from mirlo.targets.llvm.nbits.layout import FLOATS, PanelLayout
from mirlo.targets.llvm.nbits.product import Product
from mirlo.targets.llvm.options import find_machine

if TYPE_CHECKING:
    from mirlo.passes.session import Session

DIGITS = {"exact": 0, "bf16": 0, "i8": 1, "i8x2": 2}
MIN_BLOCK = 16
_SCALES = ("f32", "f16", "bf16")
_WEIGHTS = ("u2", "i2", "u4", "i4", "u8", "i8", *FLOATS)
Reader = Callable[[], np.ndarray]


@dataclass(frozen=True)
class NbitsRecord:
    """A product with packed weights, or why weights of a few bits are dequantized."""

    product: Product | None
    declined: Decline | None


@dataclass(frozen=True)
class PackedWeights:
    """Constant weights of a few bits, [columns, rows of K], with a scale for each block."""

    values: ir.Value
    """The integers: a constant, or `unpack` of one."""
    dtype: str
    """Element type of the weights."""
    by_column: bool
    """Whether a column is contiguous; otherwise a row of K is."""
    columns: int
    rows: int
    """Rows of K that are used; the last block may have more."""
    block: int
    scales: ir.Value
    zeros: ir.Value | int
    """The zero points: a constant, perhaps packed, or one number."""
    codebook: tuple[float, ...] = ()
    """The numbers that the integers stand for, if they are codes."""

    @property
    def bits(self) -> int:
        return DTYPES[self.dtype].bits

    @property
    def floats(self) -> str:
        """Return the type of weights that are floats, else nothing."""
        return self.dtype if DTYPES[self.dtype].is_float else ""

    @property
    def middle(self) -> int:
        """Return the middle of the range of the stored weights."""
        return 1 << (self.bits - 1) if self.dtype[0] == "u" else 0

    @property
    def unit(self) -> float:
        """Return what the scales are multiplied by."""
        return FLOATS.get(self.floats, 1.0)


@register_pass
@dataclass(frozen=True)
class PackNbits(Pass):
    """Compute products with dequantized weights of 2, 4 and 8 bits from the packed weights.

    The weights of such a product are stored as panels that a kernel reads once, and dequantizes in registers. The
    attribute `activations` of the product, or the option of this name, says whether rows may be quantized. Products
    that do not match are computed with weights that are dequantized in memory.
    """

    name = "pack-nbits"
    contained = True
    trusted = True
    machine: str = option("", "machine to choose for; default: the one that is scheduled for")
    activations: str = option("", "how activations are represented: exact, i8, i8x2, bf16; default: as products say")
    explain: bool = option(False, "tell what became of each product")

    def run(self, op: ir.OpView, session: Session) -> None:
        machine = find_machine(self.machine or session.options.get("machine"))
        if self.activations not in ("", *ACTIVATIONS):
            raise PassError(
                f"pack-nbits: 'activations' must be one of {', '.join(ACTIVATIONS)}; got {self.activations}"
            )
        wanted = self.activations or session.options.get(REQUESTED) or ""
        functions = _Functions(op, machine)
        panels: dict[Hashable, str] = {}
        for function in op.operation.regions[0].blocks[0].operations:
            for block in reversed(blocks(function)):
                for matmul in [o.operation for o in block.operations if o.operation.name == "relax.matmul"]:
                    self._convert(matmul, session, functions, wanted, panels)
                erase_dead(block, is_pure_relax)

    def _convert(
        self, op: ir.Operation, session: Session, functions: _Functions, wanted: str, panels: dict[Hashable, str]
    ) -> None:
        matmul, location = op.opview, op.location
        found = match_weights(matmul, session)
        if found is None:
            return
        outcome: Decline | Product
        if isinstance(found, Decline):
            outcome = found
        else:
            converter = _Converter(matmul, found, Rewriter(op, session), functions, panels)
            outcome = converter.product(wanted or matmul.activations)
        if self.explain:
            text = f"dequantizes its weights: {outcome}" if isinstance(outcome, Decline) else "reads packed weights"
            session.remark(f"the product {text}", location)
        if isinstance(outcome, Decline):
            session.notes.append(NbitsRecord(None, outcome))
            return
        session.notes.append(NbitsRecord(outcome, None))
        replace_op(op, [converter.convert(outcome, wanted or matmul.activations)])


def match_weights(matmul: ir.OpView, session: Session) -> PackedWeights | Decline | None:
    """Return the packed weights of a product; None if its right operand is not dequantized."""
    value, by_column, rows = _behind_moves(matmul.rhs, matmul.transpose_rhs)
    found: PackedWeights | Decline | None
    if defining(value, "relax.dequantize") is not None:
        found = _match_blocks(value, by_column, rows, session)
    else:
        found = _match_codes(value, session) if by_column and rows is None else None
    is_plain = not matmul.transpose_lhs and kind_of(matmul.lhs).rank >= 2 and matmul.out_dtype is None
    if isinstance(found, PackedWeights) and not is_plain:
        return decline("the left operand is transposed or a vector, or a type of the result is given")
    return found


def _match_blocks(value: ir.Value, by_column: bool, rows: Dim | None, session: Session) -> PackedWeights | Decline:
    """Return weights that are dequantized in blocks."""
    op = value.owner.opview
    kind = kind_of(op.x)
    if kind.rank != 2 or not kind.is_static or not op.block:
        return decline("the weights are not a matrix with a scale for each block", operand=str(kind))
    if op.axis % 2 != (1 if by_column else 0):
        return decline("the blocks are not along K", axis=op.axis)
    if op.block < MIN_BLOCK or op.block & (op.block - 1):
        return decline("blocks are not a power of two from 16", block=op.block)
    if kind.dtype.name not in _WEIGHTS or kind_of(op.scale).dtype.name not in _SCALES:
        return decline("weights or scales are of another type", operand=str(kind), scale=str(kind_of(op.scale)))
    if not is_available(_source(op.x), session) or not is_available(op.scale, session):
        return decline("the weights or their scales are computed at run time")
    zeros = _zeros(op, session)
    if isinstance(zeros, Decline):
        return zeros
    if kind.dtype.is_float and zeros != 0:
        return decline("the weights are floats with a zero point", operand=str(kind))
    columns, depth = kind.static_shape if by_column else kind.static_shape[::-1]
    used = rows if isinstance(rows, int) else depth
    return PackedWeights(op.x, kind.dtype.name, by_column, columns, used, op.block, op.scale, zeros)


def _match_codes(value: ir.Value, session: Session) -> PackedWeights | Decline | None:
    """Return weights [columns, blocks * block] whose codes name elements of a table, times a scale for each block."""
    flat = defining(value, "relax.reshape")
    scaled = None if flat is None else defining(flat.x, "relax.multiply")
    gather = None if scaled is None else defining(scaled.lhs, "relax.gather")
    cast = None if gather is None else defining(gather.indices, "relax.cast")
    unpack = None if cast is None else defining(cast.x, "relax.unpack")
    if scaled is None or gather is None or cast is None or unpack is None:
        return None
    codes, scales, table = kind_of(cast.x), kind_of(scaled.rhs), kind_of(gather.x)
    if unpack.dtype.name != "u4" or codes.rank != 3 or not codes.is_static or table.shape != (16,):
        return decline("the codes are not of 4 bits, in blocks", operand=str(codes), table=str(table))
    columns, blocks, block = codes.static_shape
    if kind_of(value).shape != (columns, blocks * block) or scales.shape != (columns, blocks, 1):
        return decline("there is no scale for each block", operand=str(codes), scale=str(scales))
    if block < MIN_BLOCK or block & (block - 1) or scales.dtype.name not in _SCALES:
        return decline("blocks are not a power of two from 16, or scales are of another type", block=block)
    if not all(is_available(each, session) for each in (unpack.x, scaled.rhs, gather.x)):
        return decline("the weights, their scales or their table are computed at run time")
    numbers = tuple(float(each) for each in reader_of(gather.x, session)())
    return PackedWeights(cast.x, "u4", True, columns, blocks * block, block, scaled.rhs, 8, numbers)


def _behind_moves(value: ir.Value, by_column: bool) -> tuple[ir.Value, bool, Dim | None]:
    """Return the value behind a transposition, a cast and a cut along K, its order, and the rows that are left."""
    rows: Dim | None = None
    while True:
        permute, cut, cast = (defining(value, f"relax.{name}") for name in ("permute", "strided_slice", "cast"))
        if permute is not None and tuple(permute.axes) == (1, 0):
            value, by_column = permute.x, not by_column
        elif cut is not None and rows is None:
            axis = 1 if by_column else 0
            if tuple(cut.axes) != (axis,) or tuple(cut.begin) != (0,) or any(s != 1 for s in cut.strides or ()):
                return value, by_column, rows
            rows, value = kind_of(cut.output).shape[axis], cut.x
        elif cast is not None and kind_of(cast.x).dtype.is_float:
            value = cast.x
        else:
            return value, by_column, rows


def _source(value: ir.Value) -> ir.Value:
    """Return the packed constant behind `unpack`, or the value itself."""
    unpack = defining(value, "relax.unpack")
    return value if unpack is None else unpack.x


def _zeros(op: ir.OpView, session: Session) -> ir.Value | int | Decline:
    """Return the zero points of a dequantization: a number, or a constant."""
    if op.zero_point is None:
        return 0
    full = defining(op.zero_point, "relax.full")
    if full is not None:
        return int(full.value)
    value = op.zero_point
    cut = defining(value, "relax.strided_slice")
    source = _source(value if cut is None else cut.x)
    if not is_available(source, session):
        return decline("the zero points are computed at run time")
    if not kind_of(value).dtype.is_integer:
        made: ir.Value = value
        return made
    points = reader_of(value, session)()
    first = int(points.flat[0]) if points.size else 0
    return first if (points == first).all() else value


def reader_of(value: ir.Value, session: Session) -> Reader:
    """Return a reader of a constant, of packed ones, or of a slice of them, one element a byte."""
    cut = defining(value, "relax.strided_slice")
    if cut is not None:
        inner = reader_of(cut.x, session)
        ranges = [slice(None)] * kind_of(cut.x).rank
        for axis, begin, end in zip(cut.axes, cut.begin, cut.end, strict=True):
            ranges[axis] = slice(begin, end)
        return lambda: inner()[tuple(ranges)]
    unpack = defining(value, "relax.unpack")
    if unpack is None:
        read = constant_reader(value, session)
        shape = kind_of(value).static_shape
        return lambda: read().reshape(shape)
    bits, is_signed = unpack.dtype.bits, unpack.dtype.kind == "int"
    read = constant_reader(unpack.x, session)
    shape = kind_of(value).static_shape
    return lambda: unpacked(read(), bits, is_signed).reshape(shape)


def unpacked(packed: np.ndarray, bits: int, is_signed: bool) -> np.ndarray:
    """Return values of a few bits, one a byte."""
    made = np.empty((*packed.shape, 8 // bits), np.uint8)
    for field in range(8 // bits):
        made[..., field] = packed >> (field * bits) & ((1 << bits) - 1)
    if not is_signed:
        return made
    sign = 1 << (bits - 1)
    return np.asarray(((made ^ sign).astype(np.int8) - np.int8(sign)).astype(np.int8))


class _Functions:
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


class _Converter:
    """Rewrites one product."""

    def __init__(
        self,
        matmul: ir.OpView,
        weights: PackedWeights,
        b: Rewriter,
        functions: _Functions,
        panels: dict[Hashable, str],
    ):
        self.matmul, self.weights, self.b, self.functions, self.panels = matmul, weights, b, functions, panels

    def product(self, activations: str) -> Product | Decline:
        """Return the product that is computed, or decline."""
        weights, session = self.weights, self.b.session
        kind = kind_of(self.matmul.lhs)
        if kind.dtype.name not in _SCALES:
            return decline("the rows are of another type", operand=str(kind))
        if kind.shape[-1] != weights.rows:
            return decline("the rows of K are cut off elsewhere", operand=str(kind))
        digits = DIGITS[activations]
        zero = "i8"
        if isinstance(weights.zeros, int):
            zero = "" if weights.zeros == weights.middle else "i8"
        elif kind_of(weights.zeros).dtype.is_float:
            zero = "f32"
        layout = PanelLayout(
            weights.bits, weights.block, weights.columns, weights.rows, kind_of(weights.scales).dtype.name, zero,
            weights.floats, weights.codebook,
        )  # fmt: skip
        if weights.codebook and not self.functions.machine.avx512:
            return decline("a table of weights is looked up by an instruction of AVX-512")
        if digits and not (layout.is_integer and Dots.supports(self.functions.machine, weights.bits)):
            digits = 0  # what is permitted is not faster
        if (
            weights.floats
            and not layout.is_integer
            and (reader_of(weights.values, session)().view(np.uint8) & 0x7F == 0x7F).any()
        ):
            return decline("a weight is not a number", dtype=weights.dtype)
        if zero == "i8" and layout.block >= 64:
            layout = replace(layout, zero="f32")
        if layout.scale == "f32" and _fits_f16(reader_of(weights.scales, session)() * np.float32(weights.unit)):
            layout = replace(layout, scale="f16")
        return Product(layout, D.product(list(kind.shape[:-1])), digits)

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
        made = b.emit(OPS["reshape"], call.operation.results[0], shape=result.shape)
        return made if result.dtype.name == "f32" else b.emit(OPS["cast"], made, dtype=result.dtype)

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
        key = (layout, *(_key(v) for v in (weights.values, weights.scales, weights.zeros)))
        kind = TensorType.of((layout.bytes,), "u8")
        with ir.InsertionPoint(b.op), b.op.location:
            if key in self.panels:
                known: ir.Value = Constant.make(param=self.panels[key], result_types=[kind])
                return known
            name = f"{b.name_of(_source(weights.values))}.panels"
            made = emit_deferred_constant(packer(layout, weights, b.session), kind, b.session, name)
        self.panels[key] = made.owner.opview.param
        return made


def packer(layout: PanelLayout, weights: PackedWeights, session: Session) -> Reader:
    """Return a function that makes the panels."""
    values, scales = reader_of(weights.values, session), reader_of(weights.scales, session)
    if weights.codebook:  # in blocks
        shape = (weights.columns, weights.rows)
        values, scales = _reshaped(values, shape), _reshaped(scales, (weights.columns, -1))
    relative = weights.zeros
    zeros = None if isinstance(relative, int) else reader_of(relative, session)
    bits, middle, by_column, rows = weights.bits, weights.middle, weights.by_column, weights.rows
    is_signed, unit = weights.dtype[0] == "i", weights.unit

    def by_columns(array: np.ndarray) -> np.ndarray:
        return array if by_column else array.T

    def make() -> np.ndarray:
        codes = by_columns(values())[:, :rows]
        if layout.floats:
            codes = codes.view(np.uint8)
        if is_signed:
            codes = (codes.astype(np.int8) + np.int8(-128 if bits == 8 else 1 << (bits - 1))).view(np.uint8)
        found = by_columns(scales())
        scale = found if unit == 1 else found * found.dtype.type(unit)
        if layout.scale == "f16":
            scale = scale.astype(np.float16)
        if not layout.zero:
            return layout.pack(codes, scale, None)
        points = np.full(found.shape, relative, np.int64) if zeros is None else by_columns(zeros())
        wide = points.astype(np.float32) - np.float32(middle)
        return layout.pack(codes, scale, wide if layout.zero == "f32" else wide.astype(np.int8))

    return make


def _reshaped(read: Reader, shape: tuple[int, int]) -> Reader:
    return lambda: read().reshape(shape)


def _fits_f16(scales: np.ndarray) -> bool:
    """Return whether f16 represents all scales exactly."""
    with np.errstate(over="ignore"):
        return bool((scales.astype(np.float16).astype(np.float32) == scales).all())


def _key(value: ir.Value | int) -> Hashable:
    """Return a key of a constant, packed or not, or of a number."""
    if isinstance(value, int):
        return value
    cut = defining(value, "relax.strided_slice")
    constant = _source(value if cut is None else cut.x).owner.opview
    return str(value.type), constant.param, str(constant.value)
