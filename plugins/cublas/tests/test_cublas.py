"""Matrix products by cuBLASLt: which matches are taken, the reasons for others, and the calls, with fake libraries."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cublas import FakeCublas
from mirlo_cublas.native import library, products
from mirlo_cublas.native.library import CUBLAS, CuBlasError
from mirlo_cublas.plan import MatrixProduct

import mirlo
from mirlo import R
from mirlo.extend.nvidia import DeviceState
from mirlo.extend.ops import ir, make_context
from mirlo.extend.runtime import Executable, ParameterStore
from mirlo.testing.nvidia import gpu, library_loading, pool, read, wheels
from mirlo.testing.placement import Problem, Targets, choose, decision_lines, report, survey
from mirlo.testing.ptx.driver import EmulatedDriver, fake_driver

TARGET = ["cublas", "nvvm{chip=sm_80}"]
RNG = np.random.default_rng(0)
W = RNG.standard_normal((32, 48), np.float32) / 4
V = RNG.standard_normal((48, 24), np.float32) / 4
B = RNG.standard_normal(48, np.float32)
U = RNG.standard_normal((3, 32, 48), np.float32) / 4


@pytest.fixture
def driver() -> Iterator[EmulatedDriver]:
    with fake_driver() as made:
        yield made


@pytest.fixture
def lt(driver: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    made = FakeCublas(driver)
    monkeypatch.setattr(CUBLAS, "_loaded", made)
    return made


@mirlo.script
def layers(x: R.Tensor[(2, 20, 32), R.f32]):
    y = R.relu(R.matmul(x, R.const(W)) + R.const(B))
    return R.softmax(R.matmul(y, R.const(V)))


def expected(x: np.ndarray) -> np.ndarray:
    z = np.maximum(x @ W + B, 0) @ V
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.sample(0)
def test_layers(driver: Any, lt: FakeCublas) -> None:
    compiled = mirlo.compile(layers, target=TARGET, cache=False)
    (external,) = compiled.artifact.externals
    (function,) = read(external.data, MatrixProduct)
    assert function.steps == (
        MatrixProduct(0, 3, 4, 40, 48, 32, "f32", bias=2, activation="relu"), MatrixProduct(4, 5, 1, 40, 24, 48, "f32")
    )  # fmt: skip
    for seed in range(3):
        (x,) = compiled.random_inputs(seed).values()
        np.testing.assert_allclose(compiled(x), expected(x), rtol=1e-4, atol=1e-5)
    first = lt.products[0]
    assert first["operation"][7] == 2 | 4 and (first["operation"]["compute"], first["operation"]["scale"]) == (68, 0)
    sizes = [(kind["rows"], kind["columns"], kind["leading"]) for kind in first["matrices"]]
    assert sizes == [(48, 32, 48), (32, 40, 32), (48, 40, 48)]
    # The work of the library is part of the graph: recorded with the second call.
    assert driver.calls.count("cuStreamBeginCapture") == 1 and driver.calls.count("cuGraphLaunch") == 2
    np.testing.assert_allclose(compiled.on_device(x).numpy(), expected(x), rtol=1e-4, atol=1e-5)
    assert len(compiled.profile(x, repeats=1)) == 2
    del compiled
    gc.collect()
    pool(0).trim()
    assert not driver.memory and not lt.made, "all is given back"


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True), (True, True)])
def test_descriptors(driver: Any, lt: FakeCublas, dtype: str, left: bool, right: bool) -> None:
    """Each form of a product, computed from its descriptors."""
    kind = np.dtype({"f32": "f4", "f16": "f2", "f64": "f8"}.get(dtype, "V2"))
    if dtype == "bf16":
        import ml_dtypes

        kind = np.dtype(ml_dtypes.bfloat16)
    a, b = (RNG.standard_normal(shape).astype(kind) for shape in ((3, 5, 7), (3, 7, 4)))
    bias = RNG.standard_normal(4).astype(kind)
    held = [np.ascontiguousarray(x.swapaxes(1, 2) if transposed else x) for x, transposed in ((a, left), (b, right))]
    product = MatrixProduct(0, 1, 2, 5, 4, 7, dtype, 3, "gelu", batch=3, transposed_a=left, transposed_b=right)
    call = products.ProductCall(product)
    d = np.zeros((3, 5, 4), kind)
    memory = [x.__array_interface__["data"][0] for x in (*held, d, bias)]
    with gpu(0).entered():
        place = DeviceState(gpu(0), CUBLAS.open_handle(), CUBLAS.close_handle)
        call.start(place, memory.__getitem__, stream=5)
    driver.streams.run(5)
    z = a.astype("f8") @ b.astype("f8") + bias.astype("f8")
    wanted = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(d.astype("f8"), wanted, rtol=0.02 if kind.itemsize == 2 else 1e-5, atol=1e-2)
    call.release()
    place.release()


@mirlo.script
def declined(
    x: R.Tensor[(20, 32), R.f32],
    y: R.Tensor[(4, 32), R.f32],
    v: R.Tensor[(32,), R.f32],
    t: R.Tensor[(2, 3, 20, 32), R.f32],
):
    exact = R.gelu(R.matmul(x, R.const(W)))
    small = R.matmul(y, R.const(W))
    return exact, small, R.matmul(x, v), R.matmul(t, R.const(U))


def test_what_is_not_taken(driver: Any, lt: FakeCublas) -> None:
    compiled = mirlo.compile(declined, target=TARGET, cache=False)
    (external,) = compiled.artifact.externals
    (function,) = read(external.data, MatrixProduct)
    assert [product.activation for product in function.steps] == [""], "gelu by erf is left to Mirlo's kernels"


def module(kinds: list[str], body: str, out: str) -> Any:
    """Return a module of a body in which %0, %1 ... are tensors of these types."""
    arguments = ", ".join(f"%{i}: tensor<{kind}>" for i, kind in enumerate(kinds))
    return ir.Module.parse(f"func.func @main({arguments}) -> tensor<{out}> {{\n{body}\n}}")


def agrees(kinds: list[str], body: str, out: str, target: Any = TARGET, tolerance: float = 1e-4) -> MatrixProduct:
    """Compare the library's result with the CPU's; return the only product of the plan."""
    with make_context():
        compiled = mirlo.compile(module(kinds, body, out), target=target, cache=False)
        here = mirlo.compile(module(kinds, body, out), target="llvm", cache=False)
    inputs = [
        (x if x.dtype.kind in "iu" else x.astype("f4") / 2).astype(x.dtype) for x in compiled.random_inputs().values()
    ]
    found, wanted = (model(*inputs).astype(np.float64) for model in (compiled, here))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()))
    assert not compiled.artifact.kernels or len(compiled.artifact.kernels) == 1, "nothing is left to kernels"
    (step,) = (step for e in compiled.artifact.externals for f in read(e.data, MatrixProduct) for step in f.steps)
    return step


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("order", ["bias first", "added first", "alone"])
def test_a_residual_is_added(driver: Any, lt: FakeCublas, dtype: str, order: str) -> None:
    """The addition of a transformer's residual is part of the product's call."""
    x, w, y, b = (f"{shape}x{dtype}" for shape in ("40x32", "32x48", "40x48", "48"))
    t, u = f"tensor<{y}>", f"tensor<{b}>"
    lines = [f'%p = "relax.matmul"(%0, %1) : (tensor<{x}>, tensor<{w}>) -> {t}']
    others = {"bias first": ("%3", "%2"), "added first": ("%2", "%3"), "alone": ("%2",)}[order]
    last = "%p"
    for number, other in enumerate(others):
        lines.append(f'%s{number} = "relax.add"({last}, {other}) : ({t}, {u if other == "%3" else t}) -> {t}')
        last = f"%s{number}"
    kinds = [x, w, y, b] if len(others) > 1 else [x, w, y]
    step = agrees(kinds, "\n".join([*lines, f"return {last} : {t}"]), y, tolerance=2e-2 if dtype != "f32" else 1e-4)
    assert step.added is not None and (step.bias is None) == (order == "alone")
    assert lt.products[0]["operation"][7] == (1 if order == "alone" else 4)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("left", "right", "flags", "shared"), [
    ("3x20x32", "3x32x48", "", (False, False)), ("2x32x20", "32x48", "transpose_lhs = true", (False, True)),
    ("20x32", "3x32x48", "", (True, False)), ("2x3x20x32", "2x3x48x32", "transpose_rhs = true", (False, False)),
    ("1x20x32", "3x32x48", "", (True, False)),
])  # fmt: skip
def test_batches(driver: Any, lt: FakeCublas, left: str, right: str, flags: str, shared: tuple[bool, bool]) -> None:
    dims = max(left.split("x")[:-2], right.split("x")[:-2], key=len) if left[0] != "1" else ["3"]
    out = "x".join([*dims, "20", "48"]) + "xf32"
    a, b = (f"tensor<{shape}xf32>" for shape in (left, right))
    body = f'%p = "relax.matmul"(%0, %1) {{{flags}}} : ({a}, {b}) -> tensor<{out}>\nreturn %p : tensor<{out}>'
    step = agrees([f"{left}xf32", f"{right}xf32"], body, out)
    assert (step.shared_a, step.shared_b) == shared


@pytest.mark.sample(2)
@pytest.mark.parametrize(("dtype", "out", "target"), [
    ("f16", "f32", "cublas"), ("bf16", "f32", "cublas"), ("i8", "i32", "cublas"), ("f8E4M3FN", "f32", "cublas{f8}"),
])  # fmt: skip
def test_results_of_another_type(driver: Any, lt: FakeCublas, dtype: str, out: str, target: str) -> None:
    a, b, y = f"tensor<32x64x{dtype}>", f"tensor<48x64x{dtype}>", f"tensor<32x48x{out}>"
    body = (
        f'%p = "relax.matmul"(%0, %1) {{transpose_rhs = true, out_dtype = {out}}} : ({a}, {b}) -> {y}\nreturn %p : {y}'
    )
    step = agrees([f"32x64x{dtype}", f"48x64x{dtype}"], body, f"32x48x{out}", [target, "nvvm{chip=sm_80}"], 1e-3)
    assert step.result == out and lt.products[0]["operation"]["compute"] == (72 if dtype == "i8" else 68)


DECLINED = {
    "e5m2": (
        "32x64xf8E5M2",
        "48x64xf8E5M2",
        "32x48xf32",
        "transpose_rhs = true",
        "cublas{f8}",
        "no two factors of e5m2",
    ),
    "f8": (
        "32x64xf8E4M3FN",
        "48x64xf8E4M3FN",
        "32x48xf32",
        "transpose_rhs = true",
        "cublas",
        "need the option cublas{f8}",
    ),
    "bytes": ("32x64xi8", "64x48xi8", "32x48xi32", "", "cublas", "8-bit operands must be contiguous along K"),
    "odd bytes": ("32x63xi8", "48x63xi8", "32x48xi32", "transpose_rhs = true", "cublas", "multiples of 4"),
    "unsigned": ("32x64xui8", "48x64xi8", "32x48xi32", "transpose_rhs = true", "cublas", "factors of one type"),
    "part of a batch": (
        "2x3x20x32xf32",
        "3x32x48xf32",
        "2x3x20x48xf32",
        "",
        "cublas",
        "as many matrices as the result",
    ),
    "small": ("4x32xf32", "32x48xf32", "4x48xf32", "", "cublas", "too small to be worth a call"),
}


@pytest.mark.parametrize("name", DECLINED)
def test_reasons(name: str) -> None:
    left, right, out, flags, target, why = DECLINED[name]
    a, b, y = (f"tensor<{kind}>" for kind in (left, right, out))
    flags = ", ".join(filter(None, [flags, f"out_dtype = {out.split('x')[-1]}"]))
    body = f'%p = "relax.matmul"(%0, %1) {{{flags}}} : ({a}, {b}) -> {y}\nreturn %p : {y}'
    with make_context():
        told = "\n".join(report(survey(module([left, right], body, out), [target, "nvvm{chip=sm_80}"]), attempts=True))
    assert why in told, told


def test_placement_by_cost(driver: Any, lt: FakeCublas) -> None:
    """A large product is worth a call, the small one is not."""
    large = RNG.standard_normal((512, 512), np.float32) / 20

    @mirlo.script
    def both(x: R.Tensor[(512, 512), R.f32], y: R.Tensor[(16, 16), R.f32]):
        return R.matmul(x, R.const(large)), R.matmul(y, y)

    compiled = mirlo.compile(both, target=TARGET, cache=False, placement="estimated")
    found = [read(external.data, MatrixProduct) for external in compiled.artifact.externals]
    assert [p.n for functions in found for function in functions for p in function.steps] == [512]


@pytest.mark.sample(0)
def test_placement_by_cost_depends_on_the_chip(lt: FakeCublas) -> None:
    """Large products are expected to be faster in the library, a row by a matrix is not."""
    for chip in ("sm_80", "sm_89", "sm_90a", "sm_100"):
        for size, best in (("4096x4096", "cublas, nvvm"), ("128x128", "all on nvvm")):
            kind = f"tensor<{size}xf16>"
            text = f"""func.func @main(%x: {kind}) -> {kind} {{
              %0 = "relax.matmul"(%x, %x) : ({kind}, {kind}) -> {kind}
              return %0 : {kind}
            }}"""
            targets = Targets.parse(["cublas", f"nvvm{{chip={chip}}}"])
            with make_context():
                problem = Problem(ir.Module.parse(text), ParameterStore(), targets, 1, lambda *_: None)
                assert choose(problem, "estimated").best == best


def test_placement_tells_why(lt: FakeCublas) -> None:
    small, large = "tensor<512x512xf16>", "tensor<8192x8192xf16>"
    text = f"""func.func @main(%x: {small}, %y: {large}) -> ({small}, {large}) {{
      %0 = "relax.matmul"(%x, %x) : ({small}, {small}) -> {small}
      %1 = "relax.matmul"(%y, %y) : ({large}, {large}) -> {large}
      return %0, %1 : {small}, {large}
    }}"""
    with make_context():
        targets = Targets.parse(["cublas", "nvvm{chip=sm_90a}"])
        decision = choose(Problem(ir.Module.parse(text), ParameterStore(), targets, 1, lambda *_: None), "estimated")
    assert [region.best for region in decision.regions] == ["nvvm", "cublas"]
    told = "\n".join(decision_lines(decision))
    assert (
        "on cublas: 2048 tiles of 256 x 128 in 16 rounds" in told and "on nvvm: 64 tiles of 64 x 64 in 1 round" in told
    )


def test_placement_by_measured_cost_asks_the_device(
    driver: Any, lt: FakeCublas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of the device are compared, not those of a caller that waits for copies."""
    asked: list[bool] = []

    def microseconds(self: Any, *inputs: Any, repeats: int = 10) -> float:
        asked.append(bool(self.artifact.externals))
        return 10.0 if self.artifact.externals else 20.0

    monkeypatch.setattr(Executable, "device_microseconds", microseconds)
    compiled = mirlo.compile(layers, target=TARGET, cache=False, placement="measured")
    assert compiled.artifact.externals and len(set(asked)) == 2


def test_the_library_refuses(driver: Any, lt: FakeCublas) -> None:
    lt.refuses = True
    compiled = mirlo.compile(layers, target=TARGET, cache=False)
    x = np.zeros((2, 20, 32), np.float32)
    for call in (compiled, compiled.on_device):
        with pytest.raises(mirlo.MirloError, match="cuBLASLt has no algorithm for 40 x 32 x 48 in f32"):
            call(x)
    lt.refuses = False
    np.testing.assert_allclose(compiled(x), expected(x), rtol=1e-4)


def test_it_works_beside_nvvm_only(lt: FakeCublas) -> None:
    compiled = mirlo.compile(layers, target=["cublas", "llvm"], cache=False)
    with pytest.raises(mirlo.MirloError, match="let target nvvm compile the rest of the model"):
        compiled(np.zeros((2, 20, 32), np.float32))


def test_without_the_library(driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library_loading, "find_library", lambda name: None)
    monkeypatch.setattr(CUBLAS, "_loaded", None)
    compiled = mirlo.compile(layers, target=TARGET, cache=False)
    compiled.save(tmp_path / "layers.mirlo")  # that needs no library
    with pytest.raises(mirlo.MirloError, match="cuBLASLt is not on this machine: pip install nvidia-cublas"):
        mirlo.load(tmp_path / "layers.mirlo")(np.zeros((2, 20, 32), np.float32))


@pytest.mark.skipif(wheels.find_library("cublasLt") is None, reason="no cuBLASLt: pip install nvidia-cublas")
def test_the_real_library_takes_the_descriptors() -> None:
    """It creates descriptors without a GPU, and reports errors in them."""
    call = products.ProductCall(MatrixProduct(0, 1, 2, 64, 32, 16, "bf16", 3, "relu", batch=4, transposed_b=True))
    found, written = ctypes.c_uint32(), ctypes.c_size_t()
    lt = CUBLAS.load()
    asked = lt.cublasLtMatmulDescGetAttribute(
        call.operation, library.EPILOGUE, ctypes.byref(found), 4, ctypes.byref(written)
    )
    assert (asked, found.value) == (0, library.RELU | library.BIAS)
    batch = ctypes.c_int32()
    asked = lt.cublasLtMatrixLayoutGetAttribute(
        call.first, library.BATCH_COUNT, ctypes.byref(batch), 4, ctypes.byref(written)
    )
    assert (asked, batch.value) == (0, 4)
    missing = [name for name in vars(FakeCublas) if name.startswith("cublas") and not hasattr(lt, name)]
    assert not missing
    for dtype, result, kind in (("i8", "i32", 3), ("f8e4m3fn", "bf16", 28)):
        other = products.ProductCall(MatrixProduct(0, 1, 2, 64, 32, 16, dtype, transposed_b=True, result=result))
        read_back = ctypes.c_uint32()
        asked = lt.cublasLtMatrixLayoutGetAttribute(other.first, 0, ctypes.byref(read_back), 4, ctypes.byref(written))
        assert (asked, read_back.value) == (0, kind)
        other.release()
    with pytest.raises(CuBlasError, match="describing"):
        call._set("MatmulDesc", call.operation, 999, ctypes.c_uint32(1))
    call.release()
