"""The tensor types of GGUF, blocks of quantized elements with scales, and their decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mirlo.extend.runtime import numpy_dtype
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights, pack_codes, without_zero_scales

CHUNK = 1 << 22
"""Elements that are decoded at a time, which bounds temporary memory."""
SUPER = 256
"""Elements of a block of the K types, whose scales are quantized themselves."""

Decoded = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""The codes of blocks, one per byte, [blocks, elements], the scales and the offsets, [blocks, sub-blocks]."""


@dataclass(frozen=True)
class BlockType:
    """A tensor type: blocks of `elements` in `nbytes` bytes."""

    name: str
    elements: int
    nbytes: int
    dtype: str
    """Element type of tensors without scales, or of the stored codes."""
    decode: Callable[[np.ndarray], Decoded] | None = None
    """Decodes blocks [blocks, nbytes]; None for plain elements."""
    block: int = 32
    """Number of elements with one scale."""
    zero: int = 0
    """The code of 0; types with offsets have 0."""
    table: tuple[float, ...] = ()
    """The values of the codes, if they are not numbers themselves."""

    def read(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | BlockWeights:
        """Return a tensor from its bytes: a view of plain elements, or block-quantized weights."""
        if self.decode is None:
            dtype = numpy_dtype(self.dtype)
            plain: np.ndarray = np.ascontiguousarray(data).view(dtype.newbyteorder("<")).reshape(shape)
            return plain.astype(dtype, copy=not plain.flags.aligned)
        rows, width = len(data), shape[-1]
        count = max(CHUNK // width, 1)
        parts = [self._decoded(data[first : first + count]) for first in range(0, rows, count)]
        codes, scales, *offsets = (np.concatenate(each) for each in zip(*parts, strict=True))
        return BlockWeights((rows, width), self.dtype, codes, scales, self.block, self.zero, self.table, *offsets)

    def _decoded(self, data: np.ndarray) -> list[np.ndarray]:
        assert self.decode is not None
        rows = len(data)
        with np.errstate(all="ignore"):  # of files whose scales are not numbers
            codes, scales, offsets = self.decode(np.ascontiguousarray(data).reshape(-1, self.nbytes))
        if offsets is not None:
            codes, scales = without_zero_scales(codes, scales, self.block)
        arrays = [pack_codes(codes.reshape(rows, -1), self.dtype), scales.reshape(rows, -1)]
        return arrays if offsets is None else [*arrays, offsets.reshape(rows, -1)]


def _halves(packed: np.ndarray) -> np.ndarray:
    """Unpack codes of 4 bits: the lower ones of all bytes [..., bytes], then the upper ones."""
    return np.concatenate([packed & 15, packed >> 4], -1)


def _fields(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unpack codes of a few bits: the lowest ones of all bytes [..., bytes], then the next ones."""
    mask = np.uint8((1 << bits) - 1)
    return np.concatenate([packed >> shift & mask for shift in range(0, 8, bits)], -1)


def _f16(blocks: np.ndarray, at: int) -> np.ndarray:
    """Return one f16 of each block, [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")


def _f32(blocks: np.ndarray, at: int) -> np.ndarray:
    return _f16(blocks, at).astype(np.float32)


def _fifth_bits(blocks: np.ndarray, at: int) -> np.ndarray:
    """Return the fifth bits of 32 codes, shifted to their place."""
    bits = np.unpackbits(np.ascontiguousarray(blocks[:, at : at + 4]), axis=1, bitorder="little")
    return bits << 4


def _q8_0(blocks: np.ndarray) -> Decoded:
    return blocks[:, 2:].view(np.int8), _f16(blocks, 0), None


def _q4_0(blocks: np.ndarray) -> Decoded:
    return _halves(blocks[:, 2:]), _f16(blocks, 0), None


def _q4_1(blocks: np.ndarray) -> Decoded:
    return _halves(blocks[:, 4:]), _f32(blocks, 0), _f32(blocks, 2)


def _q5_0(blocks: np.ndarray) -> Decoded:
    codes = _halves(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return codes.view(np.int8) - np.int8(16), _f16(blocks, 0), None


def _q5_1(blocks: np.ndarray) -> Decoded:
    codes = _halves(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return codes.view(np.int8), _f32(blocks, 0), _f32(blocks, 2)


def _iq4_nl(blocks: np.ndarray) -> Decoded:
    return _halves(blocks[:, 2:]), _f32(blocks, 0), None


def _mxfp4(blocks: np.ndarray) -> Decoded:
    # A power of two, 2 ** (code - 127): below 2 it is a subnormal f32.
    exponents = blocks[:, :1].astype(np.int32)
    return _halves(blocks[:, 1:]), np.ldexp(np.float32(1), exponents - 127), None


def _scales_of_6_bits(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unpack the 8 scales and the 8 minima of blocks, [blocks, 8] from [blocks, 12]."""
    scales, minima, upper = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    return (
        np.concatenate([scales & 63, upper & 15 | scales >> 6 << 4], 1),
        np.concatenate([minima & 63, upper >> 4 | minima >> 6 << 4], 1),
    )


def _with_minima(blocks: np.ndarray, at: int, scales: np.ndarray, minima: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scales and offsets of sub-blocks: codes times the two f16 of each block."""
    return _f32(blocks, at) * scales.astype(np.float32), -(_f32(blocks, at + 2) * minima.astype(np.float32))


def _q2_k(blocks: np.ndarray) -> Decoded:
    codes = _fields(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, SUPER)
    return codes, *_with_minima(blocks, 80, blocks[:, :16] & 15, blocks[:, :16] >> 4)


def _q3_k(blocks: np.ndarray) -> Decoded:
    codes = _fields(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, SUPER)
    codes = codes + (_fields(blocks[:, :32], 1) << 2)  # what is 4 in the file is the code of 0
    lower = _fields(blocks[:, 96:104], 4)
    scales = (lower | _fields(blocks[:, 104:108], 2) << 4).view(np.int8) - np.int8(32)
    return codes + np.uint8(4), _f32(blocks, 108) * scales.astype(np.float32), None


def _q4_k(blocks: np.ndarray) -> Decoded:
    codes = _fields(blocks[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, SUPER)
    return codes, *_with_minima(blocks, 0, *_scales_of_6_bits(blocks[:, 4:16]))


def _q5_k(blocks: np.ndarray) -> Decoded:
    codes = _fields(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, SUPER)
    codes = (codes | _fields(blocks[:, 16:48], 1) << 4).view(np.int8)
    return codes, *_with_minima(blocks, 0, *_scales_of_6_bits(blocks[:, 4:16]))


def _q6_k(blocks: np.ndarray) -> Decoded:
    lower = _fields(blocks[:, :128].reshape(-1, 2, 64), 4)
    upper = _fields(blocks[:, 128:192].reshape(-1, 2, 32), 2)
    codes = (lower | upper << 4).reshape(-1, SUPER).view(np.int8) - np.int8(32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return codes, _f32(blocks, 208) * scales, None


_IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
TYPES = {
    0: BlockType("F32", 1, 4, "f32"),
    1: BlockType("F16", 1, 2, "f16"),
    30: BlockType("BF16", 1, 2, "bf16"),
    8: BlockType("Q8_0", 32, 34, "i8", _q8_0),
    2: BlockType("Q4_0", 32, 18, "u4", _q4_0, zero=8),
    3: BlockType("Q4_1", 32, 20, "u4", _q4_1),
    6: BlockType("Q5_0", 32, 22, "i8", _q5_0),
    7: BlockType("Q5_1", 32, 24, "i8", _q5_1),
    10: BlockType("Q2_K", SUPER, 84, "u2", _q2_k, 16),
    11: BlockType("Q3_K", SUPER, 110, "u4", _q3_k, 16, zero=8),
    12: BlockType("Q4_K", SUPER, 144, "u4", _q4_k),
    13: BlockType("Q5_K", SUPER, 176, "i8", _q5_k),
    14: BlockType("Q6_K", SUPER, 210, "i8", _q6_k, 16),
    20: BlockType("IQ4_NL", 32, 18, "u4", _iq4_nl, table=tuple(map(float, _IQ4_NL))),
    39: BlockType("MXFP4", 32, 17, "f4e2m1", _mxfp4),
}
"""The supported types, by their numbers in files."""
OTHER_TYPES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
"""The names of unsupported types."""
