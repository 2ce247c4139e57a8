"""The fast path of calls with dynamic dims or with results of data-dependent sizes."""

from __future__ import annotations

import ctypes
import sys
import threading
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.runtime.errors import InputError, UnmetAssumption
from mirlo.testing import oracle


def _value(name: str, shape: list[int | str] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]):
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def several():
    """Return a model with two inputs that share a symbol, two outputs, one of them of a computed size, and an arena."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["soft"]),
        helper.make_node("Concat", ["soft", "sum", "a"], ["y"], axis=1),
        helper.make_node("ReduceMax", ["soft"], ["z"], keepdims=0),
    ]
    model = _model(nodes, [_value("a", ["n", "m"]), _value("b", ["n", "m"])], [_value("y", None), _value("z", None)])
    return mirlo.compile(model), ReferenceEvaluator(model)


@pytest.fixture(scope="module")
def asking():
    """Return an executable with two data-dependent sizes, of the first output and inside, and one known before."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Transpose", ["where"], ["transposed"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "transposed"], ["found"]),
        helper.make_node("Softmax", ["found"], ["y"], axis=0),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    model = _model(nodes, [_value("x", ["n", "m"])], [_value("y", None), _value("z", None)])
    return mirlo.compile(model), ReferenceEvaluator(model)


def _forbid_the_long_way(executable, monkeypatch):
    def long_way(*_):
        raise NotImplementedError

    monkeypatch.setattr(executable, "_execute", long_way)


@pytest.mark.sample(0)
def test_models_with_dynamic_dims_go_the_short_way(several, monkeypatch):
    executable, reference = several
    _forbid_the_long_way(executable, monkeypatch)
    rng = np.random.default_rng(0)
    for shape in ((2, 3), (1, 1), (40, 70), (3, 1000), (2, 3), (1, 5)):
        given = {name: rng.standard_normal(shape, dtype=np.float32) for name in "ab"}
        expected = reference.run(None, given)
        for found in (executable(*given.values()), executable(**given), tuple(executable.run(given).values())):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
                assert one.shape == other.shape and one.flags.writeable
                assert one.nbytes < 4096 or one.ctypes.data % 64 == 0


def test_sizes_that_do_not_fit_are_explained_by_the_long_way(several):
    executable, _ = several
    a = np.ones((2, 3), np.float32)
    with pytest.raises(InputError, match=r"input 'b': dim 1 \('m'\) is 4, an earlier input has 3 there"):
        executable(a, np.ones((2, 4), np.float32))
    with pytest.raises(InputError, match="missing b"):
        executable(a=a)
    with pytest.raises(InputError, match=r"input 'b': expected f32\[n, m\], found f32\[3\]"):
        executable(a, a[0])


def test_arrays_that_are_converted_give_the_same(several):
    executable, reference = several
    a = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    b = np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2]
    for found in (executable(a, b), executable(a.astype(">f4"), b)):
        for one, other in zip(found, reference.run(None, {"a": a, "b": b}), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.sample(0)
@oracle.needs_onnx(1, 19)
def test_results_whose_sizes_data_tells_go_the_short_way(asking, monkeypatch):
    executable, reference = asking
    _forbid_the_long_way(executable, monkeypatch)
    rng = np.random.default_rng(1)
    for shape in ((3, 4), (1, 1), (50, 60), (3, 4)):
        for share in (0.0, 0.5, 1.0):
            x = np.where(rng.random(shape) < share, rng.standard_normal(shape), 0).astype(np.float32)
            expected = reference.run(None, {"x": x})
            for one, other in zip(executable(x), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
                assert one.shape == other.shape and one.dtype == other.dtype and one.flags.writeable


def test_results_outlive_the_call_and_the_model(asking):
    x = np.eye(5, dtype=np.float32)
    executable = asking[0]
    kept = [executable(x * i)[0] for i in range(1, 9)]
    assert all(np.array_equal(array, np.full(5, 0.2, np.float32)) for array in kept)
    view = kept[0][1:3]
    del kept
    np.testing.assert_array_equal(view, np.full(2, 0.2, np.float32))


def _spare_blocks(executable) -> list[int]:
    """Return the addresses of the blocks that the next call takes, each of which begins with the next one's."""
    blocks = [executable._direct._spare[0]]
    while blocks[-1]:
        blocks.append(ctypes.c_void_p.from_address(blocks[-1]).value)
    return sorted(blocks[:-1])


def test_large_blocks_are_taken_again():
    """Memory of data-dependent sizes is that of the call before, also in several threads, and if sizes change."""
    nodes = [
        helper.make_node("Tile", ["x", "repeats"], ["tiled"]),
        helper.make_node("Softmax", ["tiled"], ["inside"], axis=0),
        helper.make_node("CumSum", ["inside", "axis"], ["y"]),
    ]
    model = _model(nodes, [_value("x", ["n"]), _value("repeats", [1], TensorProto.INT64)], [_value("y", None)])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "axis"))
    executable = mirlo.compile(model)
    rng = np.random.default_rng(2)
    inputs = [(rng.standard_normal(200, dtype=np.float32), np.array([rows])) for rows in (300, 220, 40, 3, 900)]
    sums = [np.cumsum(np.tile(np.exp(x), rows[0])) / np.exp(x).sum() / rows[0] for x, rows in inputs]
    executable(*inputs[0])
    blocks = _spare_blocks(executable)
    assert blocks
    executable(*inputs[0])
    assert _spare_blocks(executable) == blocks
    wrong = []

    def call(first):
        for i in range(first, first + 40):
            if not np.allclose(executable(*inputs[i % 5]), sums[i % 5], rtol=1e-3):
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    executable(*inputs[3])
    assert not _spare_blocks(executable), "a call that needs none leaves none"


def test_calls_leave_no_memory_and_no_references(several, asking):
    a, b = np.ones((20, 30), np.float32), np.ones((20, 31), np.float32)
    objects = a, a.dtype, np.dtype(np.uint8), False

    def calls():
        for _ in range(50):
            several[0](a, a)
            asking[0](a)
            several[0]._direct.run((a, b))
            several[0]._direct._call(a, a, 0, 0)  # the arena is too small

    calls()
    tracemalloc.start()
    try:
        before = [sys.getrefcount(each) for each in objects]
        calls()
        grown, _ = tracemalloc.get_traced_memory()
        after = [sys.getrefcount(each) for each in objects]
    finally:
        tracemalloc.stop()
    assert grown < 20_000
    assert all(abs(one - other) < 40 for one, other in zip(before, after, strict=True))


def test_calls_of_several_threads_have_arenas_of_their_own(several):
    executable, reference = several
    wrong: list[int] = []

    def work(rows: int) -> None:
        a = np.random.default_rng(rows).standard_normal((rows, 17), dtype=np.float32)
        expected = reference.run(None, {"a": a, "b": a})
        for _ in range(30):
            found = executable(a, a)
            if not all(np.allclose(x, y, rtol=1e-4, atol=1e-6) for x, y in zip(found, expected, strict=True)):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (3, 70, 11, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_size_that_data_tells_is_refused_with_its_reason():
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = _model(nodes, [_value("x", ["n"]), _value("shape", [2], TensorProto.INT64)], [_value("y", None)])
    executable = mirlo.compile(model)
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(executable(x, np.array([2, 3])), x.reshape(2, 3))
    for shape in ([4, 2], [-2, -3], [1 << 62, 1 << 62]):
        with pytest.raises(InputError, match="Reshape"):
            executable(x, np.array(shape))


@pytest.mark.parametrize("rows", ["n", 3])
def test_conditions_are_tested_on_the_short_way(rows, monkeypatch, capfd):
    """Compiled code tests them; the slow path reports which one fails, here a missing category."""
    domain = "ai.onnx.ml"
    node = helper.make_node("OneHotEncoder", ["x"], ["y"], domain=domain, cats_int64s=[5, 7], zeros=0)
    model = _model([node], [_value("x", [rows, 2], TensorProto.INT64)], [_value("y", None)])
    model.opset_import.append(helper.make_opsetid(domain, 3))
    executable = mirlo.compile(model)
    for place in (0, 5):
        unmet = np.full(6, 5)
        unmet[place] = 6
        with pytest.raises(UnmetAssumption, match="^node 'y' .OneHotEncoder.: a value is of no category"):
            executable(unmet.reshape(3, 2))
    assert not capfd.readouterr().err
    _forbid_the_long_way(executable, monkeypatch)
    x = np.array([[5, 7], [7, 7], [5, 5]])
    np.testing.assert_array_equal(executable(x), np.stack([x == 5, x == 7], -1))
