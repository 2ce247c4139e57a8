"""Convolutions by cuDNN: which matches are taken, the reasons for others, and the calls, with fake libraries."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cudnn import FakeCudnn
from mirlo_cudnn.native import convolutions, library
from mirlo_cudnn.native.library import CUDNN
from mirlo_cudnn.plan import Convolution

import mirlo
from mirlo import R
from mirlo.testing.nvidia import library_loading, pool, read, wheels

TARGET = ["cudnn", "nvvm{chip=sm_80}"]
RNG = np.random.default_rng(0)
W = RNG.standard_normal((8, 3, 3, 3), np.float32) / 4
V = RNG.standard_normal((8, 2, 3, 3), np.float32) / 4
B = RNG.standard_normal(8, np.float32)
K = RNG.standard_normal((8, 8, 3, 3), np.float32) / 8
C, U = B.reshape(1, 8, 1, 1), W[:, :, 0].copy()


@mirlo.script
def layers(x: R.Tensor[(2, 3, 9, 10), R.f32]):
    y = R.relu(R.conv(x, R.const(W), R.const(B), strides=(2, 1), padding=(1, 1, 1, 1)))
    z = R.conv(y, R.const(V), padding=(2, 2, 2, 2), dilations=(2, 2), groups=4)
    return R.tanh(z + R.const(C))


@pytest.mark.sample(0)
def test_layers(driver: Any, dnn: FakeCudnn) -> None:
    compiled = mirlo.compile(layers, target=TARGET, cache=False)
    here = mirlo.compile(layers, target="llvm")
    (external,) = compiled.artifact.externals
    first, second = (step for function in read(external.data, Convolution) for step in function.steps)
    assert first.channels_last and first.activation == "relu" and first.bias is not None
    assert tuple(first.x_shape) == (2, 3, 9, 10) and tuple(first.y_shape) == (2, 8, 5, 10) and not second.activation
    for seed in range(3):
        (x,) = compiled.random_inputs(seed).values()
        np.testing.assert_allclose(compiled(x), here(x), rtol=1e-4, atol=1e-5)
    assert driver.calls.count("cuStreamBeginCapture") == 1 and driver.calls.count("cuGraphLaunch") == 2
    assert [call["mode"] for call in dnn.calls[:2]] == [1, 5] and dnn.calls[0]["how"]["math"] == library.FMA_MATH
    np.testing.assert_allclose(compiled.on_device(x).numpy(), here(x), rtol=1e-4, atol=1e-5)
    del compiled
    gc.collect()
    pool(0).trim()
    assert not driver.memory and not dnn.made, "all is given back"


@mirlo.script
def plain(x: R.Tensor[(1, 3, 6, 6), R.f32]):
    return R.relu(R.conv(x, R.const(W))), R.conv(x, R.const(W))


def test_without_a_bias(driver: Any, dnn: FakeCudnn) -> None:
    compiled, here = (mirlo.compile(plain, target=target, cache=False) for target in (TARGET, "llvm"))
    (x,) = compiled.random_inputs().values()
    for found, wanted in zip(compiled(x), here(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@mirlo.script
def block(x: R.Tensor[(2, 8, 9, 10), R.f32]):
    y = R.relu(R.conv(x, R.const(K), R.const(B), padding=(1, 1, 1, 1)))
    z = R.relu(R.conv(y, R.const(K), padding=(1, 1, 1, 1)) + R.const(C) + x)
    return R.conv(z, R.const(K), padding=(1, 1, 1, 1)) + x


def test_a_residual_is_added(driver: Any, dnn: FakeCudnn) -> None:
    """The end of a block of a residual network is one call of the library."""
    compiled, here = (mirlo.compile(block, target=target, cache=False) for target in (TARGET, "llvm"))
    steps = [s for e in compiled.artifact.externals for f in read(e.data, Convolution) for s in f.steps]
    assert [(s.added is not None, s.bias is not None, s.activation) for s in steps] == [
        (False, True, "relu"), (True, True, "relu"), (True, False, "")
    ]  # fmt: skip
    for seed in range(2):
        (x,) = compiled.random_inputs(seed).values()
        np.testing.assert_allclose(compiled(x), here(x), rtol=1e-4, atol=1e-4)


@mirlo.script
def declined(x: R.Tensor[(1, 3, 6, 6), R.f32], w: R.Tensor[(4, 3, 3, 3), R.f32], z: R.Tensor[(1, 3, 6), R.f32]):
    line = R.conv(z, R.const(U))
    return R.conv(x, R.const(W), padding=(1, 1, 0, 0)), R.conv(x, w), line


def test_what_is_not_taken(driver: Any, dnn: FakeCudnn) -> None:
    """Unequal padding, kernels that are not constant, 1D convolutions."""
    compiled = mirlo.compile(declined, target=TARGET, cache=False)
    assert not compiled.artifact.externals


def test_without_the_library(driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library_loading, "find_library", lambda name: None)
    monkeypatch.setattr(CUDNN, "_loaded", None)
    mirlo.compile(plain, target=TARGET, cache=False).save(tmp_path / "plain.mirlo")
    with pytest.raises(mirlo.MirloError, match="cuDNN is not on this machine: pip install nvidia-cudnn-cu13"):
        mirlo.load(tmp_path / "plain.mirlo")(np.zeros((1, 3, 6, 6), np.float32))


@pytest.mark.skipif(wheels.find_library("cudnn") is None, reason="no cuDNN: pip install nvidia-cudnn-cu13")
def test_the_real_library_takes_the_descriptors() -> None:
    """It makes descriptors without a GPU, and computes the shape of the result from them."""
    step = Convolution(
        0, 1, 2, (2, 8, 9, 10), (6, 4, 3, 3), (2, 6, 5, 8), (2, 1), (1, 1), (1, 2), 2, True, "f16", 3, "relu"
    )
    call = convolutions.ConvolutionCall(step)
    found = (ctypes.c_int * 4)()
    dnn = CUDNN.load()
    asked = dnn.cudnnGetConvolutionNdForwardOutputDim(call.convolution, call.x, call.weight, 4, found)
    assert (asked, tuple(found)) == (0, step.y_shape)
    missing = [name for name in vars(FakeCudnn) if name.startswith("cudnn") and not hasattr(dnn, name)]
    assert not missing
    call.release()
