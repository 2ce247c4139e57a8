"""Element types at run time: name, numpy type and DLPack code; the compiler uses the same names."""

from __future__ import annotations

from functools import cache

import numpy as np

from mirlo.runtime.records import dataclass

_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6  # DLDataTypeCode


MAX_RANK = 64 if int(np.__version__.split(".")[0]) >= 2 else 32
"""Dims of an array of numpy."""


@dataclass(frozen=True)
class ArrayDType:
    """An element type of an array; in memory every element takes at least one byte."""

    name: str
    numpy_name: str
    bits: int
    dlpack_code: int | None
    """Code in DLPack's DLDataType, of `dlpack_bits` bits; None for types that DLPack packs and Mirlo stores in
    bytes."""

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def dlpack_bits(self) -> int:
        return self.bytes * 8


# name, numpy (or ml_dtypes) name, bits, DLPack code
_ROWS = (
    ("f64", "float64", 64, _FLOAT),
    ("f32", "float32", 32, _FLOAT),
    ("f16", "float16", 16, _FLOAT),
    ("bf16", "bfloat16", 16, _BFLOAT),
    ("f8e4m3fn", "float8_e4m3fn", 8, 10),
    ("f8e4m3fnuz", "float8_e4m3fnuz", 8, 11),
    ("f8e5m2", "float8_e5m2", 8, 12),
    ("f8e5m2fnuz", "float8_e5m2fnuz", 8, 13),
    ("f8e8m0", "float8_e8m0fnu", 8, 14),
    ("f4e2m1", "float4_e2m1fn", 4, None),
    ("i64", "int64", 64, _INT),
    ("i32", "int32", 32, _INT),
    ("i16", "int16", 16, _INT),
    ("i8", "int8", 8, _INT),
    ("i4", "int4", 4, None),
    ("i2", "int2", 2, None),
    ("u64", "uint64", 64, _UINT),
    ("u32", "uint32", 32, _UINT),
    ("u16", "uint16", 16, _UINT),
    ("u8", "uint8", 8, _UINT),
    ("u4", "uint4", 4, None),
    ("u2", "uint2", 2, None),
    ("bool", "bool", 8, _BOOL),
)
ELEMENT_TYPES = {row[0]: ArrayDType(*row) for row in _ROWS}
_BY_NUMPY = {row.numpy_name: row for row in ELEMENT_TYPES.values()}
_BY_DLPACK = {(row.dlpack_code, row.dlpack_bits): row for row in ELEMENT_TYPES.values() if row.dlpack_code is not None}


@cache
def numpy_dtype(name: str) -> np.dtype:
    """Return the numpy type of an existing element type (see `ELEMENT_TYPES`)."""
    numpy_name = ELEMENT_TYPES[name].numpy_name
    if numpy_name in np.sctypeDict:
        return np.dtype(numpy_name)
    import ml_dtypes  # only models with low precision types pay for this import

    result: np.dtype = np.dtype(getattr(ml_dtypes, numpy_name))
    return result


def element_type_of(dtype: np.dtype) -> ArrayDType | None:
    """Return the element type of a numpy type in any byte order; None if Mirlo has none."""
    return _BY_NUMPY.get(dtype.name)


def element_type_of_dlpack(code: int, bits: int) -> ArrayDType | None:
    """Return the element type of a DLPack data type of one lane; None if Mirlo has none."""
    return _BY_DLPACK.get((code, bits))
