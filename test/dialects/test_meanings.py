"""What classes of operators say they mean, against oracles that are written independently of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from mirlo.dialects.core.attributes import ElementType
from mirlo.dialects.core.dtypes import DTYPES, dtype
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.array_meanings import non_max_suppression
from mirlo.tools.conformance import check, special
from mirlo.tools.conformance.case import TABLE, TOLERANCE, OperatorCase, wide
from mirlo.tools.conformance.errors import WIDE, relative_error


def _solved(function: Callable[[float], float], y: float, low: float, high: float) -> float:
    """Return where a function that grows has a value, by bisection."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < y else (low, middle)
    return low


def _of_one(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[float], float]:
    return lambda x: float(function(np.array([x], WIDE))[0])


BY_NUMBERS: dict[str, Callable[..., float]] = {
    "exp2": lambda x: 2.0**x,
    "expm1": math.expm1,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "rsqrt": lambda x: x**-0.5,
    "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x),
    "erfc": math.erfc,
    "erfinv": lambda x: _solved(math.erf, x, -4.0, 4.0),
    "lgamma": math.lgamma,
    "digamma": _of_one(special.digamma),
    **{f"bessel_{name}": _of_one(getattr(special, name)) for name in ("j0", "j1", "i0", "i0e", "i1", "i1e")},
    "trunc": math.trunc,
    "square": lambda x: x * x,
    "isfinite": math.isfinite,
    "floor_divide": lambda x, y: math.floor(x / y),
    "mod": lambda x, y: x - y * math.floor(x / y),
    "fmod": math.fmod,
    "atan2": math.atan2,
    "not_equal": lambda x, y: x != y,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x, approximate: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "clip": lambda x, min, max: x,
    "cast": lambda x, dtype, saturate: x,
}
"""Functions of Python floats for the operators that ONNX has not."""
INTEGERS = ("shift_left", "shift_right")
FRACTIONS = ("requantize", "rescale")
OPERATORS = sorted(name for name, op in OPS.items() if Trait.ELEMENTWISE in op.TRAITS)


def drawn(cls: Any, kind: Any) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    count = len(cls._operand_layout.fields)
    ranges = [cls.DOMAIN[min(i, len(cls.DOMAIN) - 1)] for i in range(count)]
    if kind == np.bool_:
        return [random.integers(0, 2, 64).astype(bool) for _ in range(count)]
    return [random.uniform(low, high, 64).astype(kind) for low, high in ranges]


def defaults(cls: Any) -> dict[str, Any]:
    return {name: declared.default for name, declared in cls._attributes.items()}


@pytest.mark.parametrize("name", [name for name in OPERATORS if OPS[name].ONNX is not None])
def test_the_operator_of_onnx_means_the_same(name: str) -> None:
    cls = OPS[name]
    kinds = getattr(cls, "KINDS", ("float",))
    kind, code = (
        (np.float64, TensorProto.DOUBLE)
        if "float" in kinds
        else (np.int32, TensorProto.INT32)
        if "int" in kinds
        else (np.bool_, TensorProto.BOOL)
    )
    arrays = drawn(cls, kind)
    codes = [code] * len(arrays)
    if name == "where":
        arrays[0], codes[0] = arrays[0] > 0, TensorProto.BOOL
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(cls.ONNX.operator, names, ["y"], **defaults(cls))
    inputs = [helper.make_tensor_value_info(n, c, [64]) for n, c in zip(names, codes, strict=True)]
    output = helper.make_tensor_value_info("y", 0, None)
    output.ClearField("type")
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, [output]), opset_imports=[helper.make_opsetid("", 21)], ir_version=9
    )
    (wanted,) = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    np.testing.assert_allclose(np.asarray(cls.meaning(*arrays, **defaults(cls))), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", sorted(BY_NUMBERS.keys() - {"cast"}))
def test_functions_of_numbers(name: str) -> None:
    cls = OPS[name]
    arrays = drawn(cls, np.float64)
    wanted = [BY_NUMBERS[name](*map(float, row), **defaults(cls)) for row in zip(*arrays, strict=True)]
    np.testing.assert_allclose(cls.meaning(*arrays, **defaults(cls)), wanted, rtol=1e-12, atol=1e-12)


def test_each_operator_has_an_oracle() -> None:
    assert [
        n for n in OPERATORS if OPS[n].ONNX is None and n not in BY_NUMBERS and n not in (*INTEGERS, *FRACTIONS)
    ] == []


def test_requantize_rounds_fractions() -> None:
    random = np.random.default_rng(9)
    x = random.integers(-9000, 9000, 64).astype(np.int32)
    real = [Fraction(int(n), 1 << 20) for n in random.choice([1 << 13, 12345, 54321, 65536], 64)]
    high = np.array([float(value) for value in real], np.float32)
    shift = np.float32(12582912 + 17)
    addend = (random.integers(-4, 4, 64) / 8).astype(np.float32)
    zero = np.zeros((), np.float32)
    found = OPS["requantize"].meaning(
        x, high, zero, shift, zero, addend, zero_point=-3, min=-99, max=90, dtype=DTYPES["i8"]
    )
    wanted = [
        min(max(round(int(n) * value + 17 + Fraction(float(more))) - 3, -99), 90)
        for n, value, more in zip(x, real, addend, strict=True)
    ]
    assert found.tolist() == wanted
    assert [n for n in OPERATORS if OPS[n].meaning is None] == []


@pytest.mark.parametrize("double_round", [False, True])
def test_rescale_rounds_fractions(double_round: bool) -> None:
    random = np.random.default_rng(11)
    x = random.integers(-(1 << 24), 1 << 24, 256).astype(np.int32)
    multiplier = random.choice([1 << 30, (1 << 31) - 1, 1 << 29, -(1 << 30), 1234567891], 256).astype(np.int32)
    shift = random.integers(1, 63, 256).astype(np.int32)
    shift[:64] = random.integers(30, 34, 64)
    computed = OPS["rescale"].meaning(
        x, multiplier, shift, input_zero=7, zero_point=-3, double_round=double_round, dtype=DTYPES["i8"]
    )
    expected = []
    for value, factor, count in zip((x - 7).tolist(), multiplier.tolist(), shift.tolist(), strict=True):
        away = 0 if not double_round or count <= 31 else 1 << 30 if value >= 0 else -(1 << 30)
        scaled = math.floor(Fraction(value * factor + away, 1 << count) + Fraction(1, 2))
        expected.append(min(max(scaled - 3, -128), 127))
    assert computed.tolist() == expected


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint8])
@pytest.mark.parametrize("name", ["divide", "power", "shift_left", "shift_right"])
def test_integers_at_the_edges(name: str, kind: Any) -> None:
    """Divisors of 0 and -1, negative exponents, counts beyond the width: as exact integers have it, then wrapped."""
    info = np.iinfo(kind)
    values = [info.min, -3, -1, 0, 1, 2, 5, info.max] if info.min else [0, 1, 2, 5, 200, info.max]
    others = [v for v in values if v < 40] if name != "divide" else values
    x, y = (array.reshape(-1).astype(kind) for array in np.meshgrid(values, others, indexing="ij"))
    exact = {"divide": _divided, "power": _raised, "shift_left": _left, "shift_right": _right}[name]
    wanted = [_wrapped(exact(int(a), int(b), info.bits), info) for a, b in zip(x, y, strict=True)]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(OPS[name].meaning(x, y)).astype(kind), wanted)


def _divided(a: int, b: int, bits: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


def _raised(a: int, b: int, bits: int) -> int:
    return a**b if b >= 0 else a ** (-b) if abs(a) == 1 else 0


def _left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def _right(a: int, b: int, bits: int) -> int:
    return a >> b if 0 <= b < bits else -1 if a < 0 else 0


def _wrapped(value: int, info: Any) -> int:
    return (value - int(info.min)) % (1 << info.bits) + int(info.min)


def _meaning(cls: Any, case: OperatorCase) -> tuple[np.ndarray, ...]:
    """Return what the class of an operator makes of a case; nothing where it leaves it to targets."""
    absent = len(cls._operand_layout.fields) - len(case.operands)
    is_type = {name for name, declared in cls._attributes.items() if isinstance(declared, ElementType)}
    given = {name: dtype(str(value)) if name in is_type else value for name, value in case.attributes.items()}
    found = cls.meaning(*case.operands, *[None] * absent, **{**defaults(cls), **given})
    results = found if isinstance(found, tuple) else (found,)
    return tuple(np.asarray(result) for result in results if result is not None)


def _differs(found: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    if found.shape != expected.shape:
        return True
    if found.dtype.kind in "biu":
        return bool((wide(found) != wide(expected.astype(found.dtype))).any())
    return relative_error(wide(found), expected) > tolerance


def test_operators_mean_what_their_cases_expect() -> None:
    """What constants are folded by agrees with what targets are checked by, for each operator and element type."""
    check.names()  # fills the table
    wrong, count = [], 0
    for name, cls in OPS.items():
        for kind in DTYPES if getattr(cls, "meaning", None) is not None else ():
            for case in TABLE.cases(name, kind):
                with np.errstate(all="ignore"):
                    results = _meaning(cls, case)
                count += bool(results)
                tolerance = max(case.tolerance, TOLERANCE.get(kind, TOLERANCE["f32"]))
                assert not results or len(results) == len(case.expected)
                if any(map(_differs, results, case.expected, [tolerance] * len(results))):
                    wrong.append(f"{name} of {kind}")
    assert count > 900
    assert wrong == []


def test_the_table_of_selected_boxes_has_room_for_all_images_and_classes() -> None:
    boxes = np.array([[[0.0, 0, 1, 1], [2, 2, 3, 3]]] * 2, np.float32)
    scores = np.array([[[0.9, 0.8]] * 3] * 2, np.float32)
    limit, overlap = np.array(5), np.array(0.5, np.float32)
    selected, count = non_max_suppression(boxes, scores, limit, overlap, None, most=[2, 3], center=False)
    every = [(image, number, box) for image in range(2) for number in range(3) for box in range(2)]
    assert selected.shape == (2 * 3 * 2, 3) and int(count) == 12 and [tuple(row) for row in selected.tolist()] == every
    single = non_max_suppression(boxes, scores, limit, overlap, np.array(0.85), most=[2, 3], center=False)
    assert int(single[1]) == 6 and single[0][:6].tolist() == [list(row) for row in every if row[2] == 0]


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("select_last", [False, True])
def test_positions_of_equal_extremes(name: str, axis: int, select_last: bool) -> None:
    """Of several equal extremes along an axis the first is taken, or the last."""
    x = np.random.default_rng(5).integers(0, 3, (4, 6, 5)).astype(np.float32)
    best = x.max(axis, keepdims=True) if name == "argmax" else x.min(axis, keepdims=True)
    ranks = np.arange(x.shape[axis]).reshape([-1 if i == axis % 3 else 1 for i in range(3)])
    places = np.where(x == best, ranks, -1 if select_last else 99)
    expected = places.max(axis) if select_last else places.min(axis)
    for keepdims in (False, True):
        found = OPS[name].meaning(x, axis=axis, keepdims=keepdims, select_last=select_last)
        np.testing.assert_array_equal(found, np.expand_dims(expected, axis) if keepdims else expected, strict=True)
