"""What a composite computes, as a sum of integers times real numbers that is rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

SHIFT = 1.5 * 2.0**23
"""What `relax.requantize` adds to round."""
ROUNDED = ("relax.quantize", "relax.requantize")
ACCUMULATORS = ("relax.conv", "relax.matmul")


@dataclass(frozen=True)
class Linear:
    """Integer tensors times factors, plus a constant; rounded, shifted by a zero point and clipped."""

    terms: Mapping[Any, np.ndarray]
    constant: np.ndarray
    limits: tuple[int, int, int] = (0, -128, 127)
    """The zero point, the least and the largest value."""


def linear_of(step: Any) -> tuple[Any, Linear]:
    """Return the result of a composite, and its expression."""
    result = step.nodes[-1].output
    last = source_of(result).producer
    if last is None or last.composite is not step.nodes[-1].composite or last.op not in ROUNDED:
        return result, Linear({source_of(result): np.float64(1)}, np.float64(0))
    if last.op == "relax.requantize":
        factor = _array(last["multiplier"]) + _array(last["multiplier_low"])
        total = _plus(_times(_linear(last["x"]), factor), Linear({}, _array(last["shift"]) - SHIFT))
        for name in ("addend_low", "addend"):
            if last[name] is not None:
                total = _plus(total, _linear(last[name]))
        return result, Linear(total.terms, total.constant, (last["zero_point"], last["min"], last["max"]))
    return result, _quantized(last)


def source_of(value: Any) -> Any:
    """Return the tensor that a value is a view of, within its composite."""
    composite = None if value.producer is None else value.producer.composite
    while value.producer is not None and value.producer.op == "relax.reshape" and value.producer.composite is composite:
        value = value.producer["x"]
    return value


def _quantized(quantize: Any) -> Linear:
    """Return the expression of a quantization that `simplify` left as real arithmetic."""
    value, low, high = quantize["x"], -np.inf, np.inf
    while value.producer is not None and value.producer.op in ("relax.relu", "relax.clip"):
        node = value.producer
        bounds = (0.0, np.inf) if node.op == "relax.relu" else (node["min"], node["max"])
        least, most = (-np.inf if bounds[0] is None else bounds[0]), (np.inf if bounds[1] is None else bounds[1])
        low, high, value = float(np.clip(least, low, high)), float(np.clip(most, low, high)), node["x"]
    step = float(_array(quantize["scale"]).reshape(-1)[0])
    zero = 0 if quantize["zero_point"] is None else int(_array(quantize["zero_point"]).reshape(-1)[0])
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
    raise ValueError(f"{node} is not linear")


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.array, np.float64)


def _plus(a: Linear, b: Linear) -> Linear:
    terms = dict(a.terms)
    for value, factor in b.terms.items():
        terms[value] = terms[value] + factor if value in terms else factor
    return Linear(terms, a.constant + b.constant)


def _times(a: Linear, factor: np.ndarray) -> Linear:
    return Linear({value: old * factor for value, old in a.terms.items()}, a.constant * factor)
