"""Elementwise operators as functions of the library, for use as post-ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from mirlo_onednn.plan import PostOp

Attributes = Mapping[str, Any]


def _eltwise(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> tuple[PostOp, ...]:
    return (PostOp("eltwise", algorithm, alpha, beta),)


def _always(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Attributes], tuple[PostOp, ...]]:
    return lambda attributes: _eltwise(algorithm, alpha, beta)


def _clip(a: Attributes) -> tuple[PostOp, ...]:
    return _eltwise("clip", -math.inf if a["min"] is None else a["min"], math.inf if a["max"] is None else a["max"])


ELTWISE: dict[str, Callable[[Attributes], tuple[PostOp, ...]]] = {
    "relax.relu": _always("relu"),
    "relax.leaky_relu": lambda a: _eltwise("relu", a["alpha"]),
    "relax.elu": lambda a: _eltwise("elu", a["alpha"]),
    "relax.selu": lambda a: _eltwise("elu", a["alpha"]) + _eltwise("linear", a["gamma"]),
    "relax.celu": lambda a: _eltwise("linear", 1 / a["alpha"]) + _eltwise("elu", 1.0) + _eltwise("linear", a["alpha"]),
    "relax.sigmoid": _always("logistic"),
    "relax.hard_sigmoid": lambda a: _eltwise("hardsigmoid", a["alpha"], a["beta"]),
    "relax.hard_swish": _always("hardswish", 1 / 6, 0.5),
    "relax.silu": _always("swish", 1.0),
    "relax.mish": _always("mish"),
    "relax.softplus": _always("soft_relu", 1.0),
    "relax.gelu": lambda a: _eltwise("gelu_erf" if a["approximate"] == "none" else "gelu_tanh"),
    "relax.clip": _clip,
    "relax.tanh": _always("tanh"),
    "relax.abs": _always("abs"),
    "relax.sqrt": _always("sqrt"),
    "relax.square": _always("square"),
    "relax.exp": _always("exp"),
    "relax.log": _always("log"),
    "relax.round": _always("round"),
    "relax.negative": _always("linear", -1.0),
    "relax.reciprocal": _always("pow", 1.0, -1.0),
    "relax.rsqrt": _always("pow", 1.0, -0.5),
}
"""By operator, the functions that compute it, from its attributes."""

BINARY = {
    "relax.add": "add",
    "relax.subtract": "sub",
    "relax.multiply": "mul",
    "relax.divide": "div",
    "relax.maximum": "max",
    "relax.minimum": "min",
}
"""By operator, the function of two operands."""

NEGATE = PostOp("eltwise", "linear", -1.0)


def with_constant(op: str, number: float, is_second: bool) -> tuple[PostOp, ...] | None:
    """Return a binary operator with a constant as one operand, or None if the library has no such function."""
    if op == "relax.divide":
        return _eltwise("linear", 1 / number) if is_second and number else None
    if op == "relax.subtract" and not is_second:
        return _eltwise("linear", -1.0, number)
    return {
        "relax.add": _eltwise("linear", 1.0, number),
        "relax.subtract": _eltwise("linear", 1.0, -number),
        "relax.multiply": _eltwise("linear", number),
        "relax.maximum": _eltwise("clip", number, math.inf),
        "relax.minimum": _eltwise("clip", -math.inf, number),
    }[op]


def with_operand(op: str, operand: str, is_second: bool) -> tuple[PostOp, ...] | None:
    """Return a binary operator with an operand that broadcasts, or None if the library has no such function."""
    if op == "relax.divide" and not is_second:
        return None
    if op == "relax.subtract" and not is_second:
        return (NEGATE, PostOp("binary", "add", operand=operand))
    return (PostOp("binary", BINARY[op], operand=operand),)
