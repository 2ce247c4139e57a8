"""Arrays of other libraries on the GPU: taken and given without copies, in the order of their streams."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from foreign import Foreign, Interfaced, taken

import mirlo
from mirlo import R
from mirlo.runtime.device_array import DeviceArray
from mirlo.testing.ptx.fake_cuda import FakeDriver

WEIGHT = np.linspace(-1, 1, 24 * 20, dtype=np.float32).reshape(24, 20)


@mirlo.script
def model(x: R.Tensor[(6, 24), R.f32], b: R.Tensor[(20,), R.f32]):
    return R.relu(R.matmul(x, R.const(WEIGHT)) + b)


@pytest.fixture
def compiled(driver: FakeDriver) -> mirlo.Executable:
    made: mirlo.Executable = mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False)
    return made


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((6, 24), np.float32), rng.standard_normal(20, np.float32)


def expected(x: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHT + b, 0)


def close(found: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-5)


def copies(driver: FakeDriver) -> list[str]:
    """Return the requested copies between the CPU and the GPU."""
    return [name for name in driver.calls if name.startswith(("cuMemcpyHtoD", "cuMemcpyDtoH"))]


def test_memory_for_copies_is_made_for_the_first_copy(
    driver: FakeDriver, compiled: mirlo.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[int] = []
    pin = driver.cuMemHostAlloc
    monkeypatch.setattr(driver, "cuMemHostAlloc", lambda size, flags: (pinned.append(size), pin(size, flags))[1])
    x, b = inputs(1)
    close(compiled.on_device(Foreign(driver, x), Foreign(driver, b)), expected(x, b))
    assert max(pinned, default=0) < x.nbytes
    close(compiled(x, b), expected(x, b))
    assert max(pinned) >= x.nbytes


def test_inputs_and_outputs_stay_there(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    x, b = inputs(0)
    compiled(x, b)  # the weights are placed
    driver.calls.clear()
    made = compiled.on_device(Foreign(driver, x), Interfaced(Foreign(driver, b)))
    assert isinstance(made, DeviceArray) and made.shape == (6, 20) and made.device == "cuda:0"
    assert not copies(driver) and "cuStreamSynchronize" not in driver.calls
    found = taken(driver, made, stream=9)
    driver.streams.run(9)
    close(found[0], expected(x, b))
    close(made, expected(x, b))


def test_graphs_follow_the_addresses(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    arrays = [[Foreign(driver, array) for array in inputs(seed)] for seed in range(2)]
    for _ in range(3):
        for seed, (x, b) in enumerate(arrays):
            result = compiled.on_device(x, b)
            close(result, expected(*inputs(seed)))
            del result
    assert driver.calls.count("cuStreamBeginCapture") == 2, "recorded for each set of addresses that came twice"
    assert driver.calls.count("cuGraphLaunch") == 4


def test_memory_of_results_goes_round(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    found = []
    addresses = set()
    for seed in range(6):
        x, b = inputs(seed)
        result = compiled.on_device(Foreign(driver, x), Foreign(driver, b))
        addresses.add(result.memory.address)
        # Read by a stream that is late: the result is freed here, and its memory written by the next call.
        found.append(taken(driver, result, stream=9))
        del result
    assert len(addresses) == 1, "a result that nobody holds is the place of the next one"
    driver.streams.run_all()
    for seed, (one,) in enumerate(found):
        close(one, expected(*inputs(seed)))


def test_the_stream_of_the_caller(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    x, b = inputs(1)
    compiled(x, b)  # placing the weights waits for everything
    late = Interfaced(Foreign(driver, b, stream=7), names_stream=False)
    close(compiled.on_device(x, late, stream=7), expected(x, b))
    arrays = Foreign(driver, x, stream=7), Interfaced(Foreign(driver, b, stream=7), names_stream=False)
    out = Foreign(driver, np.zeros((6, 20), np.float32), stream=7)
    made = compiled.on_device(*arrays, out=out, stream=SimpleNamespace(cuda_stream=7))
    close(out.numpy(), expected(x, b))
    assert made.memory.address == out.address
    assert made.__cuda_array_interface__["stream"] not in (0, 7)


def test_host_and_device_together(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    x, b = inputs(2)
    first = compiled.on_device(x, Foreign(driver, b))
    second = compiled.on_device(-x, Foreign(driver, b))
    close(first, expected(x, b))
    close(second, expected(-x, b))
    out = np.empty((6, 20), np.float32)
    assert compiled(x, Foreign(driver, b), out=out) is out
    close(out, expected(x, b))


def test_memory_that_is_not_aligned(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    x, b = inputs(3)
    out = Foreign(driver, np.zeros((6, 20), np.float32), skip=4)
    compiled.on_device(Foreign(driver, x, skip=8), Foreign(driver, b), out=out, stream=7)
    close(out.numpy(), expected(x, b))


def test_other_models_take_results(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    @mirlo.script
    def double(y: R.Tensor[(6, 20), R.f32]):
        return y + y

    other = mirlo.compile(double, target="nvvm{chip=sm_90a}", cache=False)
    x, b = inputs(4)
    result = other.on_device(compiled.on_device(Foreign(driver, x), Foreign(driver, b)))
    close(result, 2 * expected(x, b))


def test_several_gpus(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    x, b = inputs(5)
    there = compiled.to(device=1)
    result = there.on_device(Foreign(driver, x, gpu=1), Interfaced(Foreign(driver, b, gpu=1)))
    assert result.device == "cuda:1" and result.__dlpack_device__() == (2, 1)
    close(result, expected(x, b))
    close(there(x, b), expected(x, b))
    assert driver.context == 0, "the context of the caller is as it was"
    with pytest.raises(mirlo.MirloError, match=r"'x' is on cuda:0, the model on cuda:1"):
        there.on_device(Foreign(driver, x), b)
    with pytest.raises(mirlo.MirloError, match=r"'b' is on cuda:0, the model on cuda:1"):
        there.on_device(x, Interfaced(Foreign(driver, b)))
    with pytest.raises(mirlo.MirloError, match="there is no GPU 2: this machine has 2"):
        compiled.to(device=2)(x, b)


def test_what_does_not_fit(driver: FakeDriver, compiled: mirlo.Executable) -> None:
    x, b = inputs(6)
    with pytest.raises(mirlo.MirloError, match=r"expected f32\[6, 24\], found f64\[6, 24\] on the device"):
        compiled.on_device(Foreign(driver, x.astype(np.float64)), b)
    with pytest.raises(mirlo.MirloError, match=r"expected f32\[6, 24\], found f32\[24, 6\]"):
        compiled.on_device(Foreign(driver, x.reshape(24, 6)), b)
    out = Foreign(driver, np.zeros((6, 20), np.float32))
    with pytest.raises(mirlo.MirloError, match="out must be an array on the device, found ndarray"):
        compiled.on_device(x, b, out=np.zeros((6, 20), np.float32))
    bias = Foreign(driver, b)
    bias.address = out.address
    with pytest.raises(mirlo.MirloError, match="out shares memory with an input"):
        compiled.on_device(x, bias, out=out)
    with pytest.raises(mirlo.MirloError, match="expected a CUDA stream or its handle, found str"):
        compiled.on_device(x, b, stream="main")
    with pytest.raises(BufferError, match="stream 0 may mean two streams"):
        compiled.on_device(x, b).__dlpack__(stream=0)


@pytest.mark.sample(0)
def test_memory_is_given_back(driver: FakeDriver) -> None:
    compiled = mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False)
    x, b = inputs(7)
    result = compiled.on_device(x, b)
    kept = taken(driver, result, stream=9)
    compiled.release_arenas()
    del compiled
    gc.collect()
    close(result, expected(x, b))
    del result
    gc.collect()
    driver.streams.run_all()
    close(kept[0], expected(x, b))
    from mirlo.targets.nvvm.memory import pool

    assert len(driver.memory) == 1
    pool(0).trim()
    assert not driver.memory


def test_models_of_the_cpu_say_that_they_are() -> None:
    compiled = mirlo.compile(model, target="llvm")
    with pytest.raises(mirlo.MirloError, match="models for target 'llvm' give arrays of the CPU"):
        compiled.on_device(*inputs(0))
    with pytest.raises(mirlo.MirloError, match="'llvm' is on no device with a number, found 1"):
        compiled.to(device=1)
