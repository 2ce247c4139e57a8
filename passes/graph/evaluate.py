"""Evaluation of relax operators on numpy arrays, for constant folding: a row or a short function each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Evaluator = Callable[..., Any]
EVALUATORS: dict[str, Evaluator] = {}


def evaluator(*names: str) -> Callable[[Evaluator], Evaluator]:
    """Register the evaluation of operators: `f(op, *arrays)`, None for an absent optional operand."""

    def register(function: Evaluator) -> Evaluator:
        for name in names:
            EVALUATORS[f"relax.{name}"] = function
        return function

    return register


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu":
        quotient = np.abs(a) // np.maximum(np.abs(b), 1)
        return np.where((a < 0) != (b < 0), -quotient, quotient).astype(a.dtype)
    return a / b


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    if a.dtype.kind in "iu" and (b < 0).any():
        return None
    return np.power(a, b)


_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs, "negative": np.negative, "sign": np.sign, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype), "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "square": np.square,
    "reciprocal": lambda x: (1 / x).astype(x.dtype), "logical_not": np.logical_not, "bitwise_not": np.invert,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
}  # fmt: skip
_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray | None]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": _divide, "floor_divide": np.floor_divide,
    "mod": np.mod, "fmod": np.fmod, "power": _power, "maximum": np.maximum, "minimum": np.minimum,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
for _name, _unary in _UNARY.items():
    EVALUATORS[f"relax.{_name}"] = lambda op, x, f=_unary: f(x)
for _name, _binary in _BINARY.items():
    EVALUATORS[f"relax.{_name}"] = lambda op, x, y, f=_binary: f(x, y)


@evaluator("where")
def _where(op: Any, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(condition, x, y)


@evaluator("reshape")
def _reshape(op: Any, x: np.ndarray) -> np.ndarray:
    return x.reshape(op.shape)


@evaluator("expand_dims", "squeeze")
def _same_elements(op: Any, x: np.ndarray) -> np.ndarray:
    return x.reshape(tuple(op.output.type.shape))


@evaluator("permute")
def _permute(op: Any, x: np.ndarray) -> np.ndarray:
    return x.transpose(op.axes)


@evaluator("expand")
def _expand(op: Any, x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, tuple(op.output.type.shape))


@evaluator("cast")
def _cast(op: Any, x: np.ndarray) -> np.ndarray | None:
    target = op.dtype.to_numpy()
    # The operator defines out-of-range values; numpy leaves them to the machine.
    if x.dtype.kind == "f" and target.kind in "iu":
        info = np.iinfo(target)
        if not (np.isfinite(x).all() and x.min(initial=0) >= info.min and x.max(initial=0) <= info.max):
            return None
    return x.astype(target)


@evaluator("concat")
def _concat(op: Any, *xs: np.ndarray) -> np.ndarray:
    return np.concatenate(xs, axis=op.axis)


@evaluator("stack")
def _stack(op: Any, *xs: np.ndarray) -> np.ndarray:
    return np.stack(xs, axis=op.axis)


@evaluator("tile")
def _tile(op: Any, x: np.ndarray) -> np.ndarray:
    return np.tile(x, op.repeats)


@evaluator("gather")
def _gather(op: Any, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    size = x.shape[op.axis]
    return np.take(x, np.where(indices < 0, indices + size, indices), axis=op.axis, mode="clip")


@evaluator("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
def _reduce(op: Any, x: np.ndarray) -> np.ndarray:
    function = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
    kind = op.operation.name.rsplit("_", 1)[1]
    return function[kind](_wide(x), axis=op.axes, keepdims=op.keepdims).astype(x.dtype)  # type: ignore[operator]


@evaluator("matmul")
def _matmul(op: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    if op.out_dtype is not None:
        return None
    left = x.swapaxes(-1, -2) if op.transpose_lhs else x
    right = y.swapaxes(-1, -2) if op.transpose_rhs else y
    return np.matmul(_wide(left), _wide(right)).astype(x.dtype)


def _wide(x: np.ndarray) -> np.ndarray:
    """Widen 16-bit floats to float32, the type in which they are summed."""
    return x.astype(np.float32) if x.dtype.kind not in "biu" and x.dtype.itemsize < 4 else x


@evaluator("full")
def _full(op: Any) -> np.ndarray:
    return np.full(tuple(op.output.type.shape), op.value, op.dtype.to_numpy())


@evaluator("strided_slice")
def _slice(op: Any, x: np.ndarray) -> np.ndarray:
    cut: list[slice] = [slice(None)] * x.ndim
    strides = op.strides or (1,) * len(op.axes)
    for axis, begin, end, stride in zip(op.axes, op.begin, op.end, strides, strict=True):
        # An end before the first element cannot be written as a non-negative index.
        stop = None if stride < 0 and end < -x.shape[axis] else end
        cut[axis] = slice(begin, stop, stride)
    return x[tuple(cut)]


@evaluator("dequantize")
def _dequantize(op: Any, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None) -> np.ndarray | None:
    if op.block and x.ndim == 2:
        return None  # weights of products stay as they are
    is_real = zero is not None and zero.dtype.kind not in "iu"
    if x.dtype.kind not in "iu" or op.dtype.name != "f32" or scale.dtype != np.float32 or is_real:
        return None
    wide = x.astype(np.int64) - (0 if zero is None else _along(op, x, zero).astype(np.int64))
    return wide.astype(np.float32) * _along(op, x, scale)


def _along(op: Any, x: np.ndarray, parameter: np.ndarray) -> np.ndarray:
    """Expand a scale or zero point (per tensor, per position along the axis, or per block) to the shape of x."""
    axis = op.axis % max(x.ndim, 1)
    if op.block:
        return np.repeat(parameter, op.block, axis).take(range(x.shape[axis]), axis)
    return parameter if parameter.ndim == 0 else parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
