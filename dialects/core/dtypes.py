"""Element types: one row each, with MLIR and numpy names, and the storage and compute types of a loop nest."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class DType:
    """An element type of a tensor. It equals its name: `x.dtype == "f32"`; an unknown name is an error."""

    name: str
    mlir: str
    numpy: str
    """Name of the numpy (or ml_dtypes) type with these elements."""
    kind: str
    """'float', 'int', 'uint' or 'bool'."""
    bits: int
    storage: str
    """MLIR type of one element in the buffers of a prim function (signless, at least a byte)."""
    compute: str
    """MLIR type of the scalar in which a prim function computes."""

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_unsigned(self) -> bool:
        return self.kind in ("uint", "bool")

    @property
    def bytes(self) -> int:
        """Return the bytes of one element in memory."""
        return max(1, (self.bits + 7) // 8)

    def to_mlir(self) -> ir.Type:
        return ir.Type.parse(self.mlir)

    def to_numpy(self) -> np.dtype:
        if self.numpy in np.sctypeDict:
            return np.dtype(self.numpy)
        import ml_dtypes

        other: np.dtype = np.dtype(getattr(ml_dtypes, self.numpy))
        return other

    def __eq__(self, other: object) -> bool:
        return self is (dtype(other) if isinstance(other, str) else other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """Keep element types singletons in copies and pickles."""
        return dtype, (self.name,)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name})"


# name, MLIR type, numpy name, kind, bits, storage, compute
_ROWS = """
f64      f64         float64          float 64 f64  f64
f32      f32         float32          float 32 f32  f32
f16      f16         float16          float 16 f16  f16
bf16     bf16        bfloat16         float 16 bf16 bf16
f8e4m3fn f8E4M3FN    float8_e4m3fn    float 8  i8   f32
f8e4m3fnuz f8E4M3FNUZ float8_e4m3fnuz float 8  i8   f32
f8e5m2   f8E5M2      float8_e5m2      float 8  i8   f32
f8e5m2fnuz f8E5M2FNUZ float8_e5m2fnuz float 8  i8   f32
f8e8m0   f8E8M0FNU   float8_e8m0fnu   float 8  i8   f32
f4e2m1   f4E2M1FN    float4_e2m1fn    float 4  i8   f32
i64      i64         int64            int   64 i64  i64
i32      i32         int32            int   32 i32  i32
i16      i16         int16            int   16 i16  i16
i8       i8          int8             int   8  i8   i8
i4       i4          int4             int   4  i8   i8
i2       i2          int2             int   2  i8   i8
u64      ui64        uint64           uint  64 i64  i64
u32      ui32        uint32           uint  32 i32  i32
u16      ui16        uint16           uint  16 i16  i16
u8       ui8         uint8            uint  8  i8   i8
u4       ui4         uint4            uint  4  i8   i8
u2       ui2         uint2            uint  2  i8   i8
bool     i1          bool             bool  1  i8   i1
index    index       int64            int   64 i64  index
"""
DTYPES: dict[str, DType] = {
    row[0]: DType(row[0], row[1], row[2], row[3], int(row[4]), row[5], row[6])
    for row in (line.split() for line in _ROWS.strip().splitlines())
}
_BY_MLIR = {dtype.mlir: dtype for dtype in DTYPES.values()}


def dtype(name: str | DType) -> DType:
    """Return the element type with this name; the error for an unknown name lists all names."""
    if isinstance(name, DType):
        return name
    result = DTYPES.get(name)
    if result is None:
        raise ValueError(f"unknown element type '{name}'; known: {', '.join(DTYPES)}")
    return result


def dtype_of_mlir(element_type: ir.Type) -> DType | None:
    """Return the element type that this MLIR type represents in a relax tensor, or None."""
    if isinstance(element_type, ir.IntegerType):
        # Printing the type takes ten times as long, and every builder and verifier calls this.
        prefix = "i" if element_type.is_signless else "ui" if element_type.is_unsigned else "si"
        return _BY_MLIR.get(f"{prefix}{element_type.width}")
    dtype = _by_class().get(type(element_type))
    return dtype or _BY_MLIR.get(str(element_type))


@cache
def _by_class() -> dict[type, DType]:
    names = {"f64": "F64Type", "f32": "F32Type", "f16": "F16Type", "bf16": "BF16Type", "index": "IndexType"}
    return {getattr(ir, class_name): DTYPES[name] for name, class_name in names.items()}


@cache
def _by_numpy() -> dict[str, DType]:
    return {row.numpy: row for row in DTYPES.values() if row.name != "index"}


def dtype_of_numpy(array_dtype: np.dtype) -> DType | None:
    return _by_numpy().get(array_dtype.name)
