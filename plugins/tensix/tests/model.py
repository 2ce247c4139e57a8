"""Bit-exact model of the units in numpy: the reference for the results of the simulator.

A product takes five bits of the significand of SrcA and seven of SrcB's, other ones in each fidelity phase. The
products of eight lanes are aligned to the greatest exponent among them, rounded, and summed as integers; two such sums
and the old value of Dst are aligned, added, and rounded again.
"""

from __future__ import annotations

import functools
from itertools import product

import numpy as np
from mirlo_tensix.instructions import FORMATS, FP16_BIAS, TILE, Format
from mirlo_tensix.kernels import PARTS, Move, VectorWork
from mirlo_tensix.products import Product, activation_body
from mirlo_tensix.unit import DTYPES, Bits, Sums, fp16_bits, from_tiles, to_tiles, widened
from mirlo_tensix.vector import Body, Place
from mirlo_tensix.work import Work
from numpy.typing import NDArray

Lanes = NDArray[np.uint32]
Integers = NDArray[np.int64]


@functools.singledispatch
def bits_of(work: Work, *operands: Bits) -> Bits:
    """Return the result of work on operands as they are in L1."""
    raise TypeError(type(work))


@bits_of.register
def _product(work: Product, *operands: Bits) -> Bits:
    rows = TILE * work.m
    left, right = operands[0], from_tiles(operands[1], TILE * work.depth, TILE * work.n)
    if work.windows:
        planes = left.reshape(-1, work.x.rows, 16)
        parts = [planes[at + i, row : row + rows] for at, row in work.windows for i in range(2)]
    else:
        parts = [from_tiles(left, rows, TILE * work.k)]
    if work.has_bias:
        parts.append(
            np.tile(from_tiles(operands[2], TILE, TILE), (work.m, 1))
            if not work.windows
            else np.tile(operands[2][: TILE * 16].reshape(TILE, 16), (work.m, 2))
        )
    found = product_bits(np.concatenate(parts, 1), right, work.phases, work.activation)
    if work.y is None:
        return to_tiles(found)
    result = np.zeros((2 * work.n, work.y.rows, 16), found.dtype)
    result[:, work.y.first : work.y.first + rows] = found.reshape(rows, 2 * work.n, 16).transpose(1, 0, 2)
    for first, count, step, times in work.y.gaps:
        for i in range(times):
            result[:, first + i * step : first + i * step + count] = 0
    return result.reshape(-1)


@bits_of.register
def _vector(work: VectorWork, *operands: Bits) -> Bits:
    kernel, rows = work.kernel, work.m * TILE
    parts = []
    for each, is_row in zip(operands, work.operands, strict=True):
        matrix = from_tiles(each, TILE if is_row else rows, work.n * TILE)
        lanes = in_srca(np.tile(matrix, (work.m, 1)) if is_row else matrix)
        parts.append(lanes.reshape(rows, work.n, 2, 8, 2))
    result = np.zeros((rows, work.result_columns, 2, 8, 2), np.uint32)
    tiles: dict[tuple[int, int], Lanes] = {}
    if kernel.start is None:
        tiles = {(slot, part): each[..., part] for slot, each in enumerate(parts) for part in (0, 1)}
        evaluate(kernel.passes[0].body, tiles)
        result = np.stack([tiles[0, part] for part in (0, 1)], -1)
    else:
        evaluate(kernel.start, tiles)
        for each in kernel.passes:
            for column in range(work.n):
                for (slot, operand), part in product(enumerate(each.operands), PARTS):
                    tiles[slot, part] = parts[operand][:, column, part // 2, :, part % 2]
                evaluate(each.body, tiles)
                if each.packs and each.end is None:
                    for part in PARTS:
                        result[:, column, part // 2, :, part % 2] = tiles[0, part]
            if each.end is not None:
                evaluate(each.end, tiles)
                if each.packs:
                    result[:, 0, 0, :, 0] = tiles[0, 0]
    return to_tiles(packed(result, work.kind).reshape(rows, -1))


def in_srca(bits: Bits) -> Lanes:
    """Return numbers as MOVA2D copies them to Dst: those of fp16 with their exponents of five bits, of tf32 19 bits."""
    wide = widened(bits)
    if bits.dtype == np.uint32:  # what the packers wrote has 32
        return wide & np.uint32(0xFFFFE000)
    return np.where(wide & 0x7FFFFFFF == 0, wide, wide - (FP16_BIAS << 23)) if bits.dtype == np.float16 else wide


@bits_of.register
def _move(work: Move, *operands: Bits) -> Bits:
    bits = in_srca(operands[0]) if operands[0].dtype == np.uint32 else operands[0]
    tiles = bits.reshape(-1, 2, 2, 16, 16)[list(work.sources)]
    return tiles.transpose(0, 2, 1, 4, 3) if work.transposes else tiles


def _parts(wide: Sums, is_low: bool, is_a: bool) -> tuple[Integers, Integers, Integers]:
    """Return sign, exponent, and the slice of the significand that a phase takes."""
    wide = wide.astype(np.int64)
    exponent = wide >> 23 & 0xFF
    whole = np.where(exponent > 0, (wide & 0x7FFFFF | 0x800000) >> 13, 0)
    high, low = (whole >> 6, whole >> 1 & 31) if is_a else (whole >> 4, (whole & 15) << 3)
    return wide >> 31, exponent, low if is_low else high


def _aligned(magnitude: Integers, borrow: Integers | int, by: Integers) -> Integers:
    by = np.minimum(by, 40)
    half = 1 << np.maximum(by - 1, 0)
    return np.where(by == 0, magnitude, (magnitude + half - borrow) >> by) * (by < 31)


def _add_products(sums: Sums, left: Sums, right: Sums, phase: int) -> Sums:
    """Return sums [i, j] plus left [i, 16] times right [16, j], as one MVMUL adds them in a phase."""
    sign_b, exponent_b, piece_b = (part[:, :, None] for part in _parts(left, bool(phase >> 1), False))
    sign_a, exponent_a, piece_a = (part[None] for part in _parts(right, bool(phase & 1), True))
    is_zero = (exponent_a == 0) | (exponent_b == 0)
    adjust = -127 - 5 * (phase & 1) - 7 * (phase >> 1)
    exponent = np.where(is_zero, 0, exponent_a + exponent_b + adjust)
    value = np.where(is_zero, 0, piece_a * piece_b)
    rows, lanes, columns = value.shape
    split = (rows, 2, lanes // 2, columns)
    sign = np.broadcast_to(sign_a ^ sign_b, value.shape).reshape(split)
    exponent, value = exponent.reshape(split), value.reshape(split)
    most = exponent.max(2)
    by = np.minimum(most[:, :, None] - exponent, 30)
    rounded = (2 * value + (1 << by)) >> by + 1
    total = np.where(sign == 1, -rounded, rounded).sum(2)
    total, most = np.where(most > 0, total << 13, 0), np.maximum(most, 0)
    return _plus(sums.astype(np.int64), total, most)


def _of_fp16(bits: Bits) -> Sums:
    """Return fp16 as the simulator widens it for a product: zero has an exponent, too, and is 2^-15."""
    wide = widened(bits)
    return np.where(wide & 0x7FFFFFFF == 0, wide | FP16_BIAS << 23, wide)


def _add_real_products(sums: Sums, left: Sums, right: Sums, phase: int) -> Sums:
    """Return sums plus products of fp16, which the simulator computes in real numbers and rounds once."""

    def part(wide: Sums, first: int, second: int, is_second: bool) -> NDArray[np.float64]:
        value, head = (each.view(np.float32).astype(np.float64) for each in (wide, wide & np.uint32(first)))
        rest = (wide & np.uint32(second)).view(np.float32)
        return value - rest if is_second else head

    b, a = part(left, 0xFFFE0000, 0xFFFE1FFF, bool(phase & 2)), part(right, 0xFFF80000, 0xFFF83FFF, bool(phase & 1))
    return (sums.view(np.float32) + b @ a).astype(np.float32).view(np.uint32)


def _plus(old: Integers, total: Integers, most: Integers) -> Sums:
    """Return old sums plus the totals of both groups of lanes, rounded."""
    own = old >> 23 & 0xFF
    significand = np.where(own > 0, old & 0x7FFFFF | 0x800000, 0)
    top = np.maximum(most.max(1), own)
    result = np.where(old >> 31 == 1, -1, 1) * _aligned(significand, 0, top - own)
    for group in range(2):
        each = total[:, group]
        result += np.sign(each) * _aligned(np.abs(each), (each < 0).astype(np.int64), top - most[:, group])
    magnitude = np.abs(result)
    by = 24 - np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    top = top - by
    narrowed = (magnitude + (1 << np.maximum(-by - 1, 0))) >> np.maximum(-by, 0)
    magnitude = np.where(by >= 0, magnitude << np.maximum(by, 0), narrowed)
    top = top + (magnitude >> 24 & 1)
    bits = (result < 0).astype(np.int64) << 31 | np.clip(top, 0, 255) << 23
    bits |= np.where(top >= 255, 0, magnitude & 0x7FFFFF)
    return np.where((result == 0) | (top <= 0), 0, bits).astype(np.uint32)


def product_bits(left: Bits, right: Bits, phases: int, activation: str | None = None) -> Bits:
    """Return the bits of a product of matrices as one core computes them, in the format of its operands.

    For each 32 of the reduction all phases are summed, in each of them the first 16, then the others.
    """
    beyond = -left.shape[1] % TILE
    a, b = np.pad(left, ((0, 0), (0, beyond))), np.pad(right, ((0, beyond), (0, 0)))
    (kind,) = (FORMATS[name] for name, dtype in DTYPES.items() if dtype == left.dtype)
    add = _add_real_products if kind.name == "fp16" else _add_products
    a, b = (_of_fp16(each) if kind.name == "fp16" else widened(each) for each in (a, b))
    sums = np.zeros((a.shape[0], b.shape[1]), np.uint32)
    for k in range(0, a.shape[1], TILE):
        for phase in range(phases):
            for half in (k, k + 16):
                sums = add(sums, a[:, half : half + 16], b[half : half + 16], phase)
    if activation is not None:
        tiles = {(0, part): sums for part in (0, 1)}
        evaluate(activation_body(activation), tiles)
        sums = tiles[0, 0]
    return packed(sums, kind)


def packed(sums: Sums, kind: Format = FORMATS["bf16"]) -> Bits:
    """Return sums as packers write them: rounded to nearest, halves away from zero, denormals to zero."""
    if kind.bytes == 4:
        return sums
    if kind.name == "fp16":  # towards zero
        return fp16_bits(sums)
    is_nan = sums & 0x7FFFFFFF > 0x7F800000
    whole = np.where(is_nan, sums & 0x80000000 | 0x7F800000, sums).astype(np.uint64)
    bits = (whole + 0x8000 >> 16).astype(np.uint16)
    return np.where(bits & 0x7FFF < 0x80, 0, bits).astype(np.uint16)


def fma(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """Return x * y + z as the unit computes it: three more bits, rounded to nearest even, denormals are zero."""
    x, y, z = (each.astype(np.int64) for each in np.broadcast_arrays(x, y, z))
    x_e, y_e, z_e = (each >> 23 & 255 for each in (x, y, z))
    x_m, y_m, z_m = (np.where(each >> 23 & 255 == 0, 0, each & 0x7FFFFF | 0x800000) for each in (x, y, z))
    p_sign, z_sign = (x ^ y) >> 31, z >> 31
    product = x_m * y_m
    p_m, p_e = product << 3, x_e + y_e - 127
    p_m = p_m >> 23 | (p_m & 0x7FFFFF != 0)
    wide_z = z_m << 3
    top = np.maximum(p_e, z_e)
    p_m, wide_z = _sticky(p_m, top - p_e), _sticky(wide_z, top - z_e)
    sign = np.where(p_m >= wide_z, p_sign, z_sign)
    total = np.where(p_sign == z_sign, p_m + wide_z, np.abs(p_m - wide_z))
    by = np.frexp(total.astype(np.float64))[1].astype(np.int64) - 27
    exponent = top + by
    shifted = np.where(by <= 0, total << np.maximum(-by, 0), total >> np.maximum(by, 0) | total & 1)
    result = (exponent << 23) + (shifted >> 3 & 0x7FFFFF)
    result += (shifted & 7) + (result & 1) > 4
    result = np.where((total == 0) | (exponent < 0) | (result >> 23 == 0), 0, sign << 31 | result)
    result = np.where(exponent >= 255, sign << 31 | 0x7F800000, result)
    result = np.where((product == 0) | (p_e < 0), np.where(z_m != 0, z, 0), result)
    return np.where((x_e == 255) | (y_e == 255) | (z_e == 255) | (p_e >= 255), _special(x, y, z), result).astype(
        np.uint32
    )


def _sticky(value: NDArray[np.int64], by: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a value shifted to the right; its last bit says whether others were lost, unless all were."""
    by = np.minimum(by, 62)
    shifted = value >> by
    return np.where(shifted != 0, shifted | (shifted << by != value), 0)


def _special(x: NDArray[np.int64], y: NDArray[np.int64], z: NDArray[np.int64]) -> Lanes:
    """Return x * y + z where an exponent is that of infinity; other bits of a NaN are not the unit's."""
    x_f, y_f, z_f = (each.astype(np.uint32).view(np.float32) for each in (x, y, z))
    with np.errstate(all="ignore"):
        return np.asarray(x_f * y_f + z_f, np.float32).view(np.uint32)


def evaluate(body: Body, tiles: dict[Place, Lanes]) -> None:
    """Compute a body on parts of tiles, of which the last dim are the eight lanes of a row; stores change `tiles`."""
    values: list[Lanes] = []
    for each in body.operations:
        args = [values[i] for i in each.operands]
        match each.kind:
            case "constant":
                result = np.uint32(each.number) + np.zeros(1, np.uint32)
            case "load":
                result = tiles[each.place]
            case "store":
                result = tiles[each.place] = np.where(args[0] & 0x7F800000 == 0, args[0] & 0x80000000, args[0])
            case "mad":
                result = fma(*args)
            case "largest":
                result = np.where(_order(args[0]) < _order(args[1]), args[1], args[0])
            case "smallest":
                result = np.where(_order(args[0]) < _order(args[1]), args[0], args[1])
            case "add_bits":
                result = args[0] + args[1]
            case "subtract_bits":
                result = args[0] - args[1]
            case "shift":
                result = args[0] << np.uint32(each.number) if each.number >= 0 else args[0] >> np.uint32(-each.number)
            case "rotate":
                result = np.roll(args[0], 1, -1)
            case other:
                raise ValueError(f"operation {other}")
        values.append(result)


def _order(bits: Lanes) -> Lanes:
    """Return keys in the order of numbers, in which -0 is before 0."""
    return np.where(bits >> 31 == 1, ~bits, bits | np.uint32(0x80000000))
