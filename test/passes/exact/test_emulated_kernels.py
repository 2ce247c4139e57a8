"""Kernels of tensor maps, warpgroups and tensor memory, as PTX on residues: equal, and with planted faults."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from onnx import parser
from ptx_faults import FAULTS, changed_line, planted

from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.targets.nvvm.chips import CHIPS
from mirlo.testing.emulated_kernels import EmulatedKernel, emulated_kernels, verify_emulated
from mirlo.testing.ptx.errors import KernelError, PtxError

HOPPER, BLACKWELL = "nvvm{chip=sm_90a}", "nvvm{chip=sm_100a}"
HEAD = '<ir_version: 9, opset_import: ["": 20]>'
MODELS = {
    "odd sizes": "g (float16[136, 152] x, float16[152, 72] w) => (float16[136, 72] y) { y = MatMul (x, w) }",
    "deep": "g (float16[64, 1088] x, float16[1088, 64] w) => (float16[64, 64] y) { y = MatMul (x, w) }",
    "epilogue": """g (float16[128, 64] x, float16[64, 128] w, float16[128] b, float16[128, 128] r)
        => (float16[128, 128] y) {
        m = MatMul (x, w) a = Add (m, b) c = Relu (a) y = Add (c, r) }""",
    "transposed": """g (bfloat16[128, 96] x, bfloat16[200, 96] w) => (bfloat16[128, 200] y) {
        t = Transpose <perm = [1, 0]> (w) y = MatMul (x, t) }""",
    "batch": "g (float16[3, 128, 64] x, float16[3, 64, 128] w) => (float16[3, 128, 128] y) { y = MatMul (x, w) }",
    "convolution": """g (float16[1, 64, 12, 12] x, float16[64, 64, 3, 3] w) => (float16[1, 64, 12, 12] y) {
        y = Conv <pads = [1, 1, 1, 1]> (x, w) }""",
    "f32": "g (float[128, 96] x, float[96, 128] w) => (float[128, 128] y) { y = MatMul (x, w) }",
    "bytes": "g (int8[128, 128] x, int8[128, 128] w) => (int32[128, 128] y) { y = MatMulInteger (x, w) }",
}


@cache
def _kernels(name: str, target: str) -> list[EmulatedKernel]:
    return emulated_kernels(parser.parse_model(f"{HEAD} {MODELS[name]}"), target)


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", [HOPPER, BLACKWELL])
@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_equal(name: str, target: str) -> None:
    for kernel in _kernels(name, target):
        verdict = kernel.verify()
        assert verdict.status == EQUAL, str(verdict)
        assert verdict.bits > 50


def test_instructions_are_those_of_the_chips() -> None:
    for target, expected in ((HOPPER, "wgmma.mma_async"), (BLACKWELL, "tcgen05.mma")):
        (kernel,) = _kernels("odd sizes", target)
        assert expected in _ptx(kernel) and "cp.async.bulk.tensor" in _ptx(kernel)


def test_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a cluster share tiles; which ones is an integer of 16 bits."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], units=4))
    text = "g (float16[256, 64] x, float16[64, 512] w) => (float16[256, 512] y) { y = MatMul (x, w) }"
    (kernel,) = emulated_kernels(parser.parse_model(f"{HEAD} {text}"), HOPPER)
    assert kernel.verify(1).status == EQUAL
    ptx = _ptx(kernel)
    assert "multicast" in ptx and "barrier.cluster" in ptx
    assert _status(kernel, re.sub(r"(mov\.b16\s+%rs\d+, )3;", r"\g<1>1;", ptx)) == DIFFERENT  # one block has no tile
    assert _status(kernel, re.sub(r"\n\s*mapa[^\n]*", "", ptx)) == DIFFERENT


def test_exponentials_are_outside() -> None:
    text = "g (float16[64, 64] x) => (float16[64, 64] y) { y = Softmax (x) }"
    (verdict,) = verify_emulated(parser.parse_model(f"{HEAD} {text}"), HOPPER)
    assert verdict.status == OUTSIDE and "exponential" in verdict.why
    text = "g (float16[n, 64] x, float16[64, 64] w) => (float16[n, 64] y) { y = MatMul (x, w) }"
    (verdict,) = verify_emulated(parser.parse_model(f"{HEAD} {text}"), HOPPER)
    assert verdict.status == OUTSIDE and "run time" in verdict.why


def test_constants_are_those_of_the_definition() -> None:
    """A clip of 16-bit floats is compared; rounded quotients and what LLVM's comparisons have instead are outside."""
    body = "m = MatMul (x, w) h = Cast <to = 10> (three) {}"
    head = f"{HEAD} g (float16[64, 64] x, float16[64, 64] w) => (float16[64, 64] y) <float three = {{3}}>"
    for text, expected in (
        ("y = Min (m, h)", ""), ("y = Mul (m, h)", ""), ("y = Div (m, x)", ""), ("y = Abs (m)", ""),
        ("y = Div (m, h)", "the constant 0.333"), ("y = LeakyRelu (m)", "the constant -2.98"),
        ("y = Tanh (m)", "which its definition does not have"),
    ):  # fmt: skip
        (verdict,) = verify_emulated(parser.parse_model(f"{head} {{ {body.format(text)} }}"), HOPPER, rounds=1)
        assert verdict.status == (OUTSIDE if expected else EQUAL) and expected in verdict.why, str(verdict)


def _ptx(kernel: EmulatedKernel) -> str:
    texts: list[str] = []

    def keep(text: str) -> str:
        texts.append(text)
        return text

    kernel.verify(1, keep)
    return texts[0]


def _status(kernel: EmulatedKernel, ptx: str) -> str:
    try:
        return kernel.verify(1, lambda _: ptx).status
    except PtxError:
        return DIFFERENT


def _results(kernel: EmulatedKernel, ptx: str | None = None) -> list[bytes]:
    """Return the bytes of the results for normal floats."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(spec.shape).astype(numpy_dtype(spec.dtype)) for spec in kernel.artifact.inputs]
    results = kernel.results(arrays, None, True, None if ptx is None else lambda _: ptx)
    return [np.ascontiguousarray(each).tobytes() for each in results]


SEEDS = 20


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("target", [HOPPER, BLACKWELL])
def test_planted_faults_are_found(target: str, kind: str, seed: int) -> None:
    """A fault makes a difference, or no bit of results as floats changes."""
    (kernel,) = _kernels("odd sizes", target)
    ptx = _ptx(kernel)
    faulty = planted(ptx, kind, seed)
    if faulty is None or _status(kernel, faulty) == DIFFERENT:
        return
    try:
        is_harmless = _results(kernel, faulty) == _results(kernel)
    except KernelError:
        is_harmless = False
    assert is_harmless, changed_line(ptx, faulty)
