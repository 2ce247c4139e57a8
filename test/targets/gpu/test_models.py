"""Models on a GPU, from compilation to results."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from devices import ON_DEVICES
from onnx_models import make_model, node

import mirlo
from mirlo import R

pytestmark = ON_DEVICES


@mirlo.script
def product(x: R.Tensor[(4, 64), R.f32], w: R.Tensor[(64, 32), R.f32]):
    return R.relu(R.matmul(x, w))


@pytest.fixture(scope="module")
def model(target: str) -> mirlo.Executable:
    return mirlo.compile(product, target=target)


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w, 0)


def test_product_with_epilogue(target: str, model: mirlo.Executable) -> None:
    inputs = model.random_inputs()
    np.testing.assert_allclose(model(**inputs), expected(**inputs), rtol=1e-5, atol=1e-5)


def test_calls_do_not_disturb_each_other(target: str, model: mirlo.Executable) -> None:
    cases = [model.random_inputs(seed) for seed in range(8)]
    results: list[np.ndarray | None] = [None] * len(cases)

    def call(i: int) -> None:
        results[i] = model(**cases[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result, inputs in zip(results, cases, strict=True):
        np.testing.assert_allclose(result, expected(**inputs), rtol=1e-5, atol=1e-5)


def test_saved_models_load(target: str, model: mirlo.Executable, tmp_path: Path) -> None:
    model.save(tmp_path / "product.mirlo")
    inputs = model.random_inputs()
    assert np.array_equal(mirlo.load(tmp_path / "product.mirlo")(**inputs), model(**inputs))


def test_profile_has_a_row_for_each_kernel(target: str, model: mirlo.Executable) -> None:
    profile = model.profile(repeats=2)
    assert [row.symbol for row in profile] == ["fused_matmul_relu"]
    assert profile.microseconds > 0


def test_constants_and_weights_are_placed_once(target: str) -> None:
    weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)

    @mirlo.script
    def scaled(x: R.Tensor[(2, 3), R.f32]):
        return R.matmul(x, R.const(weight)) * R.const(2.0, "f32")

    model = mirlo.compile(scaled, target=target)
    for seed in range(2):
        (x,) = model.random_inputs(seed).values()
        np.testing.assert_allclose(model(x), x @ weight * 2, rtol=1e-5, atol=1e-6)


def test_devices_by_number(target: str, model: mirlo.Executable) -> None:
    inputs = model.random_inputs()
    np.testing.assert_array_equal(model.to(device=0)(**inputs), model(**inputs))
    with pytest.raises(mirlo.MirloError, match="there is no .* 99: this machine has"):
        model.to(device=99)(**inputs)


def test_bits_are_shifted_by_any_count(target: str) -> None:
    @mirlo.script
    def shifted(x: R.Tensor[(6,), R.i8], n: R.Tensor[(6,), R.i8]):
        return R.shift_left(x, n), R.shift_right(x, n)

    x, n = np.array([-8, 8, -1, 100, 3, -3], np.int8), np.array([1, -1, -128, 8, 7, 0], np.int8)
    left, right = mirlo.compile(shifted, target=target)(x, n)
    np.testing.assert_array_equal(left, np.array([-16, 0, 0, 0, -128, -3], np.int8))
    np.testing.assert_array_equal(right, np.array([-4, 0, -1, 0, 0, -3], np.int8))


@pytest.mark.parametrize("shape", [(3, 63), (0, -1), (-1,), (27, 7)])
def test_views_of_inputs_are_copied(target: str, shape: tuple[int, ...]) -> None:
    """An output may be a view of an input, with a dynamic or a static size."""
    nodes = [node("Reshape", "x s", "y"), node("Identity", "x", "z")]
    ints = onnx.TensorProto.INT64
    model = make_model(nodes, {"x": (ints, ("a", "b", "c"))}, ["y", "z"], {"s": np.array(shape)})
    x = np.arange(189).reshape(3, 9, 7)
    y, z = mirlo.compile(model, target, cache=False, jobs=1)(x)
    wanted = [size or x.shape[axis] for axis, size in enumerate(shape)]
    np.testing.assert_array_equal(y, x.reshape(wanted))
    np.testing.assert_array_equal(z, x)
