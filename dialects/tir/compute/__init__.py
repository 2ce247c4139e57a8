"""The compute builder: prim functions from Python lambdas over index variables."""

from mirlo.dialects.tir.compute.builder import (
    PRIM_FUNC,
    PrimBuilder,
    TensorExpr,
    at_most_last,
    from_end,
    identity_of,
    is_within,
    storage_type,
    within,
    wrapped,
)
from mirlo.dialects.tir.compute.expr import (
    BOOL,
    INDEX,
    Axis,
    Expr,
    ExprLike,
    abs_,
    all_of,
    call,
    ceil,
    clamp,
    constant,
    erf,
    exp,
    floor,
    lift,
    log,
    maximum,
    minimum,
    roundeven,
    rsqrt,
    select,
    sigmoid,
    sqrt,
    tanh,
    trunc,
)
from mirlo.dialects.tir.compute.loops import Buffer, LoopBuilder, LoopFunction, Variable
from mirlo.dialects.tir.compute.narrow import is_coded

__all__ = [
    "BOOL", "INDEX", "PRIM_FUNC", "Axis", "Buffer", "Expr", "ExprLike", "LoopBuilder", "LoopFunction", "PrimBuilder",
    "TensorExpr", "Variable", "abs_", "all_of", "at_most_last", "call", "ceil", "clamp", "constant", "erf", "exp",
    "floor", "from_end", "identity_of", "is_coded", "is_within", "lift", "log", "maximum", "minimum", "roundeven",
    "rsqrt", "select", "sigmoid", "sqrt", "storage_type", "tanh", "trunc", "within", "wrapped",
]  # fmt: skip
