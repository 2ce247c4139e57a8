"""The result of a composite as an expression: a sum of integers times real factors, rounded once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.extend.codegen import functions_of_one_operand
from mirlo.extend.rules import decline

SHIFT = 1.5 * 2.0**23
"""Operations that round in `relax.requantize`."""
BOUNDS = ("relax.relu", "relax.clip")
"""Operations that clip results, which requantization does."""
ACTIVATIONS = tuple(name for name in functions_of_one_operand() if name not in BOUNDS)
"""Unary functions, computed by a table of 256 results."""
ROUNDED = ("relax.quantize", "relax.requantize")
ACCUMULATORS = ("relax.conv", "relax.matmul")
POOLS = ("relax.max_pool", "relax.avg_pool", "relax.reduce_mean")


class Misfit(Exception):
    """A step in a form that the unit's layers do not support, as passes rewrote it."""

    def __init__(self, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.decline = decline(reason, **facts)


@dataclass(frozen=True)
class Linear:
    """Integer tensors times factors, plus a constant; rounded, shifted by a zero point and clipped."""

    terms: Mapping[Any, np.ndarray]
    constant: np.ndarray
    limits: tuple[int, int, int] = (0, -128, 127)
    """The zero point, the least and the largest value."""


def linear_of(step: Any) -> tuple[Any, Linear]:
    """Return the expression of a composite's result, before its table if there is one."""
    last = activation_of(step)
    result = step.nodes[-1].output if last is None else source_of(last["x"].producer["x"])
    return result, _linear_of(result, step.nodes[-1].composite)


def _linear_of(result: Any, composite: Any) -> Linear:
    value = source_of(result)
    last = value.producer
    if last is None or last.composite is not composite:
        return Linear({value: np.float64(1)}, np.float64(0))
    if last.op in BOUNDS:
        inner = _linear_of(last["x"], composite)
        zero, low, high = inner.limits
        least, most = _bounds(last)
        return Linear(inner.terms, inner.constant, (zero, *(int(np.clip(end, low, high)) for end in (least, most))))
    if last.op == "relax.requantize":
        factor = _array(last["multiplier"]) + _array(last["multiplier_low"])
        total = _plus(_times(_linear(last["x"]), factor), Linear({}, _array(last["shift"]) - SHIFT))
        for name in ("addend_low", "addend"):
            if last[name] is not None:
                total = _plus(total, _linear(last[name]))
        return Linear(total.terms, total.constant, (last["zero_point"], last["min"], last["max"]))
    if last.op == "relax.quantize":
        return _quantized(last)
    if last.op == "relax.max_pool":  # of int8, which `simplify` takes maxima of where scales are equal
        return _of_window(last, 1)
    raise Misfit(f"{last.op} is no requantization")


def _bounds(node: Any) -> tuple[float, float]:
    """Return the least and the largest value of a clip or a rectifier."""
    if node.op == "relax.relu":
        return 0.0, np.inf
    return (-np.inf if node["min"] is None else node["min"]), (np.inf if node["max"] is None else node["max"])


def activation_of(step: Any) -> Any:
    """Return the node of a unary function that a table can compute, if the composite has one."""
    if not getattr(step, "pattern", "").endswith("table"):
        return None
    activation = step.nodes[-1]["x"].producer
    if activation is None or activation.op not in ACTIVATIONS:
        raise Misfit(f"{step.nodes[-1]} is no function of one operand")
    return activation


def table_of(step: Any) -> np.ndarray:
    """Return the table of a function for the 256 elements, by their bits, with the rounding of f32."""
    quantize, activation = step.nodes[-1], activation_of(step)
    dequantize = activation["x"].producer
    if quantize.op != "relax.quantize" or dequantize is None or dequantize.op != "relax.dequantize":
        raise Misfit(f"{quantize} is no function of one operand")
    x = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32) - np.float32(zero_of(dequantize))
    operation = activation.operation.opview
    with np.errstate(all="ignore"):
        y = operation.meaning(x * np.float32(_scale(dequantize)), **operation.attribute_values())
        result = np.rint(np.asarray(y, np.float32) / np.float32(_scale(quantize))) + zero_of(quantize)
    return np.clip(np.nan_to_num(result), -128, 127).astype(np.int8)


def _scale(node: Any) -> float:
    return float(_array(node["scale"]).reshape(-1)[0])


def zero_of(node: Any) -> int:
    """Return the zero point of a quantization."""
    return 0 if node["zero_point"] is None else int(_array(node["zero_point"]).reshape(-1)[0])


def source_of(value: Any) -> Any:
    """Return the tensor of which a value is a view within the composite."""
    composite = None if value.producer is None else value.producer.composite
    while value.producer is not None and value.producer.op == "relax.reshape" and value.producer.composite is composite:
        value = value.producer["x"]
    return value


def _quantized(quantize: Any) -> Linear:
    """Return the expression of a quantization that `simplify` left in real arithmetic."""
    value, low, high = quantize["x"], -np.inf, np.inf
    while value.producer is not None and value.producer.op in BOUNDS:
        node = value.producer
        least, most = _bounds(node)
        low, high, value = float(np.clip(least, low, high)), float(np.clip(most, low, high)), node["x"]
    step, zero = _scale(quantize), zero_of(quantize)
    total = _times(_linear(value), np.float64(1 / step))
    least, most = (int(np.clip(np.rint(bound / step) + zero, -128, 127)) for bound in (low, high))
    return Linear(total.terms, total.constant, (zero, least, most))


def _linear(value: Any) -> Linear:
    if value.array is not None:
        return Linear({}, _array(value))
    node = value.producer
    if node is None or value.dtype.name == "i8":
        value = source_of(value)
        return Linear({value: np.float64(1)}, np.float64(0))
    if node.op in ACCUMULATORS:
        constant = np.float64(0) if node.op == "relax.matmul" or node["bias"] is None else _array(node["bias"])
        return Linear({value: np.float64(1)}, constant)
    match node.op:
        case "relax.max_pool":
            return _of_window(node, 1)
        case "relax.avg_pool":
            return _of_window(node, math.prod(node["kernel"]))
        case "relax.reduce_mean":
            return _of_window(node, math.prod(node["x"].shape[axis] for axis in node["axes"]))
        case "relax.cast" | "relax.reshape":
            return _linear(node["x"])
        case "relax.dequantize":
            scale = _array(node["scale"])
            zero = np.float64(0) if node["zero_point"] is None else _array(node["zero_point"])
            return _times(_plus(_linear(node["x"]), Linear({}, -zero)), scale)
        case "relax.add":
            return _plus(_linear(node["lhs"]), _linear(node["rhs"]))
        case "relax.subtract":
            return _plus(_linear(node["lhs"]), _times(_linear(node["rhs"]), np.float64(-1)))
        case "relax.multiply":
            sides = [_linear(node[name]) for name in ("lhs", "rhs")]
            sides.sort(key=lambda side: len(side.terms))
            return _times(sides[1], sides[0].constant)
    raise Misfit(f"{node} is not linear")


def _of_window(node: Any, count: int) -> Linear:
    """Return the largest element, or the sum divided by the count, as a tensor of its own."""
    inner = _linear(node["x"])
    (factor,) = inner.terms.values()
    return Linear({node.output: factor / count}, inner.constant)


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.array, np.float64)


def _plus(a: Linear, b: Linear) -> Linear:
    terms = dict(a.terms)
    for value, factor in b.terms.items():
        terms[value] = terms[value] + factor if value in terms else factor
    return Linear(terms, a.constant + b.constant)


def _times(a: Linear, factor: np.ndarray) -> Linear:
    return Linear({value: old * factor for value, old in a.terms.items()}, a.constant * factor)
