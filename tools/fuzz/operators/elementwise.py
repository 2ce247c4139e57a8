"""Element-wise nodes."""

from __future__ import annotations

import numpy as np
from onnx import helper

from mirlo.tools.fuzz.operators import plans
from mirlo.tools.fuzz.pool import FLOATS, NodeDraft, ValuePool

UNARY = (
    "Abs", "Neg", "Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Relu", "Softplus", "Softsign", "Erf", "HardSwish", "Mish",
    "Sin", "Cos", "Atan", "Sinh", "Asinh", "Reciprocal", "Identity", "Selu",
)  # fmt: skip
SINGLE = ("Erf", "HardSwish")
"""Those that the reference evaluator computes with numbers of single precision, whatever the type."""
EXACT_UNARY = ("Abs", "Neg", "Relu", "Identity")
WITH_ATTRIBUTES = {
    "LeakyRelu": ("alpha",), "Elu": ("alpha",), "Celu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
    "ThresholdedRelu": ("alpha",), "Shrink": ("bias", "lambd"),
}  # fmt: skip
JUMPS = ("ThresholdedRelu", "Shrink")
COMPARE = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")


@plans(4)
def unary(pool: ValuePool) -> NodeDraft | None:
    operator = pool.choice(UNARY)
    x = pool.floats(dtype=np.float32 if operator in SINGLE else None)
    if operator in ("Sqrt", "Log", "Reciprocal") and not (np.abs(x.array) > 0.05).all():
        return None
    if operator in ("Sqrt", "Log") and (x.array < 0).any():
        return None
    return NodeDraft(operator, (x,), is_exact=operator in EXACT_UNARY)


@plans()
def unary_of_integers(pool: ValuePool) -> NodeDraft:
    return NodeDraft(pool.choice(("Abs", "Identity", "Sign")), (pool.any(kinds="iu"),), is_exact=True)


@plans()
def with_attributes(pool: ValuePool) -> NodeDraft:
    operator = pool.choice(tuple(WITH_ATTRIBUTES))
    x = pool.floats(exact=operator in JUMPS, dtype=np.float32)
    attributes = {name: pool.choice((0.25, 0.5, 0.125, 1.5)) for name in WITH_ATTRIBUTES[operator] if pool.chance(0.7)}
    return NodeDraft(operator, (x,), attributes)


@plans()
def gelu(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(dtype=np.float32)
    # What is left of 1 + erf(x) is rounding alone where x is very negative: implementations differ.
    return NodeDraft("Gelu", (x,), {"approximate": pool.choice(("none", "tanh"))}) if x.array.min() > -3.5 else None


@plans()
def rounding(pool: ValuePool) -> NodeDraft:
    return NodeDraft(pool.choice(("Floor", "Ceil", "Round", "Sign")), (pool.floats(exact=True),), is_exact=True)


@plans(5)
def binary(pool: ValuePool) -> NodeDraft | None:
    operator = pool.choice(("Add", "Sub", "Mul", "Div", "Add", "Mul"))
    x = pool.any(kinds="ffffiu")
    y = pool.broadcastable(x)
    if operator == "Div" and not (np.abs(y.array.astype(float)) > 0.05).all():
        return None
    left, right = (x, y) if operator == "Div" or pool.chance(0.5) else (y, x)
    return NodeDraft(operator, (left, right), is_exact=left.dtype.kind in "iu")


@plans()
def power(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(dtype=np.float32)
    exponent = pool.choice((0.5, 2.0, -1.0, 1.5) if (x.array > 0.05).all() else (2.0, 3.0))
    return NodeDraft("Pow", (x, pool.constant(np.float32(exponent))))


@plans()
def min_and_max(pool: ValuePool) -> NodeDraft:
    x = pool.any(kinds="ffiu")
    more = [pool.broadcastable(x) for _ in range(pool.number(1, 2))]
    return NodeDraft(pool.choice(("Max", "Min")), (x, *more), is_exact=True)


@plans()
def sum_and_mean(pool: ValuePool) -> NodeDraft:
    x = pool.floats()
    return NodeDraft(pool.choice(("Sum", "Mean")), (x, *(pool.broadcastable(x) for _ in range(pool.number(0, 2)))))


@plans()
def modulo(pool: ValuePool) -> NodeDraft | None:
    x = pool.any(kinds="iu")
    y = pool.broadcastable(x)
    return NodeDraft("Mod", (x, y), {"fmod": pool.number(0, 1)}, is_exact=True) if (y.array != 0).all() else None


@plans()
def bits(pool: ValuePool) -> NodeDraft:
    x = pool.any(kinds="iu")
    return NodeDraft(pool.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), (x, pool.broadcastable(x)), is_exact=True)


@plans()
def shift(pool: ValuePool) -> NodeDraft:
    x = pool.any(kinds="u")
    places = pool.leaf((pool.array(x.shape, x.dtype) % 8).astype(x.dtype))
    return NodeDraft("BitShift", (x, places), {"direction": pool.choice(("LEFT", "RIGHT"))}, is_exact=True)


@plans()
def compare(pool: ValuePool) -> NodeDraft:
    x = pool.any(kinds="ffiu", exact=True)
    return NodeDraft(pool.choice(COMPARE), (x, _exact_partner(pool, x)), is_exact=True)


def _exact_partner(pool: ValuePool, x):  # type: ignore[no-untyped-def]
    partner = pool.broadcastable(x)
    return partner if partner.is_exact else pool.leaf(pool.array(partner.shape, partner.dtype))


@plans()
def logic(pool: ValuePool) -> NodeDraft:
    x = pool.any(kinds="b")
    if pool.chance(0.3):
        return NodeDraft("Not", (x,), is_exact=True)
    return NodeDraft(pool.choice(("And", "Or", "Xor")), (x, pool.broadcastable(x)), is_exact=True)


@plans(2)
def where(pool: ValuePool) -> NodeDraft:
    x = pool.any(kinds="fffi")
    return NodeDraft("Where", (pool.broadcastable(x, np.bool_), x, pool.broadcastable(x)), is_exact=True)


@plans(2)
def clip(pool: ValuePool) -> NodeDraft:
    x = pool.any(kinds="ffi")
    low, high = (pool.constant(np.array(v, x.dtype)) for v in (-1, 3))
    return NodeDraft("Clip", (x, low if pool.chance(0.8) else None, high if pool.chance(0.8) else None), is_exact=True)


@plans(2)
def cast(pool: ValuePool) -> NodeDraft:
    x = pool.any(exact=True)
    kinds = [np.float32, np.float64, np.int64, np.int32, np.bool_, np.float16]
    if x.array.size and (x.array.dtype.kind != "f" or (np.abs(x.array) < 100).all()):
        kinds.append(np.int8)
    if x.array.size and (x.array.astype(np.float64) >= 0).all() and (x.array.astype(np.float64) < 100).all():
        kinds.append(np.uint8)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(pool.choice(kinds)))
    return NodeDraft("Cast", (x,), {"to": to}, is_exact=True)


@plans()
def cast_floats(pool: ValuePool) -> NodeDraft:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(pool.choice(FLOATS)))
    return NodeDraft("Cast", (pool.floats(),), {"to": to}, is_exact=False)


@plans()
def prelu(pool: ValuePool) -> NodeDraft:
    x = pool.floats(1, 4)
    shape = [1 if pool.chance(0.5) else dim for dim in x.shape]
    return NodeDraft("PRelu", (x, pool.of_shape(shape, x.dtype)))
