"""Attention in one kernel: against numpy, with all kinds of masks and heads, in one block and in several."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context


def _text(q: tuple, k: tuple, v: tuple, mask: tuple | None, kind: str, scale: float | None, causal: bool) -> str:
    def tensor(shape: tuple, dtype: str = "f32") -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"

    types = [tensor(q), tensor(k), tensor(v), *([tensor(mask, kind)] if mask else [])]
    names = [f"%a{i}" for i in range(len(types))]
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    attributes = [f"causal = {str(causal).lower()}", *([f"scale = {scale:e} : f64"] if scale is not None else [])]
    out = tensor((*q[:3], v[3]))
    return f"""func.func @main({arguments}) -> {out} {{
      %0 = "relax.attention"({", ".join(names)}) {{{", ".join(attributes)}}} : ({", ".join(types)}) -> {out}
      return %0 : {out}
    }}"""


def _reference(q, k, v, mask, scale, causal):
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), groups, axis=1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) * (scale if scale is not None else q.shape[3] ** -0.5)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[2:], bool)), scores, -np.inf)
    peak = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(-1, keepdims=True)
    return weights @ v / np.where(total == 0, 1, total)


CASES = {
    "bert": ((2, 3, 16, 32), (2, 3, 16, 32), 32, (2, 1, 1, 16), "f32", None, False),
    "odd": ((1, 3, 19, 24), (1, 3, 37, 24), 40, None, "f32", 0.3, False),
    "causal": ((1, 2, 33, 16), (1, 2, 33, 16), 16, None, "f32", None, True),
    "mask of each head": ((2, 2, 9, 16), (2, 2, 21, 16), 16, (2, 2, 9, 21), "f32", None, False),
    "bool mask": ((1, 2, 20, 16), (1, 2, 20, 16), 16, (20, 20), "i1", None, False),
    "grouped": ((2, 6, 17, 16), (2, 2, 23, 16), 16, (2, 1, 17, 23), "f32", None, False),
    "grouped, causal": ((1, 4, 30, 16), (1, 2, 30, 16), 16, None, "f32", None, True),
    "grouped, a mask of each head": ((1, 4, 10, 16), (1, 2, 30, 16), 16, (1, 4, 10, 30), "f32", None, False),
    "one head": ((1, 1, 70, 16), (1, 1, 50, 16), 16, None, "f32", None, False),
    "blocks": ((1, 2, 150, 16), (1, 2, 700, 16), 16, (1, 1, 1, 700), "f32", None, False),
    "decode": ((1, 4, 1, 32), (1, 4, 100, 32), 32, (1, 1, 1, 100), "f32", None, False),
    "decode, grouped": ((2, 8, 1, 32), (2, 2, 100, 32), 32, None, "f32", None, False),
    "one row": ((1, 1, 1, 32), (1, 1, 40, 32), 32, None, "f32", None, False),
    "one key": ((1, 2, 5, 16), (1, 2, 1, 16), 16, None, "f32", None, False),
    "small": ((1, 2, 3, 2), (1, 2, 3, 2), 2, None, "f32", None, True),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str, threads: int) -> None:
    q_shape, k_shape, value_size, mask_shape, kind, scale, causal = CASES[name]
    v_shape = (*k_shape[:3], value_size)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s, dtype=np.float32) for s in (q_shape, k_shape, v_shape))
    mask = None
    if mask_shape:
        seen = rng.random(mask_shape) < 0.7
        seen[..., 0, :] &= seen.shape[-2] == 1  # the first row sees no key at all
        mask = seen if kind == "i1" else np.where(seen, rng.standard_normal(mask_shape), -np.inf).astype(np.float32)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(_text(q_shape, k_shape, v_shape, mask_shape, kind, scale, causal))
        executable = mirlo.compile(module, threads=threads)
    got = executable(q, k, v, *([mask] if mask is not None else []))
    want = _reference(q, k, v, mask, scale, causal)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1


def test_operands_that_are_slices_and_permutes() -> None:
    """Query, keys and values as parts of one tensor, heads between: none of it is copied."""
    text = """func.func @main(%qkv: tensor<2x19x9x16xf32>) -> tensor<2x19x3x16xf32> {
      %0:3 = "relax.split"(%qkv) {axis = 2 : i64, sizes = [3, 3, 3],
        resultSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
        : (tensor<2x19x9x16xf32>) -> (tensor<2x19x3x16xf32>, tensor<2x19x3x16xf32>, tensor<2x19x3x16xf32>)
      %q = "relax.permute"(%0#0) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %k = "relax.permute"(%0#1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %v = "relax.permute"(%0#2) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %1 = "relax.attention"(%q, %k, %v) {causal = true}
        : (tensor<2x3x19x16xf32>, tensor<2x3x19x16xf32>, tensor<2x3x19x16xf32>) -> tensor<2x3x19x16xf32>
      %2 = "relax.permute"(%1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x3x19x16xf32>) -> tensor<2x19x3x16xf32>
      return %2 : tensor<2x19x3x16xf32>
    }"""
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(text))
    x = np.random.default_rng(0).standard_normal((2, 19, 9, 16), dtype=np.float32)
    q, k, v = (x[:, :, i : i + 3].transpose(0, 2, 1, 3) for i in (0, 3, 6))
    want = _reference(q, k, v, None, None, True).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(executable(x), want, rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1
