"""The element type in which PyTorch computes with operands of different types."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import DType, Tensor, UnsupportedOperation, dtype

_CATEGORIES = ("bool", "int", "float")


def element_type(value: object) -> DType:
    """Return an element type of PyTorch as Mirlo's."""
    name = str(value).removeprefix("torch.")
    short_name = _NAMES.get(name)
    if short_name is None:
        raise UnsupportedOperation(f"has elements of {value}, which are not supported")
    return dtype(short_name)


_NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn", "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "bool",
}  # fmt: skip


def promoted(operands: Sequence[object]) -> DType:
    """Return the common type: tensors with dims take precedence over scalars, and these over Python numbers.

    An operand of lower precedence counts only if its category is higher: floats are above integers, integers above
    bools.
    """
    groups: list[list[DType]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, Tensor):
            groups[0 if operand.rank else 1].append(operand.dtype)
        else:
            groups[2].append(_of_number(operand))
    result: DType | None = None
    for group in groups:
        dtype: DType | None = None
        for entry in group:
            dtype = entry if dtype is None else _joined(dtype, entry)
        if dtype is not None and (result is None or _category(dtype) > _category(result)):
            result = dtype
    assert result is not None
    return result


def _of_number(number: object) -> DType:
    if isinstance(number, bool):
        return dtype("bool")
    return dtype("f32" if isinstance(number, float) else "i64")


def _category(element: DType) -> int:
    return _CATEGORIES.index("int" if element.is_integer else element.kind if element.kind != "uint" else "int")


def _joined(left: DType, right: DType) -> DType:
    """Return the common type of two tensors of equal precedence."""
    if left is right:
        return left
    low, high = sorted((left, right), key=lambda each: (_category(each), each.bits))
    if _category(low) != _category(high):
        return high
    if high.is_float:
        return dtype("f32") if low.bits == high.bits else high
    if low.is_unsigned == high.is_unsigned:
        return high
    unsigned, signed = (low, high) if low.is_unsigned else (high, low)
    if unsigned.bits > 8:
        raise UnsupportedOperation(f"has operands of {left} and {right}")
    return signed if signed.bits > unsigned.bits else dtype("i16")
