"""The largest errors of math functions on each target, in units in the last place, with `mpmath` as the oracle.

Each function is compiled as a model for each target and element type, and computed at random and special arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np

import mirlo
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

TARGETS, KINDS = ("llvm", "c", "spirv"), ("f32", "f64", "f16", "bf16")
COUNT = 2_000
"""Arguments of a function."""
BITS = 160
"""Precision of the oracle: f64 has 53, and products of arguments twice as many."""
FAR = 1e5
"""The largest argument of trigonometric functions: beyond, a period has few numbers of f32."""
FORMATS = {"f32": (24, -126), "f64": (53, -1022), "f16": (11, -14), "bf16": (8, -126)}
"""Bits of a number, and the least exponent of one that is not subnormal."""


@dataclass(frozen=True)
class MathFunction:
    """An operator, its reference function, and the interval of the comparison."""

    operator: str
    exact: Callable[..., Any]
    """With `mpmath`, of one number or two."""
    low: float = -math.inf
    high: float = math.inf
    near: tuple[float, float] = (-8.0, 8.0)
    """Where half of the arguments are."""
    operands: int = 1
    least: float = 0.0
    """Results below this size are measured in units of its last place, beside the zeros of a function."""


@cache
def functions() -> dict[str, MathFunction]:
    """Return the functions by name."""
    import mpmath as mp

    mp.mp.prec = BITS
    one = mp.mpf(1)
    table = [
        MathFunction("exp", mp.exp), MathFunction("exp2", lambda x: mp.power(2, x)), MathFunction("expm1", mp.expm1),
        MathFunction("log", mp.log, 0.0, near=(0.0, 4.0)), MathFunction("log1p", mp.log1p, -1.0, near=(-1.0, 4.0)),
        MathFunction("log2", lambda x: mp.log(x, 2), 0.0, near=(0.0, 4.0)),
        MathFunction("log10", mp.log10, 0.0, near=(0.0, 4.0)), MathFunction("sqrt", mp.sqrt, 0.0, near=(0.0, 4.0)),
        MathFunction("rsqrt", lambda x: one / mp.sqrt(x), 0.0, near=(0.0, 4.0)),
        MathFunction("cbrt", lambda x: mp.cbrt(x) if x >= 0 else -mp.cbrt(-x)),
        MathFunction("sin", mp.sin, -FAR, FAR), MathFunction("cos", mp.cos, -FAR, FAR),
        MathFunction("tan", mp.tan, -FAR, FAR), MathFunction("asin", mp.asin, -1.0, 1.0, (-1.0, 1.0)),
        MathFunction("acos", mp.acos, -1.0, 1.0, (-1.0, 1.0)), MathFunction("atan", mp.atan),
        MathFunction("sinh", mp.sinh), MathFunction("cosh", mp.cosh), MathFunction("tanh", mp.tanh),
        MathFunction("asinh", mp.asinh), MathFunction("acosh", mp.acosh, 1.0, near=(1.0, 4.0)),
        MathFunction("atanh", mp.atanh, -1.0, 1.0, (-1.0, 1.0)), MathFunction("erf", mp.erf, near=(-4.0, 4.0)),
        MathFunction("erfc", mp.erfc, near=(-4.0, 10.0)), MathFunction("sigmoid", lambda x: one / (one + mp.exp(-x))),
        MathFunction("power", mp.power, 0.0, near=(0.0, 8.0), operands=2),
        MathFunction("atan2", mp.atan2, operands=2), MathFunction("erfinv", mp.erfinv, -1.0, 1.0, (-1.0, 1.0)),
        MathFunction("lgamma", lambda x: mp.re(mp.loggamma(x)), -FAR, FAR, (-30.0, 30.0), least=1.0),
    ]  # fmt: skip
    return {each.operator: each for each in table}


def arguments_of(function: MathFunction, kind: str, count: int, seed: int) -> list[np.ndarray]:
    """Return arguments: half near, half of all exponents, and special ones."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[kind].to_numpy()
    bits = DTYPES[kind].bits
    near = rng.uniform(*function.near, count // 2)
    raw = (
        rng.integers(0, 1 << bits, count // 2, np.uint64, endpoint=False)
        if bits < 64
        else rng.integers(0, (1 << 64) - 1, count // 2, np.uint64, endpoint=True)
    )
    with np.errstate(all="ignore"):
        wide = raw.astype(f"u{bits // 8}").view(dtype).astype(np.float64)
    special = np.array([0.5, 1.0, 1.5, 2.0, math.pi, math.pi / 2, 1e-3, 1e-6, 88.0, 10.0, 0.99, 1.01])
    result = []
    with np.errstate(all="ignore"):
        x = np.concatenate([near, wide, special, -special]).astype(dtype)
        held = x.astype(np.float64)
        x = x[np.isfinite(held) & (held >= function.low) & (held <= function.high)]
        result.append(x + np.zeros((), dtype))  # the oracle has no negative zero, of which atan2 makes -pi
        if function.operands == 2:
            result.append(rng.uniform(-6, 6, len(x)).astype(dtype))
    return result


def exact_values(function: MathFunction, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as sums of two f64; NaN where there is none."""
    import mpmath as mp

    high, low = [], []
    for numbers in zip(*(array.astype(np.float64).tolist() for array in operands), strict=True):
        try:
            value = function.exact(*map(mp.mpf, numbers))
            first = float(value) if mp.im(value) == 0 else math.nan
        except (ValueError, ZeroDivisionError, OverflowError):
            value, first = mp.nan, math.nan
        high.append(first)
        low.append(float(value - first) if math.isfinite(first) else 0.0)
    return np.array(high), np.array(low)


def largest_error(
    result: np.ndarray, exact: tuple[np.ndarray, np.ndarray], kind: str, least_size: float = 0.0
) -> float:
    """Return the largest error, in ulps of the exact value; infinite where a value is not finite and should be."""
    return float(errors_in_ulps(result, exact, kind, least_size).max(initial=0.0))


def errors_in_ulps(
    result: np.ndarray, exact: tuple[np.ndarray, np.ndarray], kind: str, least_size: float = 0.0
) -> np.ndarray:
    """Return the errors in ulps of exact values; infinite ones where a value is not finite and should be."""
    bits, least = FORMATS[kind]
    high, low = exact
    known = np.isfinite(high)
    computed = result.astype(np.float64)
    limit = float(np.finfo(np.float64).max) if kind == "f64" else 2.0 ** (1 - least) * (2.0 - 2.0 ** (1 - bits))
    inside = known & (np.abs(high) <= limit)
    _, exponent = np.frexp(np.maximum(np.abs(high), least_size))
    ulp = np.ldexp(1.0, np.maximum(exponent - 1, least) - (bits - 1))
    with np.errstate(all="ignore"):
        errors = np.abs((computed - high) - low) / ulp
    return np.where(inside, np.nan_to_num(errors, nan=math.inf), 0.0)


def compiled(function: MathFunction, kind: str, target: str, count: int) -> mirlo.Executable:
    """Return an executable of one operator."""
    with make_context(), ir.Location.unknown():
        tensor = TensorType.of((count,), kind).to_mlir()
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get([tensor] * function.operands, [tensor]))
        with ir.InsertionPoint(main.add_entry_block()):
            func.ReturnOp([OPS[function.operator].make(*main.arguments)])
        result = mirlo.compile(module, target)
        assert isinstance(result, mirlo.Executable)
        return result


LEAST_EXPONENT = -24
"""Of the magnitudes that `largest_error_of_many` visits: below it, functions are 0, 1, their argument, or periodic."""
STEP, CHUNK = 13, 1 << 15
"""One in this many arguments of f32 is computed, this many in a call: they stay in a cache."""


def exponents_of(function: MathFunction) -> range:
    """Return the exponents of the arguments in which the largest error of f32 is searched."""
    return range(LEAST_EXPONENT, 17 if function.high == FAR else 7)


def largest_error_of_many(name: str, exponents: Sequence[int] = ()) -> tuple[float, float]:
    """Return the largest error of f32 on `llvm` over arguments of these exponents, and the argument that has it.

    The reference is the function in f64 on `llvm`, whose own error is 2e-9 units in the last place of f32 at most.
    """
    function = functions()[name]
    narrow, wide = (compiled(function, kind, "llvm", CHUNK) for kind in ("f32", "f64"))
    worst, place = 0.0, 0.0
    for exponent, start in product(exponents or exponents_of(function), range(0, 1 << 23, STEP * CHUNK)):
        bits = np.minimum(np.arange(start, start + STEP * CHUNK, STEP), (1 << 23) - 1) | (exponent + 127) << 23
        magnitudes = bits.astype(np.uint32).view(np.float32)
        for x in (magnitudes, -magnitudes):
            if x.max() <= function.low or x.min() >= function.high:
                continue
            x = np.clip(x, function.low, function.high)
            exact = np.asarray(wide(x.astype(np.float64)))
            errors = errors_in_ulps(np.asarray(narrow(x)), (exact, np.zeros(())), "f32", function.least)
            first = int(np.argmax(errors))
            if errors[first] > worst:
                worst, place = float(errors[first]), float(x[first])
    return worst, place


def measure_targets(
    targets: Sequence[str] = TARGETS, kinds: Sequence[str] = KINDS, count: int = COUNT, seed: int = 0,
    names: Sequence[str] = (),
) -> Iterator[tuple[str, str, str, float | None]]:  # fmt: skip
    """Yield function, kind, target and the largest error; None where the target does not compute the type."""
    for name in names or functions():
        function = functions()[name]
        for kind in kinds:
            operands = arguments_of(function, kind, count, seed)
            exact = exact_values(function, operands)
            for target in targets:
                try:
                    executable = compiled(function, kind, target, len(operands[0]))
                except MirloError:
                    yield name, kind, target, None
                    continue
                yield name, kind, target, largest_error(np.asarray(executable(*operands)), exact, kind, function.least)
