"""Control flow, dynamic dims, data-dependent sizes and run-time functions on a GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest
from decisions import ALL
from devices import ON_DEVICES

import mirlo
from mirlo import R
from mirlo.runtime.packed import packed, unregister
from mirlo.targets.gpu.commands import is_straight

pytestmark = ON_DEVICES


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ALL)
def test_they_agree_with_the_cpu(target: str, name: str) -> None:
    made, cases = ALL[name]()
    there, here = (mirlo.compile(made, target=one, cache=False) for one in (target, "llvm"))
    for _ in range(2):
        for inputs in cases:
            found, wanted = there.run(inputs), here.run(inputs)
            for key, value in wanted.items():
                np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=str(inputs))
    assert len(there.profile(**cases[0], repeats=1)) == len(there.artifact.kernels)


def test_files_keep_them(target: str, tmp_path: object) -> None:
    made, cases = ALL["rounds"]()
    compiled = mirlo.compile(made, target=target, cache=False)
    compiled.save(f"{tmp_path}/rounds.mirlo")
    np.testing.assert_array_equal(mirlo.load(f"{tmp_path}/rounds.mirlo").run(cases[3])["y"], 8.0)


@mirlo.script
def calling(x: R.Tensor[(4,), R.f32]):
    doubled = R.call_dps_packed("test.gpu_double", x + x, out=R.Tensor[(4,), R.f32])
    return doubled + x


def test_functions_of_the_run_time(target: str, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: unregister("test.gpu_double"))

    @packed("test.gpu_double")
    def double(x: np.ndarray, y: np.ndarray) -> None:
        y[:] = 2 * x
        if x[0] == 0:
            raise ValueError("zero")

    compiled = mirlo.compile(calling, target=target, cache=False)
    x = np.arange(1, 5, dtype=np.float32)
    np.testing.assert_array_equal(compiled(x), 5 * x)
    with pytest.raises(mirlo.MirloError, match="test.gpu_double"):
        compiled(x - 1)
    np.testing.assert_array_equal(compiled(x), 5 * x)


def test_sizes_that_do_not_fit(target: str) -> None:
    made, (inputs, *_) = ALL["layers"]()
    compiled = mirlo.compile(made, target=target, cache=False)
    with pytest.raises(mirlo.MirloError, match=r"dim 0 \('length'\) is 3, an earlier input has 5"):
        compiled.run({**inputs, "b": np.zeros(3, np.float32)})


def test_programs_are_data(target: str) -> None:
    """Values that are known before a call are not read from the device."""
    straight = {}
    for name in ALL:
        compiled = mirlo.compile(ALL[name]()[0], target=target, cache=False)
        program = compiled.artifact.metadata["program"]
        assert json.loads(json.dumps(program)) == program
        straight[name] = is_straight(program["sites"], ())
    assert straight == {
        "branches": False,
        "rounds": False,
        "resized": False,
        "steps": False,
        "counted": False,
        "layers": True,
        "scattered": True,
    }
