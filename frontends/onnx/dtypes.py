"""ONNX's element types: code, Mirlo's element type, and the field for values without raw data."""

from __future__ import annotations

from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class OnnxDType:
    """A row of the table."""

    code: int
    name: str
    """Name in ONNX's TensorProto.DataType."""
    dtype: DType
    field: str
    """TensorProto field for the values if there is no `raw_data`."""


FLOAT_CODE = 1
"""The code of f32, the default of attributes that choose a type to compute in."""
# code, name in ONNX, element type, field
_ROWS = """
1  FLOAT           f32        float_data
2  UINT8           u8         int32_data
3  INT8            i8         int32_data
4  UINT16          u16        int32_data
5  INT16           i16        int32_data
6  INT32           i32        int32_data
7  INT64           i64        int64_data
9  BOOL            bool       int32_data
10 FLOAT16         f16        int32_data
11 DOUBLE          f64        double_data
12 UINT32          u32        uint64_data
13 UINT64          u64        uint64_data
16 BFLOAT16        bf16       int32_data
17 FLOAT8E4M3FN    f8e4m3fn   int32_data
18 FLOAT8E4M3FNUZ  f8e4m3fnuz int32_data
19 FLOAT8E5M2      f8e5m2     int32_data
20 FLOAT8E5M2FNUZ  f8e5m2fnuz int32_data
21 UINT4           u4         int32_data
22 INT4            i4         int32_data
23 FLOAT4E2M1      f4e2m1     int32_data
24 FLOAT8E8M0      f8e8m0     int32_data
25 UINT2           u2         int32_data
26 INT2            i2         int32_data
"""
_TABLE = {
    int(code): OnnxDType(int(code), name, DTYPES[dtype], field)
    for code, name, dtype, field in (line.split() for line in _ROWS.strip().splitlines())
}
FIELDS = {code: row.field for code, row in _TABLE.items()}
"""The field for the values of each element type."""
_CODES = {row.dtype.name: row.code for row in _TABLE.values()}
_TYPE_NAMES = {row.dtype.name: row.name.lower() for row in _TABLE.values()}
_WITHOUT_DTYPE = {0: "UNDEFINED", 8: "STRING", 14: "COMPLEX64", 15: "COMPLEX128"}


def onnx_dtype(code: int, what: str) -> OnnxDType:
    """Return the element type of this code; `what` names its owner in the error for unsupported types."""
    result = _TABLE.get(code)
    if result is None:
        name = _WITHOUT_DTYPE.get(code, f"number {code}, which ONNX does not define")
        supported = ", ".join(row.name for row in _TABLE.values())
        raise OnnxImportError(f"{what} has the element type {name}, which is not supported; supported: {supported}")
    return result


def onnx_code(dtype: DType) -> int:
    """Return ONNX's code of an element type."""
    return _CODES[dtype.name]


def onnx_type_name(dtype: DType) -> str:
    """Return the element type as ONNX's schemas write it: `float`, `int64`, `bfloat16`."""
    return _TYPE_NAMES[dtype.name]
