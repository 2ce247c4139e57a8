"""Every intrinsic on every element type of the llvm target, against its meaning."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.lower.formats import FORMATS
from mirlo.targets.llvm.processor import host_processor
from mirlo.test.conformance.harness import SCALARS, TILES, VECTORS, Compiled, Shape, undefined_symbols
from mirlo.test.conformance.precise import COUNT as PRECISE_COUNT
from mirlo.test.conformance.precise import TARGETS, functions, largest_error_of_many, measure_targets
from mirlo.test.conformance.table import PAGE, documented, documented_maxima, meanings
from mirlo.tools.conformance.arguments import intrinsic_arguments
from mirlo.tools.conformance.check import intrinsic_bound, intrinsic_reference
from mirlo.tools.conformance.errors import ulp_errors
from mirlo.tools.conformance.meanings import FLOAT, INTEGER, WIDE, wrapped
from mirlo.tools.conformance.samples import operands, sample

COUNT = 1 << 16
NARROW_ULP = 0.51
FLOAT_CASES = [(name, kind) for name in FLOAT for kind in FORMATS]
INT_KINDS = ("i8", "i16", "i32", "i64", "index")
OWN_TESTS = {"fma", "fmuladd", "nextafter", "ldexp"}


@pytest.fixture(autouse=True)
def _silent_numpy() -> Iterator[None]:
    """Silence numpy: references overflow and meet NaN intentionally."""
    with np.errstate(all="ignore"):
        yield


def test_every_intrinsic_has_a_meaning() -> None:
    assert set(FLOAT) | set(INTEGER) | OWN_TESTS == set(INTRINSICS)


@pytest.mark.sample(40)
@pytest.mark.parametrize(("name", "kind"), FLOAT_CASES)
def test_float(name: str, kind: str) -> None:
    meaning, row = FLOAT[name], INTRINSICS[name]
    arguments = operands(kind, row.arity, COUNT, meaning)
    got = Compiled(name, [kind] * row.arity, COUNT)(*arguments)
    reference = meaning.function(*(a.astype(WIDE) for a in arguments))
    if row.result == "bool":
        np.testing.assert_array_equal(got, reference)
        return
    errors = ulp_errors(got, reference, kind, meaning.least)
    if kind in meaning.within:
        errors = np.where(np.abs(arguments[0]) <= meaning.within[kind], errors, 0)
    worst = int(np.argmax(errors))
    bound = meaning.ulp.get(kind, NARROW_ULP)
    place = ", ".join(f"{float(a[worst])!r}" for a in arguments)
    found, wanted = float(got[worst]), float(reference[worst])
    assert errors[worst] <= bound, f"{name}({place}) = {found!r}, should be {wanted!r}: {errors[worst]} ulp"


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", INT_KINDS)
@pytest.mark.parametrize("name", INTEGER)
def test_integer(name: str, kind: str) -> None:
    count, arity = 1 << 12, INTRINSICS[name].arity
    element = dtype(kind).to_numpy()
    bits = 8 * element.itemsize
    rng = np.random.default_rng(3)
    info = np.iinfo(element)
    columns = [rng.integers(info.min, info.max, count, dtype=element, endpoint=True) for _ in range(arity)]
    for i, column in enumerate(columns):
        column[:6] = np.roll([0, -1, 1, info.min, info.max, bits], i)
        column[6 : count // 2] >>= rng.integers(0, bits, count // 2 - 6).astype(element)
    if name in ("shl", "shru", "shrs", "fixed_mul"):
        columns[-1][count // 4 :] = rng.integers(0, min(2 * bits, info.max), count - count // 4)
    got = Compiled(name, [kind] * arity, count)(*columns)
    expected = [wrapped(INTEGER[name](bits, *map(int, row)), bits) for row in zip(*columns, strict=True)]
    np.testing.assert_array_equal(got, np.array(expected, element))


@pytest.mark.parametrize("kind", FORMATS)
def test_nextafter(kind: str) -> None:
    x, y = operands(kind, 2, COUNT, FLOAT["atan"])
    got = Compiled("nextafter", [kind] * 2, COUNT)(x, y)
    expected = np.nextafter(x, y)
    both_nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    integer = np.dtype(f"u{FORMATS[kind].bits // 8}")
    same = got.view(integer) == expected.view(integer)
    assert (same | both_nan).all()


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("count_kind", ["i8", "i32", "i64", "index"])
def test_ldexp(kind: str, count_kind: str) -> None:
    x = sample(kind, COUNT, FLOAT["atan"])
    integer = dtype(count_kind).to_numpy()
    rng = np.random.default_rng(4)
    reach = min(np.iinfo(integer).max, 2500)
    n = rng.integers(-reach, reach, COUNT).astype(integer)
    n[::2] = rng.integers(-20, 20, COUNT // 2)
    n[:4] = [np.iinfo(integer).min, np.iinfo(integer).max, 0, 1]
    got = Compiled("ldexp", [kind, count_kind], COUNT)(x, n)
    reference = np.ldexp(x.astype(WIDE), np.clip(n, -9000, 9000).astype(np.int32))
    assert ulp_errors(got, reference, kind).max() <= 0.5


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FORMATS)
def test_fma(kind: str) -> None:
    meaning = FLOAT["atan"]
    x, y = operands(kind, 2, COUNT, meaning)
    z = sample(kind, COUNT, meaning, seed=5)
    # Near cancellation, the product must not have been rounded.
    z[COUNT // 2 :] = -(x[COUNT // 2 :] * y[COUNT // 2 :])
    got = Compiled("fma", [kind] * 3, COUNT)(x, y, z)
    if kind == "f64":
        expected = [_exact_fma(*map(float, row)) for row in zip(x, y, z, strict=True)]
        np.testing.assert_array_equal(got, np.array(expected))
        return
    reference = x.astype(WIDE) * y.astype(WIDE) + z.astype(WIDE)
    bound = 0.5 if kind == "f32" else NARROW_ULP
    errors = ulp_errors(got, reference, kind, meaning.least)
    assert errors[got != 0].max() <= bound
    assert (np.abs(reference[got == 0]) <= FORMATS[kind].smallest_normal).all()


@pytest.mark.parametrize("kind", FORMATS)
def test_fmuladd(kind: str) -> None:
    x, y, z = intrinsic_arguments("fmuladd", kind, COUNT)
    got = Compiled("fmuladd", [kind] * 3, COUNT)(x, y, z)
    reference, bound = intrinsic_reference("fmuladd", [x, y, z]), intrinsic_bound("fmuladd", kind)
    assert bound is not None
    errors = np.where(np.abs(reference) < FORMATS[kind].smallest_normal, 0, ulp_errors(got, reference, kind))
    assert errors.max() <= bound
    if host_processor().has_fma and kind == "f32":
        np.testing.assert_array_equal(got, Compiled("fma", [kind] * 3, COUNT)(x, y, z))


def _exact_fma(x: float, y: float, z: float) -> float:
    if np.isinf(z) and np.isfinite([x, y]).all():
        return z
    rounded = x * y + z
    if not np.isfinite([x, y, z]).all() or x == 0 or y == 0:
        return rounded
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else rounded
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


@pytest.mark.sample(32)
@pytest.mark.parametrize("name", INTRINSICS)
def test_shapes_agree(name: str) -> None:
    count = 1 << 9
    for kinds in _kinds_of(name, ("bf16", "f32"), ("i16", "index")):
        patterns = np.random.default_rng(6).integers(0, 256, (len(kinds), 8 * count), dtype=np.uint8)
        arguments = [row.view(dtype(kind).to_numpy())[:count] for row, kind in zip(patterns, kinds, strict=True)]
        expected = Compiled(name, kinds, count)(*arguments)
        for shape in (SCALARS, TILES):
            got = Compiled(name, kinds, count, shape)(*arguments)
            np.testing.assert_array_equal(_comparable(got), _comparable(expected))


def _comparable(values: np.ndarray) -> np.ndarray:
    """Return the bits of values, those of NaN all alike: its sign and payload are not part of any meaning."""
    if not np.issubdtype(values.dtype, np.integer) and values.dtype != bool:
        values = np.where(np.isnan(values.astype(np.float64)), np.array(np.nan, values.dtype), values)
    return values.view(np.uint8)


def _kinds_of(name: str, floats: Iterable[str] = FORMATS, ints: Iterable[str] = INT_KINDS) -> list[list[str]]:
    """Element types of the operands, for a test over all intrinsics."""
    row = INTRINSICS[name]
    if row.operands == "float_int":
        return [[kind, "i32"] for kind in floats]
    return [[kind] * row.arity for kind in (ints if row.operands == "int" else floats)]


@pytest.mark.sample(48)
@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF")
@pytest.mark.parametrize("shape", [SCALARS, VECTORS], ids=["scalars", "vectors"])
@pytest.mark.parametrize("name", INTRINSICS)
def test_code_calls_nothing(name: str, shape: Shape, tmp_path: Path) -> None:
    for kinds in _kinds_of(name):
        compiled = Compiled(name, kinds, 1 << 6, shape, keep_object=True)
        assert undefined_symbols(compiled.object_file(tmp_path / "code.o")) == []


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert meanings() in page, "run python -m mirlo.test.conformance.table"
    pytest.importorskip("mpmath")
    assert {name for name, _, _ in documented(page)} == set(functions())
    assert set(documented_maxima(page)) == {name for name, each in functions().items() if each.operands == 1}


def test_errors_of_f32_on_the_page_are_within_their_goals() -> None:
    listed = documented(PAGE.read_text(encoding="utf-8"))
    by_library, special = (
        ("exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "sigmoid", "power"),
        ("erfinv", "lgamma"),
    )
    on_llvm = {name: error for (name, kind, target), error in listed.items() if (kind, target) == ("f32", "llvm")}
    assert max(error for name, error in on_llvm.items() if name not in special) <= 2.5
    assert max(listed[name, "f32", "c"] for name in by_library) <= 1.0


def test_the_page_names_what_exceeds_the_goal() -> None:
    """Each function of f32 on `llvm` with an error above 2.5 for some argument is named with it, and no other one."""
    page = PAGE.read_text(encoding="utf-8")
    statement = page[page.index("The goals for f32 are") : page.index("are not used.")]
    named = {name: float(error) for name, error in re.findall(r"`(\w+)` \((\d+\.\d+)", statement)}
    assert named == {name: worst for name, (worst, _) in documented_maxima(page).items() if worst > 2.5}


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", [name for name, each in functions().items() if each.operands == 1])
def test_many_arguments_are_within_the_largest_errors_of_the_page(name: str) -> None:
    worst, place = documented_maxima(PAGE.read_text(encoding="utf-8"))[name]
    exponents = [*range(-3, 4), int(np.frexp(place)[1]) - 1]
    assert largest_error_of_many(name, exponents)[0] <= 1.02 * worst + 0.02


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_errors_are_those_of_the_page(kind: str, target: str) -> None:
    """Other arguments than those of the page may show a little more, and what its second table has for more of them."""
    pytest.importorskip("mpmath")
    page = PAGE.read_text(encoding="utf-8")
    listed, maxima = documented(page), documented_maxima(page) if kind == "f32" and target != "c" else {}
    if (kind, target) == ("bf16", "llvm") and host_processor().has("avx512bf16"):
        listed["sigmoid", kind, target] = 66.0  # as the page says of a processor with such an instruction
    measured = [each for each in measure_targets([target], [kind], PRECISE_COUNT // 2, seed=1) if each[-1] is not None]
    limits = {
        name: max(1.25 * listed[name, kind, target] + 0.1, 1.1 * maxima.get(name, (0.0, 0.0))[0])
        for name, *_ in measured
    }
    wrong = {name: worst for name, *_, worst in measured if worst > limits[name]}
    assert not wrong and {name for name, *_ in measured} == {key[0] for key in listed if key[1:] == (kind, target)}
