"""The loader of nvvm with host decisions or dynamic sizes, on the fake driver."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from assembled import needs_ptxas
from decisions import ALL
from foreign import Foreign

import mirlo
from mirlo import R
from mirlo.runtime.packed import packed
from mirlo.targets.nvvm.memory import pool
from mirlo.testing.ptx.fake_cuda import FakeDriver

TARGET = "nvvm{chip=sm_80}"


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["branches", "rounds", "resized", "counted", "layers"])
def test_they_agree_with_the_cpu(driver: FakeDriver, name: str) -> None:
    made, cases = ALL[name]()
    there, here = (mirlo.compile(made, target=one, cache=False) for one in (TARGET, "llvm"))
    for inputs in cases if name != "layers" else (cases[0], cases[4], cases[3], cases[0]):
        for key, value in here.run(inputs).items():
            np.testing.assert_allclose(there.run(inputs)[key], value, rtol=1e-4, atol=1e-5, err_msg=str(inputs))
    assert len(there.profile(**cases[0], repeats=1)) == len(there.artifact.kernels)
    del there
    gc.collect()
    pool(0).trim()
    assert not driver.memory, "all memory is given back"


@needs_ptxas()
@pytest.mark.parametrize("name", ["steps", "layers"])
def test_kernels_for_open_dims_are_assembled(name: str) -> None:
    compiled = mirlo.compile(ALL[name]()[0], target="nvvm{chip=sm_90a cubin=true}", cache=False)
    assert all("binary" in kernel for kernel in compiled.artifact.metadata["kernels"].values())


@pytest.mark.sample(0)
def test_open_dims_stay_on_the_device(driver: FakeDriver) -> None:
    made, cases = ALL["layers"]()
    there, here = (mirlo.compile(made, target=one, cache=False) for one in (TARGET, "llvm"))
    for inputs in (cases[0], cases[3], cases[0]):
        y, m = there.on_device(**{name: Foreign(driver, array) for name, array in inputs.items()})
        wanted = here.run(inputs)
        assert y.shape == wanted["y"].shape
        np.testing.assert_allclose(y.numpy(), wanted["y"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(m.numpy(), wanted["m"], rtol=1e-4, atol=1e-5)


@pytest.mark.sample(0)
def test_graphs_follow_the_sizes(driver: FakeDriver) -> None:
    made, cases = ALL["layers"]()
    there = mirlo.compile(made, target=TARGET, cache=False)
    for inputs in (cases[3], cases[3], cases[0], cases[0], cases[3], cases[3]):
        there.run(inputs)
    # Room for more moved the memory, and what was recorded went with it.
    assert driver.calls.count("cuStreamBeginCapture") >= 3
    driver.calls.clear()
    for inputs in (cases[3], cases[0], cases[3]):
        there.run(inputs)
    assert driver.calls.count("cuGraphLaunch") == 3 and "cuLaunchKernel" not in driver.calls


def test_outputs_whose_size_data_tells_stay_on_the_device(driver: FakeDriver) -> None:
    made, cases = ALL["counted"]()
    there = mirlo.compile(made, target=TARGET, cache=False)
    for inputs, wanted in zip(cases, (-np.arange(0, 7, 2), np.zeros(0), -np.arange(0, 400, 2)), strict=True):
        result = there.on_device(**inputs)
        np.testing.assert_array_equal(result.numpy(), wanted)
    with pytest.raises(mirlo.MirloError, match="its size depends on data, so that out cannot contain it"):
        there.on_device(**cases[0], out=Foreign(driver, np.zeros(4, np.float32)))


@mirlo.script
def calling(x: R.Tensor[(4,), R.f32]):
    doubled = R.call_dps_packed("test.cuda_double", x + x, out=R.Tensor[(4,), R.f32])
    return doubled + x


def test_functions_of_the_run_time(driver: FakeDriver) -> None:
    @packed("test.cuda_double")
    def double(x: np.ndarray, y: np.ndarray) -> None:
        y[:] = 2 * x
        if x[0] == 0:
            raise ValueError("zero")

    there = mirlo.compile(calling, target=TARGET, cache=False)
    x = np.arange(1, 5, dtype=np.float32)
    np.testing.assert_array_equal(there(x), 5 * x)
    np.testing.assert_array_equal(there.on_device(Foreign(driver, x)).numpy(), 5 * x)
    with pytest.raises(mirlo.MirloError, match=r"test.cuda_double"):
        there(x - 1)
    with pytest.raises(mirlo.MirloError, match=r"test.cuda_double"):
        there.on_device(x - 1)
