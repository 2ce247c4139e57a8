"""Models compiled once for dynamic sizes: batch, sequence, and sizes computed from them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.runtime.errors import InputError, MirloError

RNG = np.random.default_rng(0)
W = RNG.standard_normal((64, 32), dtype=np.float32)


def relu_of_product():
    nodes = [node("MatMul", "x w", "p"), node("Relu", "p", "y")]
    return make_model(nodes, {"x": (F32, ("batch", 64))}, ["y"], {"w": W})


def test_one_compilation_serves_every_batch(tmp_path):
    f = mirlo.compile(relu_of_product())
    assert str(f.inputs[0]) == "x: f32[batch, 64]" and str(f.outputs[0]) == "y: f32[batch, 32]"
    f.save(tmp_path / "model.mirlo")
    for executable in (f, mirlo.load(tmp_path / "model.mirlo")):
        for batch in (1, 3, 16, 17, 100, 0):
            x = RNG.standard_normal((batch, 64), dtype=np.float32)
            y = executable(x)
            assert y.shape == (batch, 32)
            np.testing.assert_allclose(y, np.maximum(x @ W, 0), rtol=1e-4, atol=1e-4)


def test_intermediates_share_an_arena_that_grows_with_the_sizes():
    nodes = [node("Softmax", "x", "a", axis=-1), node("Softmax", "a", "b", axis=0), node("Softmax", "b", "y", axis=-1)]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n", "m"))}, ["y"]))

    def softmax(x, axis):
        raised = np.exp(x - x.max(axis, keepdims=True))
        return raised / raised.sum(axis, keepdims=True)

    for shape in ((2, 3), (40, 50), (5, 1)):
        x = RNG.standard_normal(shape, dtype=np.float32)
        np.testing.assert_allclose(f(x), softmax(softmax(softmax(x, -1), 0), -1), rtol=1e-5)


def test_a_symbol_has_one_size_in_all_inputs():
    nodes = [node("Add", "x y", "z")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n", 4)), "y": (F32, ("n", 4))}, ["z"]))
    assert f(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)).shape == (3, 4)
    with pytest.raises(InputError, match=r"input 'y': dim 0 \('n'\) is 2, an earlier input has 3 there"):
        f(np.ones((3, 4), np.float32), np.ones((2, 4), np.float32))


def test_outputs_have_sizes_computed_from_symbols():
    nodes = [node("Concat", "x y", "c", axis=0), node("Flatten", "c", "z", axis=0)]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n", "k")), "y": (F32, ("m", "k"))}, ["z"]))
    assert str(f.outputs[0]) == "z: f32[1, k*m + k*n]"
    for n, m, k in ((1, 2, 3), (0, 4, 5), (7, 3, 1)):
        x, y = RNG.standard_normal((n, k), dtype=np.float32), RNG.standard_normal((m, k), dtype=np.float32)
        np.testing.assert_array_equal(f(x, y), np.concatenate([x, y]).reshape(1, -1))


def test_outputs_may_be_given():
    f = mirlo.compile(relu_of_product())
    out = np.empty((5, 32), np.float32)
    assert f(np.ones((5, 64), np.float32), out=out) is out
    with pytest.raises(InputError, match=r"out must be f32\[4, 32\], found f32\[5, 32\]"):
        f(np.ones((4, 64), np.float32), out=out)


def test_dims_that_must_be_equal_are_checked_before_anything_runs():
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "y")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n", "k")), "w": (F32, ("j", 8)), "b": (F32, ("m",))}, ["y"]))
    assert [str(spec) for spec in f.inputs] == ["x: f32[n, k]", "w: f32[k, 8]", "b: f32[m]"]
    x, w, b = (RNG.standard_normal(shape, dtype=np.float32) for shape in ((3, 4), (4, 8), (8,)))
    for bias in (b, b[:1]):  # a declared shape is not narrowed: it may broadcast
        np.testing.assert_allclose(f(x, w, bias), x @ w + bias, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="does not broadcast"):
        f(x, w, b[:3])
    with pytest.raises(InputError, match=r"dim 0 \('k'\) is 5, an earlier input has 4 there"):
        f(x, np.ones((5, 8), np.float32), b)


def test_dims_that_are_computed_from_others_are_checked():
    nodes = [node("Concat", "x z", "c", axis=0), node("Add", "c y", "s")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n",)), "z": (F32, ("m",)), "y": (F32, ("t",))}, ["s"]))
    x, z = np.ones(2, np.float32), np.ones(3, np.float32)
    np.testing.assert_array_equal(f(x, z, np.ones(5, np.float32)), np.full(5, 2, np.float32))
    with pytest.raises(InputError, match="Add_1: a tensor of shape .* does not broadcast .* t = 4"):
        f(x, z, np.ones(4, np.float32))


def test_dims_that_must_be_multiples_are_checked():
    nodes = [node("Reshape", "x shape", "y")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n", "k"))}, ["y"], {"shape": np.array([0, 4, -1])}))
    assert f(np.ones((2, 12), np.float32)).shape == (2, 4, 3)
    with pytest.raises(InputError, match="of an input: found 10"):
        f(np.ones((2, 10), np.float32))


def test_a_view_of_another_size_is_an_error():
    nodes = [node("Reshape", "x shape", "y")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n", "k"))}, ["y"], {"shape": np.array([4, 6])}))
    assert f(np.ones((2, 12), np.float32)).shape == (4, 6)
    with pytest.raises(InputError, match="a tensor of k\\*n elements is looked at as one of 24; the first: found 20"):
        f(np.ones((2, 10), np.float32))


def test_shapes_of_several_tensors_are_told_apart():
    nodes = [node("Shape", "x", "a"), node("Shape", "z", "b")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n", "m")), "z": (F32, ("m", "n"))}, ["a", "b"]))
    a, b = f(np.ones((2, 5), np.float32), np.ones((5, 2), np.float32))
    assert a.tolist() == [2, 5] and b.tolist() == [5, 2]


@pytest.mark.sample(0)
def test_the_page_about_it():
    page = Path(__file__).resolve().parents[2] / "docs" / "dynamic-shapes.md"
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(page), "exec"), {})


def test_a_size_that_is_there_for_small_dims_only():
    """What is chosen for typical sizes must not take 4 - n for a number of rows."""
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "y")]
    weights = {"v": RNG.standard_normal((8, 1, 2), dtype=np.float32)}
    f = mirlo.compile(make_model(nodes, {"x": (F32, (1, "n", 3)), "w": (F32, (1, "n", "n"))}, ["y"], weights))
    x, w = RNG.standard_normal((1, 2, 3), dtype=np.float32), RNG.standard_normal((1, 2, 2), dtype=np.float32)
    a = np.array([np.sum(x[0, :, i : i + 2] * w[0]) for i in range(2)])
    np.testing.assert_allclose(f(x, w), (weights["v"][:, 0] @ a)[None, :, None], rtol=1e-4, atol=1e-5)


def test_squeeze_without_axes_keeps_open_dims():
    f = mirlo.compile(make_model([node("Squeeze", "x", "y")], {"x": (F32, ("n", 1, 3))}, ["y"]))
    x = RNG.standard_normal((4, 1, 3), dtype=np.float32)
    np.testing.assert_array_equal(f(x), x[:, 0])
    with pytest.raises(MirloError, match="without axes, none of n may be 1, as the rank would be another"):
        f(x[:1])


ROWS = {
    "LayerNormalization": [node("LayerNormalization", "x scale", "y", axis=-1)],
    "Softmax": [node("Softmax", "x", "y", axis=-1)],
    "LogSoftmax": [node("LogSoftmax", "x", "y", axis=-1)],
    "ReduceMean": [node("ReduceMean", "x axes", "y")],
}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("operator", ROWS)
@pytest.mark.parametrize("shape", [(34, 3), (4, 205), (2, 16, 422), (1, 1915)], ids=str)
def test_a_dynamic_batch_gives_the_same_bits(operator, target, shape):
    """Rows of a known length are added in one order, however many there are."""
    x = RNG.standard_normal(shape, dtype=np.float32) * 3 + 1
    weights = {"LayerNormalization": {"scale": W.reshape(-1)[: shape[-1]]}, "ReduceMean": {"axes": np.array([-1])}}
    models = [
        make_model(ROWS[operator], {"x": (F32, dims)}, ["y"], weights.get(operator, {}))
        for dims in (shape, ("batch", *shape[1:]))
    ]
    np.testing.assert_array_equal(*(mirlo.compile(model, target=target)(x) for model in models))
