"""Products whose weights are constants of a few bits: how they are matched, and how passes read the weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.passes.graph.constants import decide, is_derivable, row_source, whole_constant
from mirlo.passes.graph.rewrite import defining, kind_of
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.graph.unknown import Answer, ConstantSource
    from mirlo.passes.session import Session

FLOATS = {"f4e2m1": 0.5, "f8e4m3fn": 256.0}
"""Floats that weights may be, and what the scales are multiplied by: kernels decode them to multiples of it."""
MIN_BLOCK = 16
"""Least rows of K that share a scale."""
SHARED_BLOCKS = (256, 128, 64, 32, 16)
"""Rows of K in a block of weights whose scale is that of a column or of all: the fewest bytes win, then the first."""
MANY_ROWS = 16
"""From this many rows on, a product with f32 weights is faster than one with packed weights of 8 bits."""
SCALES = ("f32", "f16", "bf16")
"""Element types of scales."""
WEIGHTS = ("u2", "i2", "u4", "i4", "u8", "i8", *FLOATS)
"""Element types of weights."""
Reader = Callable[[int], np.ndarray]
"""Returns the elements of a constant, or of its slice at a position: those of the matrices of a `MatrixChoice`."""


@dataclass(frozen=True)
class MatrixChoice:
    """One of several matrices, chosen at run time: slices of constants along their first dim."""

    position: ir.Value
    count: int


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
    is_shared: bool = False
    """Whether all blocks of a column share a scale and a zero point, or even all columns."""
    codebook: tuple[float, ...] = ()
    """The numbers that the integers stand for, if they are codes."""
    choice: MatrixChoice | None = None
    """Which of several matrices it is; None for one."""

    @property
    def positions(self) -> range:
        """Return the positions of the matrices that it may be."""
        return range(1 if self.choice is None else self.choice.count)

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
        """Return the number that multiplies the scales."""
        return FLOATS.get(self.floats, 1.0)


def match_weights(matmul: ir.OpView, session: Session) -> PackedWeights | Decline | None:
    """Return the packed weights of a product; None if its right operand is not dequantized."""
    value, by_column, rows = _behind_moves(matmul.rhs, matmul.transpose_rhs)
    result: PackedWeights | Decline | None
    if defining(value, "relax.dequantize") is not None:
        result = _match_blocks(value, by_column, rows, session)
    else:
        result = _match_codes(value, session) if by_column and rows is None else None
    is_plain = not matmul.transpose_lhs and kind_of(matmul.lhs).rank >= 2 and matmul.out_dtype is None
    if isinstance(result, PackedWeights) and not is_plain:
        return decline("the left operand is transposed or a vector, or a type of the result is given")
    return result


def _match_blocks(value: ir.Value, by_column: bool, rows: Dim | None, session: Session) -> PackedWeights | Decline:
    """Return weights that are dequantized in blocks."""
    op = value.owner.opview
    kind, is_shared = kind_of(op.x), not op.block
    if kind.rank != 2 or not kind.is_static:
        return decline("the weights are not a matrix", operand=str(kind))
    along_columns = op.axis % 2 != (1 if by_column else 0)
    if is_shared and not along_columns and kind_of(op.scale).rank:
        return decline("each row of K has a scale", axis=op.axis)
    if not is_shared and along_columns:
        return decline("the blocks are not along K", axis=op.axis)
    if not is_shared and (op.block < MIN_BLOCK or op.block & (op.block - 1)):
        return decline("blocks are not a power of two from 16", block=op.block)
    if kind.dtype.name not in WEIGHTS or kind_of(op.scale).dtype.name not in SCALES:
        return decline("weights or scales are of another type", operand=str(kind), scale=str(kind_of(op.scale)))
    if not is_derivable(constant_source(op.x), session) or not is_derivable(whole_constant(op.scale), session):
        return decline("the weights or their scales are computed at run time")
    choice = choice_of(op.x, op.scale)
    if isinstance(choice, Decline):
        return choice
    zeros = _zeros(op, choice, session)
    if isinstance(zeros, Decline):
        return zeros
    if kind.dtype.is_float and zeros != 0:
        return decline("the weights are floats with a zero point", operand=str(kind))
    columns, depth = kind.static_shape if by_column else kind.static_shape[::-1]
    used = rows if isinstance(rows, int) else depth
    block = op.block or min(SHARED_BLOCKS, key=lambda block: _bytes_of_column(block, used, kind.dtype.bits))
    return PackedWeights(
        op.x, kind.dtype.name, by_column, columns, used, block, op.scale, zeros, is_shared, choice=choice
    )


def _bytes_of_column(block: int, rows: int, bits: int) -> int:
    """Return the bytes of a column with scales of f16 or f32: two blocks fill a cache line with scales."""
    return -(-rows // (2 * block)) * 2 * (block * bits // 8 + 4)


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
    if block < MIN_BLOCK or block & (block - 1) or scales.dtype.name not in SCALES:
        return decline("blocks are not a power of two from 16, or scales are of another type", block=block)
    scale = scaled.rhs if defining(scaled.rhs, "relax.reshape") is None else scaled.rhs.owner.opview.x
    if not all(is_derivable(whole_constant(each), session) for each in (unpack.x, scale, gather.x)):
        return decline("the weights, their scales or their table are computed at run time")
    choice = choice_of(unpack.x, scale)
    if isinstance(choice, Decline):
        return choice
    numbers = stored_elements(gather.x).decide(_as_numbers, "numbers", range(1), session)
    return PackedWeights(cast.x, "u4", True, columns, blocks * block, block, scale, 8, codebook=numbers, choice=choice)


def _behind_moves(value: ir.Value, by_column: bool) -> tuple[ir.Value, bool, Dim | None]:
    """Return the value before a transposition, a cast and a cut along K, its order, and the remaining rows."""
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


def constant_source(value: ir.Value) -> ir.Value:
    """Return the packed constant that `unpack` reads, perhaps a slice of it, or the value itself."""
    unpack = defining(value, "relax.unpack")
    return whole_constant(value if unpack is None else unpack.x)


def choice_of(*values: ir.Value) -> MatrixChoice | Decline | None:
    """Return which matrix these constants, perhaps packed, are of; None if they are no slices."""
    rows = [row for value in values if (row := row_source(_unpacked_source(value))) is not None]
    if not rows:
        return None
    if any(row.position != rows[0].position or row.x.type.shape[0] != rows[0].x.type.shape[0] for row in rows):
        return decline("the weights and their scales are chosen by different positions")
    return MatrixChoice(rows[0].position, rows[0].x.type.shape[0])


def _unpacked_source(value: ir.Value) -> ir.Value:
    unpack = defining(value, "relax.unpack")
    return value if unpack is None else unpack.x


def _zeros(op: ir.OpView, choice: MatrixChoice | None, session: Session) -> ir.Value | int | Decline:
    """Return the zero points of a dequantization: a number, or a constant."""
    if op.zero_point is None:
        return 0
    full = defining(op.zero_point, "relax.full")
    if full is not None:
        return int(full.value)
    value = op.zero_point
    cut = defining(value, "relax.strided_slice")
    source = constant_source(value if cut is None else cut.x)
    if not is_derivable(source, session):
        return decline("the zero points are computed at run time")
    own = choice_of(value if cut is None else cut.x)
    if own is not None and own != choice:
        return decline("the zero points are chosen by another position")
    if not kind_of(value).dtype.is_integer:
        result: ir.Value = value
        return result
    positions = range(1 if own is None else own.count)
    point = stored_elements(value).decide(_shared_number, "zero point", positions, session)
    return value if point is None else point


def _as_numbers(arrays: Iterable[np.ndarray]) -> tuple[float, ...]:
    return tuple(float(each) for array in arrays for each in array)


def _shared_number(arrays: Iterable[np.ndarray]) -> int | None:
    """Return the number that all elements are, 0 if there are none, or None."""
    numbers = {int(array.flat[0]) if (array == array.flat[0]).all() else None for array in arrays if array.size}
    return (numbers or {0}).pop() if len(numbers) <= 1 else None


@dataclass(frozen=True)
class StoredElements:
    """How the elements of a value are stored: in a constant, perhaps packed, of which the value may be a slice."""

    constant: ir.Value
    is_slice: bool
    decoding: Decoding

    def decide(
        self,
        question: Callable[[Iterable[np.ndarray]], Answer],
        key: Hashable,
        positions: Iterable[int],
        session: Session,
    ) -> Answer:
        """Return the answer to a question about the elements of the matrices that the value may be."""
        reader_of, places = self.reader_of, tuple(positions)
        known = key, self.decoding, self.is_slice, places
        return decide(lambda source: question(map(reader_of(source), places)), known, self.constant, session)

    @property
    def reader_of(self) -> Callable[[ConstantSource], Reader]:
        """Return what makes a reader of the elements from one of the constant, without references to IR."""
        is_slice, decoding = self.is_slice, self.decoding
        return lambda source: lambda at: decoding.decode(source.slice(at) if is_slice else source.whole())


@dataclass(frozen=True)
class Decoding:
    """How elements, one a byte, are made of those of a stored constant."""

    shape: tuple[int, ...]
    bits: int | None
    """How many bits an element is packed in; None if it is not packed."""
    is_signed: bool
    cut: tuple[tuple[int, int, int], ...]
    """The axes, begins and ends of what is used of them."""

    def decode(self, stored: np.ndarray) -> np.ndarray:
        elements = stored if self.bits is None else unpacked(stored, self.bits, self.is_signed)
        ranges = [slice(None)] * len(self.shape)
        for axis, begin, end in self.cut:
            ranges[axis] = slice(begin, end)
        return elements.reshape(self.shape)[tuple(ranges)]


def stored_elements(value: ir.Value) -> StoredElements:
    """Return how the elements of a constant, of a packed one, of a slice or of a part of them are stored."""
    cut = defining(value, "relax.strided_slice")
    parts = () if cut is None else tuple(zip(cut.axes, cut.begin, cut.end, strict=True))
    whole = value if cut is None else cut.x
    unpack = defining(whole, "relax.unpack")
    stored = whole if unpack is None else unpack.x
    bits, is_signed = (None, False) if unpack is None else (unpack.dtype.bits, unpack.dtype.kind == "int")
    decoding = Decoding(kind_of(whole).static_shape, bits, is_signed, parts)
    return StoredElements(whole_constant(stored), row_source(stored) is not None, decoding)


def unpacked(packed: np.ndarray, bits: int, is_signed: bool) -> np.ndarray:
    """Return values of a few bits, one a byte."""
    from mirlo.runtime.bit_fields import unpack_fields

    result = unpack_fields(packed, bits)
    if not is_signed:
        return result
    sign = 1 << (bits - 1)
    return np.asarray(((result ^ sign).astype(np.int8) - np.int8(sign)).astype(np.int8))
