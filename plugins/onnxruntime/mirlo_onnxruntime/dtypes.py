"""Element types in ONNX."""

from __future__ import annotations

from mirlo.extend.codegen import DType

CODES = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "u32": 12,
    "u64": 13,
}  # fmt: skip
"""TensorProto.DataType of the element types that numpy and ONNX Runtime exchange."""


def code_of(dtype: DType) -> int:
    """Return ONNX's code of an element type."""
    return CODES[dtype.name]
