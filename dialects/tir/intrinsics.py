"""The table of intrinsics: pure operations on scalars or vectors. A row is the whole definition.

name: operands, kind of the operands, kind of the result ('same' or 'bool'). Its meaning is the function in
`test/conformance/intrinsics.py` and the table in `docs/intrinsics.md`; how it becomes code is a rule of a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import OpError, operand, result
from mirlo.dialects.tir.base import TirOp


@dataclass(frozen=True)
class Intrinsic:
    name: str
    arity: int
    operands: str
    """What the operands are: 'float', 'int', or 'float_int', a float and an integer."""
    result: str
    """'same' as the first operand, or 'bool'."""

    @property
    def operand_kinds(self) -> tuple[str, ...]:
        return ("float", "int") if self.operands == "float_int" else (self.operands,) * self.arity


_FLOAT_1 = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc",
    "round", "roundeven", "abs", "sigmoid",
]  # fmt: skip
_FLOAT_2 = ["pow", "atan2", "fmod", "remainder", "hypot", "copysign", "nextafter"]
_TESTS = ["isnan", "isinf", "isfinite"]
_INT_1 = ["popcount", "clz", "ctz"]
_INT_2 = ["sat_adds", "sat_addu", "sat_subs", "sat_subu", "shl", "shrs", "shru"]

INTRINSICS: dict[str, Intrinsic] = {
    row.name: row
    for row in (
        *(Intrinsic(name, 1, "float", "same") for name in _FLOAT_1),
        *(Intrinsic(name, 2, "float", "same") for name in _FLOAT_2),
        Intrinsic("fma", 3, "float", "same"),
        Intrinsic("ldexp", 2, "float_int", "same"),
        *(Intrinsic(name, 1, "float", "bool") for name in _TESTS),
        *(Intrinsic(name, 1, "int", "same") for name in _INT_1),
        *(Intrinsic(name, 2, "int", "same") for name in _INT_2),
        Intrinsic("fixed_mul", 3, "int", "same"),
    )
}


def _element(mlir_type: Any) -> Any:
    return mlir_type.element_type if isinstance(mlir_type, ir.VectorType) else mlir_type


def _shape(mlir_type: Any) -> tuple[int, ...] | None:
    return tuple(mlir_type.shape) if isinstance(mlir_type, ir.VectorType) else None


def _is_float(mlir_type: Any) -> bool:
    return isinstance(mlir_type, ir.FloatType)


def _is_int(mlir_type: Any) -> bool:
    return isinstance(mlir_type, (ir.IntegerType, ir.IndexType))


class IntrinsicOp(TirOp):
    """Elementwise on scalars or vectors of one shape."""

    ROW: Intrinsic

    def check(self) -> None:
        types = [value.type for value in self.operation.operands]
        for i, (kind, found) in enumerate(zip(self.ROW.operand_kinds, types, strict=True)):
            wanted = _is_float if kind == "float" else _is_int
            if not wanted(_element(found)):
                words = "floating point" if kind == "float" else "integer"
                raise OpError(f"operand #{i} must be {words}, a scalar or a vector, got {found}")
        if self.ROW.operands == "float_int":
            if _shape(types[0]) != _shape(types[1]):
                raise OpError(f"operands must have one shape, got {types[0]} and {types[1]}")
        elif any(t != types[0] for t in types):
            raise OpError(f"operands must have one type, got {', '.join(map(str, types))}")
        found, expected = self.operation.results[0].type, result_type(self.ROW, types[0])
        if found != expected:
            raise OpError(f"result must be {expected}, got {found}")


def _define(row: Intrinsic) -> type:
    fields: dict[str, Any] = {f"x{i}": operand() for i in range(row.arity)}
    for name, field in fields.items():
        field.__set_name__(None, name)
    body = {**fields, "output": result(), "ROW": row, "__module__": __name__}
    return type(row.name.capitalize(), (IntrinsicOp,), body, name=row.name)  # type: ignore[call-overload]


OPS: dict[str, Any] = {name: _define(row) for name, row in INTRINSICS.items()}


def result_type(row: Intrinsic, first: Any) -> Any:
    """MLIR type of the result for a first operand of this type."""
    if row.result == "same":
        return first
    i1 = ir.IntegerType.get_signless(1)
    return ir.VectorType.get(first.shape, i1) if isinstance(first, ir.VectorType) else i1


def emit(name: str, *values: Any) -> Any:
    """Make the intrinsic `tir.<name>` at the insertion point; returns its value."""
    row = INTRINSICS[name]
    return ir.Operation.create(
        f"tir.{name}", results=[result_type(row, values[0].type)], operands=list(values)
    ).results[0]
