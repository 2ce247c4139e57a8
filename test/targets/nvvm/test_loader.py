"""The loader of nvvm on the fake driver: weights, graphs, results, time stamps, memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import mirlo
from mirlo import R
from mirlo.targets.nvvm import maps
from mirlo.targets.nvvm.schedule import pipelined, products, tensorcore, warpgroup
from mirlo.testing.ptx.fake_cuda import FakeDriver

WEIGHT = np.linspace(-1, 1, 24 * 20, dtype=np.float32).reshape(24, 20)


@mirlo.script
def model(x: R.Tensor[(6, 24), R.f32]):
    y = R.relu(R.matmul(x, R.const(WEIGHT)))
    return R.matmul(y, R.permute(y, axes=[1, 0])), R.reduce_max(y, axes=[1])


@pytest.mark.sample(0)
def test_calls(driver: FakeDriver) -> None:
    compiled = mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False)
    placed = [call for call in driver.calls if not call.startswith("cuDeviceGet")]
    assert not placed, "nothing is placed before the first call"
    for seed in range(3):
        (x,) = compiled.random_inputs(seed).values()
        y = np.maximum(x @ WEIGHT, 0)
        products, peaks = compiled(x)
        np.testing.assert_allclose(products, y @ y.T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(peaks.reshape(-1), y.max(1), rtol=1e-5)
    assert driver.calls.count("cuStreamBeginCapture") == 1 and driver.calls.count("cuGraphLaunch") == 3
    profile = compiled.profile(x, repeats=2)
    assert len(profile) == len(compiled.artifact.kernels)
    assert "on the device" in str(compiled.memory) and compiled.memory.device_arena_bytes > 0
    assert driver.memory
    del compiled, profile
    gc.collect()
    assert not driver.memory, "all memory is given back"


@mirlo.script
def product(x: R.Tensor[(128, 160), R.f16], y: R.Tensor[(160, 128), R.f16]):
    return R.matmul(x, y)


def test_time_of_a_call(driver: FakeDriver) -> None:
    """Some calls are one graph, launched twice: the timed part includes no waits of the host and no copies."""
    compiled = mirlo.compile(model, target="nvvm", cache=False)
    inputs = list(compiled.random_inputs().values())
    compiled(*inputs)
    before = len(driver.calls)
    # Its clock goes on by a quarter of a millisecond from event to event.
    assert compiled.device_microseconds(*inputs, repeats=5) == 50.0
    given = driver.calls[before:]
    assert given.count("cuLaunchKernel") == 5 * len(compiled.artifact.kernels)
    timed = given[given.index("cuStreamBeginCapture") :]
    assert timed.count("cuGraphLaunch") == 2 and not any(name.startswith("cuMemcpy") for name in timed)
    assert timed.count("cuGraphExecDestroy") == 1
    with pytest.raises(mirlo.MirloError, match="repeats: expected 1 or more, found 0"):
        compiled.device_microseconds(*inputs, repeats=0)
    assert mirlo.compile(model, target="llvm").device_microseconds(*inputs) is None


@pytest.mark.sample(0)
def test_shared_memory_is_asked_for(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorcore, "choose_tile", lambda *_: tensorcore.TILES[0])
    monkeypatch.setattr(products, "whole_waves_if_faster", lambda plan, *_: plan)
    compiled = mirlo.compile(product, target="nvvm{chip=sm_80}", cache=False)
    x, y = compiled.random_inputs().values()
    np.testing.assert_allclose(compiled(x, y), x.astype(np.float32) @ y.astype(np.float32), rtol=1e-2, atol=1e-2)
    assert list(driver.allowed.values()) == [4 * (128 * 40 + 32 * 136) * 2]


def test_tensors_are_described_to_the_copying_engine(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: warpgroup.TILES[-1])
    compiled = mirlo.compile(product, target="nvvm{chip=sm_90a}", cache=False)
    for seed in range(2):
        x, y = compiled.random_inputs(seed).values()
        np.testing.assert_allclose(compiled(x, y), x.astype(np.float32) @ y.astype(np.float32), rtol=1e-2, atol=1e-2)
    assert [(tensor.dims, tensor.box) for tensor in driver.maps.known] == [
        ((160, 128), (64, 64)),
        ((128, 160), (64, 64)),
    ]
    assert max(driver.allowed.values()) > 48 * 1024


def test_numbers_of_formats_are_those_of_the_driver() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    for name, number in maps.FORMATS.values():
        assert int(getattr(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")) == number
    assert int(bindings.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B) == maps.PERMUTED_128
    assert int(bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B) == maps.PROMOTED_256


def test_chips_that_do_not_fit(driver: FakeDriver) -> None:
    driver.capability = (8, 9)
    compiled = mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False)
    with pytest.raises(mirlo.MirloError, match="was compiled for sm_90a, this GPU has the compute capability 8.9"):
        compiled(np.zeros((6, 24), np.float32))


def test_the_driver_has_what_is_called() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    wanted = [name for name in vars(FakeDriver) if name.startswith(("cu", "CU"))]
    assert [name for name in [*wanted, "cuInit"] if not hasattr(bindings, name)] == []
    for kind in ("CUdevice_attribute", "CUpointer_attribute", "CUstreamCaptureMode", "CUresult"):
        names = vars(getattr(FakeDriver, kind))
        assert [name for name in names if not hasattr(getattr(bindings, kind), name)] == []
