"""The meanings of operations for 64-bit floats, with which a kernel runs on large numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.exact import double
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.kernel_definition import RoundSettings
from mirlo.passes.exact.memory import Array, GuardedBuffer
from mirlo.passes.exact.native import compile_function
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translator import Argument, KernelTranslator
from mirlo.passes.exact.values import FloatValue, IntValue
from mirlo.passes.exact.verdict import (
    COMPARED,
    DIFFERENT,
    EQUAL,
    NOT_NEEDED,
    SKIPPED,
    KernelVerdict,
    RangeRound,
)
from mirlo.passes.exact.verdict_cache import VerdictCache
from mirlo.runtime.cache import Cache
from mirlo.tools.verify.model import Verification
from mirlo.tools.verify.report import as_json, text_lines

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
Compute = Callable[[KernelTranslator, FloatValue], FloatValue | IntValue]


def _mapped(values: Array, compute: Compute, bits: int = 0) -> Array:
    """Return a function of 64-bit floats, in vectors of 4; integers of `bits`, if any."""
    module, arithmetic = ModuleText(is_inline=True), DoubleArithmetic()
    t = KernelTranslator(arithmetic, module, "mapped")
    count = len(values)
    source = t.buffer_argument(Argument("in", "f", 0, (count,)), (count,))
    target = t.buffer_argument(Argument("out", "i" if bits else "f", bits, (count,)), (count,))

    def step(index: IntValue, carried: list[FloatValue | IntValue]) -> list[FloatValue | IntValue]:
        x = t.load(source, index, 4)
        assert isinstance(x, FloatValue)
        t.store(compute(t, x), target, index)
        return []

    t.loop(t.index(0), t.index(count), t.index(4), [], step)
    t.f.finish()
    kind = np.dtype(f"i{bits // 8}") if bits else np.dtype(np.float64)
    buffers = [GuardedBuffer.of([values.astype(np.float64)]), GuardedBuffer.of([np.zeros(count, kind)])]
    compile_function(module, "mapped", t.arguments).call(buffers, {}, np.zeros(16, np.int64), False)
    (result,) = buffers[1].planes
    return result


def _numbers(kind: str) -> Array:
    """Return numbers of all sizes that a type has, its ends and ties between neighbours."""
    rng = np.random.default_rng(3)
    info = ml_dtypes.finfo(TYPES[kind])
    exponents = rng.uniform(np.log2(float(info.tiny)) + 1, np.log2(float(info.max)) - 1, 4000)
    drawn = np.exp2(exponents) * rng.choice([-1.0, 1.0], 4000)
    ties = (1 + (2 * np.arange(200) + 1) * float(info.eps) / 2) * rng.choice([-1.0, 2.0], 200)
    ends = [0.0, -0.0, np.inf, -np.inf, float(info.max), -float(info.tiny), 1.0, -1.5]
    return np.concatenate([drawn, ties, ends])


@pytest.mark.parametrize("kind", TYPES)
def test_bits_are_those_of_the_nearest_float(kind: str) -> None:
    values = _numbers(kind)
    width = np.dtype(TYPES[kind]).itemsize * 8
    found = _mapped(values, lambda t, x: t.arithmetic.to_bits(t.f, x, kind), width)
    np.testing.assert_array_equal(found, values.astype(TYPES[kind]).view(found.dtype))


@pytest.mark.parametrize("kind", TYPES)
def test_bits_stand_for_their_number(kind: str) -> None:
    """Also the numbers below the normal ones, infinities, and numbers whose sign only differs."""
    values = _numbers(kind)
    small = np.arange(1, 5) * float(ml_dtypes.finfo(TYPES[kind]).smallest_subnormal)
    rounded = np.concatenate([values, small, -small]).astype(TYPES[kind])
    width = rounded.dtype.itemsize * 8

    def compute(t: KernelTranslator, x: FloatValue) -> FloatValue:
        return t.arithmetic.from_bits(t.f, t.arithmetic.to_int(t.f, x, width, "fptosi"), kind)

    bits = rounded.view(f"i{width // 8}")
    if width == 64:  # integers that a double does not hold
        rounded = rounded[:0]
        bits = bits[:0]
    np.testing.assert_array_equal(_mapped(bits.astype(np.float64), compute), rounded.astype(np.float64))


def test_nan_has_bits_of_nan() -> None:
    found = _mapped(np.full(4, np.nan), lambda t, x: t.arithmetic.to_bits(t.f, x, "f32"), 32)
    assert np.isnan(found.view(np.float32)).all()


OTHERS = ("exp", "exp2", "expm1", "sigmoid", "abs", "fma", "fmuladd", "rsqrt")
"""Functions that are operations of the arithmetic, or composed of them."""
FUNCTIONS = [row.name for row in INTRINSICS.values() if row.operands == "float" and row.result == "same"]


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in OTHERS])
def test_each_function_of_floats_has_a_meaning(name: str) -> None:
    """Each intrinsic is the same function in vectors as alone, and is a number where floats are in its domain."""
    values = np.tile([0.25, 0.5, 0.75, 0.875], 2) + (1.0 if name == "acosh" else 0.0)

    def compute(t: KernelTranslator, x: FloatValue) -> FloatValue:
        return t.arithmetic.function(t.f, name, [x] * INTRINSICS[name].arity)

    found = _mapped(values, compute)
    assert np.isfinite(found).all() and (found[:4] == found[4:]).all()


@pytest.fixture(name="context")
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


SOFTMAX = """
func.func @main(%x: tensor<5x40xf32>) -> tensor<5x40xf32> {
  %y = "relax.softmax"(%x) {axis = 1 : i64} : (tensor<5x40xf32>) -> tensor<5x40xf32>
  return %y : tensor<5x40xf32>
}
"""


def _through_bits(pair: KernelPair) -> KernelPair:
    """Return the pair with results that are stored as bits, read as floats."""
    clone = pair.scheduled.clone()
    for op in [each for each in operations_in(clone) if each.name == "vector.store"]:
        value, kind = op.operands[0], op.operands[0].type
        with ir.InsertionPoint(op):
            integers = ir.VectorType.get(kind.shape, ir.IntegerType.get_signless(32))
            bits = ir.Operation.create("arith.bitcast", results=[integers], operands=[value])
            op.operands[0] = ir.Operation.create("arith.bitcast", results=[kind], operands=list(bits.results)).results[
                0
            ]
    return KernelPair(pair.definition, clone)


def _without_maxima(pair: KernelPair) -> KernelPair:
    clone = pair.scheduled.clone()
    for op in [each for each in operations_in(clone) if each.name == "arith.subf"]:
        op.results[0].replace_all_uses_with(op.operands[0])
    return KernelPair(pair.definition, clone)


def test_bits_of_floats_hide_no_overflow(context: None) -> None:
    """A kernel that reads bits of floats runs on large numbers, too: a softmax without its maximum is found."""
    ((_, pair),) = kernel_pairs(SOFTMAX, options="cpu=x86-64-v2")
    settings = RoundSettings(0)
    assert _through_bits(pair)._range_round(settings) == RangeRound(COMPARED)
    wrong = _through_bits(_without_maxima(pair))._range_round(settings)
    assert isinstance(wrong, KernelVerdict) and wrong.status == DIFFERENT


def test_a_kernel_without_exponentials_needs_no_large_numbers(context: None) -> None:
    ((_, pair),) = kernel_pairs(SOFTMAX.replace("softmax", "relu").replace("{axis = 1 : i64}", ""))
    assert pair.verify().ranges == RangeRound(NOT_NEEDED)


def test_a_verdict_shows_that_large_numbers_did_not_run(context: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation without a meaning for 64-bit floats is named in the verdict, its texts and its JSON."""
    ((_, pair),) = kernel_pairs(SOFTMAX)
    assert pair.verify().ranges == RangeRound(COMPARED) and not pair.verify().without

    def refuse(*operands: object) -> FloatValue:
        raise OutsideError("a function that is not known")

    monkeypatch.setattr(double.DoubleArithmetic, "exp2", refuse)
    ((_, pair),) = kernel_pairs(SOFTMAX)
    verdict = pair.verify()
    assert verdict.status == EQUAL and verdict.ranges == RangeRound(SKIPPED, "a function that is not known")
    found = "without large numbers: a function that is not known"
    verification = Verification("llvm", (verdict,), 0.0)
    assert all(found in text for text in (str(verdict), verdict.summary, "\n".join(text_lines(verification))))
    (row,) = as_json(verification)["kernels"]
    assert row["ranges"] == {"status": "skipped", "why": "a function that is not known"}


def test_a_kept_verdict_has_its_round_of_large_numbers(context: None, tmp_path: Path) -> None:
    ((_, pair),) = kernel_pairs(SOFTMAX)
    cache = VerdictCache(Cache(tmp_path), "")
    verdict = replace(pair.verify(), ranges=RangeRound(SKIPPED, "why"))
    cache.keep(verdict, cache.key(pair))
    assert cache.find(pair, cache.key(pair)) == verdict
