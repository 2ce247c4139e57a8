"""Element types, literals and dims in C."""

from __future__ import annotations

import ast
import math
from typing import Any

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.runtime.names import c_identifier

C_TYPES = {
    "f32": "float", "f64": "double", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "bool": "bool",
}  # fmt: skip
"""The C types of element types."""
_LIMITS = {"i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64", "u8": "UINT8", "u16": "UINT16",
           "u32": "UINT32", "u64": "UINT64"}  # fmt: skip


def c_type(dtype: DType) -> str:
    """Return the C type of an element type."""
    return C_TYPES[dtype.name]


def literal(value: float, dtype: DType) -> str:
    """Return a C literal that denotes a value of an element type exactly."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return _integer(int(value), dtype)
    suffix = "f" if dtype.name == "f32" else ""
    number = float(value)
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    text = f"{number:.9g}" if suffix else repr(number)
    return (text if any(mark in text for mark in ".en") else f"{text}.0") + suffix


def _integer(value: int, dtype: DType) -> str:
    if dtype.bits < 64:
        return str(value) if value > -(2**31) else "INT32_MIN"
    if value == -(2**63):
        return "INT64_MIN"
    return f"UINT64_C({value})" if dtype.is_unsigned else f"INT64_C({value})"


def min_value(dtype: DType) -> str:
    """Return the smallest element, the initial value of a maximum."""
    if dtype.is_bool:
        return "false"
    if dtype.is_float:
        return "-INFINITY"
    return "0" if dtype.is_unsigned else f"{_LIMITS[dtype.name]}_MIN"


def max_value(dtype: DType) -> str:
    """Return the largest element, the initial value of a minimum."""
    if dtype.is_bool:
        return "true"
    return "INFINITY" if dtype.is_float else f"{_LIMITS[dtype.name]}_MAX"


def symbol_name(symbol: str) -> str:
    """Return the C variable of a symbol."""
    return f"dim_{c_identifier(symbol)}"


def c_dim(dim: Dim) -> str:
    """Return a dim as a C expression over the variables of its symbols."""
    if isinstance(dim, int):
        return str(dim)
    if dim is D.UNKNOWN:
        raise ValueError("a dim that nothing is known about")
    text = _expression(ast.parse(str(dim), mode="eval").body)
    return text if text.isidentifier() else f"({text})"


_OPERATORS: dict[type[Any], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


def _expression(node: Any) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return symbol_name(ast.unparse(node))
    if isinstance(node, ast.UnaryOp):
        return f"-{_expression(node.operand)}"
    if isinstance(node, ast.BinOp):
        sides = f"{_expression(node.left)} {_OPERATORS[type(node.op)]} {_expression(node.right)}"
        return sides if isinstance(node.op, ast.Mult) else f"({sides})"
    if isinstance(node, ast.Call):
        return f"mirlo_{node.func.id}({', '.join(map(_expression, node.args))})"  # type: ignore[attr-defined]
    raise ValueError(f"a dim that C cannot express: {ast.unparse(node)}")


def product(dims: list[str]) -> str:
    """Return the product of dims, with integer factors folded."""
    number, rest = 1, []
    for dim in dims:
        if dim.isdigit():
            number *= int(dim)
        else:
            rest.append(dim)
    if not rest or number == 0:
        return str(number)
    return " * ".join(rest if number == 1 else [str(number), *rest])
