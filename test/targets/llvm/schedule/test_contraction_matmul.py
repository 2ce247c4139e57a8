"""Numbers of scheduled matrix products against numpy in double precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernels import Kernel
from onnx_models import F32, make_model, node

import mirlo
from mirlo.dialects.tir.compute import call, maximum, tanh


def matmul(
    transpose_a: bool = False, transpose_b: bool = False, epilogue: str = "", sum_type: str | None = None
) -> Any:
    """Emit `body(p, a, b, ...)` for a product with leading batch dims, and its epilogue."""

    def body(p: Any, a: Any, b: Any, *more: Any) -> Any:
        k = a.shape[-2] if transpose_a else a.shape[-1]
        m = a.shape[-1] if transpose_a else a.shape[-2]
        n = b.shape[-2] if transpose_b else b.shape[-1]
        batch = a.shape[:-2]
        shape = (*batch, m, n)

        def element(*axes: Any) -> Any:
            lead, (i, j, kk) = axes[: len(batch)], axes[len(batch) :]
            x = a.at(*lead, *((kk, i) if transpose_a else (i, kk)))
            y = b.at(*lead[len(lead) - b.rank + 2 :], *((j, kk) if transpose_b else (kk, j)))
            return x.cast(sum_type) * y.cast(sum_type) if sum_type else x * y

        c = p.reduce("add", shape, (k,), element, name="matmul")
        if "bias" in epilogue:
            before = c
            c = p.compute(shape, lambda *i: before.at(*i) + more[0][i[-1]], name="bias")
        if "residual" in epilogue:
            plain = c
            c = p.compute(shape, lambda *i: plain.at(*i) + more[-1].at(*i), name="residual")
        if "relu" in epilogue:
            raw = c
            c = p.compute(shape, lambda *i: maximum(raw.at(*i), 0.0), name="relu")
        if "tanh" in epilogue:
            linear = c
            c = p.compute(shape, lambda *i: tanh(linear.at(*i)), name="tanh")
        return c

    return body


def check(
    a: tuple[int, ...], b: tuple[int, ...], transpose_a: bool = False, transpose_b: bool = False, epilogue: str = "",
    element: str = "f32", machine: str | None = None, seed: int = 0,
) -> Kernel:  # fmt: skip
    generator = np.random.default_rng(seed)
    kinds = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    arrays = [generator.standard_normal(s).astype(kinds[element]) for s in (a, b)]
    x, y = (v.astype(np.float64) for v in arrays)
    want = (x.swapaxes(-1, -2) if transpose_a else x) @ (y.swapaxes(-1, -2) if transpose_b else y)
    if "bias" in epilogue:
        arrays.append(generator.standard_normal(want.shape[-1]).astype(kinds[element]))
        want = want + arrays[-1]
    if "residual" in epilogue:
        arrays.append(generator.standard_normal(want.shape).astype(kinds[element]))
        want = want + arrays[-1]
    want = np.maximum(want, 0) if "relu" in epilogue else want
    want = np.tanh(want) if "tanh" in epilogue else want
    kernel = Kernel(matmul(transpose_a, transpose_b, epilogue), [(v.shape, element) for v in arrays], machine)
    got = kernel(*arrays)
    tolerance = {"f32": 1e-5, "f64": 1e-13, "f16": 2e-3, "bf16": 1.6e-2}[element]
    scale = np.sqrt(x.shape[-1]) * tolerance
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=10 * tolerance, atol=4 * scale)
    assert kernel.rule == "contraction"
    return kernel


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4, 8), (8, 16)), ((1, 64), (64, 200)), ((2, 300), (300, 33)), ((3, 5), (5, 7)), ((33, 17), (17, 70)),
        ((40, 130), (130, 100)), ((64, 1), (1, 64)), ((1, 1), (1, 16)), ((70, 48), (48, 1)), ((9, 300), (300, 600)),
        ((1, 1), (1, 1)), ((2, 9, 20), (20, 40)), ((2, 3, 9, 20), (2, 3, 20, 18)), ((5, 1, 64), (5, 64, 33)),
    ],
)  # fmt: skip
def test_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check(a, b)


@pytest.mark.sample(6)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(21, 50, 37), (1, 40, 64), (64, 128, 96)])
def test_transposed(transpose_a: bool, transpose_b: bool, m: int, n: int, k: int) -> None:
    a = (k, m) if transpose_a else (m, k)
    b = (n, k) if transpose_b else (k, n)
    check(a, b, transpose_a, transpose_b)
    check((3, *a), (3, *b), transpose_a, transpose_b)


@pytest.mark.sample(2)
@pytest.mark.parametrize("epilogue", ["bias", "relu", "bias relu", "bias residual", "residual relu", "bias tanh"])
def test_epilogues(epilogue: str) -> None:
    check((29, 40), (40, 77), epilogue=epilogue)
    check((2, 29, 40), (40, 32), epilogue=epilogue)


@pytest.mark.parametrize("element", ["f64", "f16", "bf16"])
def test_other_floats(element: str) -> None:
    check((19, 33), (33, 45), element=element)
    check((19, 33), (45, 33), transpose_b=True, element=element, epilogue="bias")


@pytest.mark.sample(3)
@pytest.mark.parametrize("machine", ["avx2", "neon", "sse"])
@pytest.mark.parametrize("n", [3, 8, 31, 70])
def test_other_machines(machine: str, n: int) -> None:
    check((13, 40), (40, n), epilogue="bias relu", machine=machine)
    check((13, 40), (n, 40), transpose_b=True, machine=machine)


@pytest.mark.parametrize(("signed", "kind"), [("i8", np.int8), ("u8", np.uint8)])
def test_integers(signed: str, kind: Any) -> None:
    generator = np.random.default_rng(1)
    a = generator.integers(0, 100, (17, 50)).astype(kind)
    b = generator.integers(-100, 100, (50, 43)).astype(np.int8)
    kernel = Kernel(matmul(sum_type="i32"), [(a.shape, signed), (b.shape, "i8")])
    np.testing.assert_array_equal(kernel(a, b), a.astype(np.int32) @ b.astype(np.int32))
    assert kernel.rule == "contraction"


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed: int) -> None:
    generator = np.random.default_rng(seed)
    m, n, k = (int(v) for v in generator.integers(1, 71, 3))
    transpose_a, transpose_b = (bool(v) for v in generator.integers(0, 2, 2))
    batch = tuple(int(v) for v in generator.integers(1, 4, generator.integers(0, 3)))
    a = (*batch, *((k, m) if transpose_a else (m, k)))
    b = (*batch, *((n, k) if transpose_b else (k, n)))
    check(a, b, transpose_a, transpose_b, str(generator.choice(["", "bias", "residual relu"])), seed=seed)


@pytest.mark.sample(3)
@pytest.mark.parametrize("machine", [None, "avx2", "neon", "sse"])
@pytest.mark.parametrize("seed", range(3))
def test_few_rows_of_dot_products(machine: str | None, seed: int) -> None:
    """The lanes of as many sums as a tile has are added up together, each for its place."""
    generator = np.random.default_rng(seed)
    m, n, k = (int(generator.integers(1, most)) for most in (6, 40, 90))
    check((m, k), (n, k), transpose_b=True, element=("f32", "f64", "f32")[seed], machine=machine, seed=seed)
    kernel = Kernel(matmul(transpose_b=True, sum_type="i32"), [((m, k), "i32"), ((n, k), "i32")], machine)
    a, b = (generator.integers(-999, 999, shape).astype(np.int32) for shape in ((m, k), (n, k)))
    np.testing.assert_array_equal(kernel(a, b), a @ b.T)


def test_two_results() -> None:
    """The sums and a value computed from them are both returned."""

    def body(p: Any, a: Any, b: Any) -> Any:
        c = p.reduce("add", (20, 40), (30,), lambda i, j, k: a[i, k] * b[k, j])
        return c, p.compute((20, 40), lambda i, j: maximum(c[i, j], 0.0))

    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(s).astype(np.float32) for s in ((20, 30), (30, 40)))
    kernel = Kernel(body, [(a.shape, "f32"), (b.shape, "f32")])
    sums, positive = kernel(a, b)
    np.testing.assert_allclose(sums, a @ b, atol=1e-4)
    np.testing.assert_allclose(positive, np.maximum(a @ b, 0), atol=1e-4)
    assert kernel.rule == "contraction"


def test_epilogue_in_another_order() -> None:
    """The block after the product writes its transpose."""

    def body(p: Any, a: Any, b: Any) -> Any:
        c = p.reduce("add", (20, 40), (30,), lambda i, j, k: a[i, k] * b[k, j])
        return p.compute((40, 20), lambda j, i: c[i, j] * 2.0)

    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(s).astype(np.float32) for s in ((20, 30), (30, 40)))
    kernel = Kernel(body, [(a.shape, "f32"), (b.shape, "f32")])
    np.testing.assert_allclose(kernel(a, b), 2 * (a @ b).T, atol=1e-4)
    assert kernel.rule == "contraction"


def test_index_and_gather_in_epilogue() -> None:
    """The block after the product computes with its indices, and looks a value up."""

    def body(p: Any, a: Any, b: Any, table: Any) -> Any:
        c = p.reduce("add", (20, 40), (30,), lambda i, j, k: a[i, k] * b[k, j])
        return p.compute((20, 40), lambda i, j: c[i, j] + (i * 100 + j).cast("f32") + table[(i * j) % 7])

    generator = np.random.default_rng(3)
    a, b, table = (generator.standard_normal(s).astype(np.float32) for s in ((20, 30), (30, 40), (7,)))
    kernel = Kernel(body, [(a.shape, "f32"), (b.shape, "f32"), ((7,), "f32")])
    i, j = np.mgrid[:20, :40]
    np.testing.assert_allclose(kernel(a, b, table), a @ b + i * 100 + j + table[(i * j) % 7], rtol=1e-5, atol=1e-3)
    assert kernel.rule == "contraction"


def test_long_intrinsics_in_a_loop_over_rows() -> None:
    """The code of a sine is that of four exponentials: one row of a tile has it, and the others are a loop."""

    def body(name: str) -> Any:
        def product(p: Any, a: Any, b: Any) -> Any:
            c = p.reduce("add", (4, 16), (9,), lambda i, j, k: a[i, k] * b[k, j])
            return p.compute((4, 16), lambda i, j: call(name, c[i, j]))

        return product

    generator = np.random.default_rng(4)
    a, b = (generator.standard_normal(s).astype(np.float32) for s in ((4, 9), (9, 16)))
    for name, function, copies in (("sin", np.sin, 2), ("exp", np.exp, 8)):
        kernel = Kernel(body(name), [(a.shape, "f32"), (b.shape, "f32")], machine="avx2")
        np.testing.assert_allclose(kernel(a, b), function(a @ b), rtol=1e-4, atol=1e-5)
        assert kernel.text.count(f'"tir.{name}"') == copies


@pytest.mark.sample(4)
@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 100, 70), (3, 9, 33), (5, 5, 16), (1, 1, 100), (7, 1, 40), (15, 37, 5)])
def test_dot_products(m: int, n: int, k: int, element: str) -> None:
    """Few rows of two operands that are contiguous along the sum."""
    kernel = check((m, k), (n, k), transpose_b=True, epilogue="bias relu", element=element, machine="avx2")
    assert "dot = true" in kernel.schedule
    check((2, m, k), (2, n, k), transpose_b=True, element=element)


@pytest.mark.parametrize("machine", ["avx2", "neon"])
def test_dot_products_on_other_machines(machine: str) -> None:
    for m, n, k in [(1, 50, 70), (5, 9, 33), (1, 1, 3)]:
        check((m, k), (n, k), transpose_b=True, epilogue="bias", machine=machine)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("m", "n"), [(64, 1), (1, 64), (1, 1)])
def test_an_operand_of_one_element(m: int, n: int, element: str) -> None:
    for machine in ("avx2", "avx512"):
        check((m, 1), (n, 1), transpose_b=True, element=element, machine=machine)


def test_a_single_number() -> None:
    def body(p: Any, a: Any, b: Any) -> Any:
        return p.reduce("add", (), (77,), lambda k: a[k] * b[k])

    a, b = (np.random.default_rng(s).standard_normal(77).astype(np.float32) for s in (1, 2))
    kernel = Kernel(body, [((77,), "f32"), ((77,), "f32")])
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5)
    assert kernel.rule == "contraction"


@pytest.mark.parametrize(("m", "k", "n"), [(48, 64, 64), (37, 30, 21), (9, 3, 6), ("m", "k", "n")])
def test_columns_along_k_without_masks(m: int | str, k: int | str, n: int | str) -> None:
    """Squares of columns are transposed in registers; what squares leave is gathered where vectors have no masks."""
    nodes = [node("Transpose", "y", "t", perm=[1, 0]), node("MatMul", "x t", "z")]
    model = make_model(nodes, {"x": (F32, (m, k)), "y": (F32, (n, k))}, ["z"])
    executable = mirlo.compile(model, target="llvm{cpu=x86-64-v2}", cache=False)
    random = np.random.default_rng(0)
    rows, depth, columns = (37, 30, 21) if m == "m" else (m, k, n)
    x, y = (random.standard_normal((size, depth)).astype(np.float32) for size in (rows, columns))
    np.testing.assert_allclose(executable(x, y), x @ y.T, rtol=1e-4, atol=1e-5)
