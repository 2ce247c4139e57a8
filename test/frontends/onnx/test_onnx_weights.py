"""Weights are views of the file; files that are damaged or hostile are refused."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from memory_growth import peak_growth
from onnx import TensorProto, helper, numpy_helper
from onnx_models import F32, make_model, node

from mirlo.frontends.onnx import OnnxImportError, import_model, wire
from mirlo.frontends.onnx.graph import TensorDef
from mirlo.frontends.onnx.model import load
from mirlo.frontends.onnx.wire import slim
from mirlo.runtime.errors import ParameterError
from mirlo.runtime.params import ParameterStore
from mirlo.testing import oracle


def matmul_model(count: int = 64) -> onnx.ModelProto:
    weight = np.arange(count * count, dtype=np.float32).reshape(count, count)
    return make_model([node("MatMul", "x w", "y")], {"x": (F32, [2, count])}, ["y"], {"w": weight})


def mapping_of(array: np.ndarray) -> Any:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def test_weights_are_views_of_the_mapped_file(context: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    model = matmul_model()
    onnx.save(model, path)
    _, store = import_model(path, context=context)
    array = store.get("w")
    mapped = mapping_of(array)
    assert isinstance(mapped, mmap.mmap)
    assert np.shares_memory(array, np.frombuffer(mapped, np.uint8))
    assert not array.flags.writeable
    assert np.array_equal(array, numpy_helper.to_array(model.graph.initializer[0]))
    assert store.source("w") == path


def test_saved_ir_finds_its_weights_in_the_model(context: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(matmul_model(), path)
    _, imported = import_model(path, context=context)
    store = ParameterStore()
    store.open(path)
    for name in imported.names():
        assert np.array_equal(store.get(name), imported.get(name))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ParameterError, match="truncated or damaged"):
        ParameterStore().open(path)


def test_bytes_and_messages(context: Any) -> None:
    model = matmul_model()
    expected = numpy_helper.to_array(model.graph.initializer[0])
    data = model.SerializeToString()
    for source in (model, data, bytearray(data), memoryview(data)):
        _, store = import_model(source, context=context)
        assert np.array_equal(store.get("w"), expected)
        assert store.source("w") is None
    assert np.shares_memory(import_model(data, context=context)[1].get("w"), np.frombuffer(data, np.uint8))


def test_large_tensors_are_cut_out_wherever_they_are() -> None:
    big = np.ones(4096, np.float32)
    then = helper.make_graph(
        [node("Constant", "", "t", value=numpy_helper.from_array(big))],
        "t",
        [],
        [helper.make_tensor_value_info("t", F32, None)],
    )
    plain = TensorProto(name="plain", data_type=F32, dims=[4096], float_data=big.tolist())
    model = make_model([node("If", "c", "y", then_branch=then, else_branch=then)], {}, ["y"], {"c": np.array(True)})
    model.graph.initializer.append(plain)
    data = model.SerializeToString()
    slimmed = slim(memoryview(data), "it")
    assert len(data) > 3 * big.nbytes and len(slimmed.message) < 2000 and len(slimmed.data) == 3
    loaded = load(data)
    graph = loaded.content.graph
    assert np.array_equal(loaded.weights.array(graph.initializers[1]), big)
    (inner,) = graph.nodes[0].graphs[0].nodes[0].attributes
    for tensor in (graph.initializers[1], inner.value):
        assert isinstance(tensor, TensorDef)
        found = loaded.weights.array(tensor)
        assert np.array_equal(found, big) and np.shares_memory(found, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("values", [list(range(5000)), [0.5] * 5000, ["BRANCH_LEQ"] * 5000])
def test_attributes_of_many_numbers_are_not_walked(values: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees have millions of numbers; a damaged one is still an error."""
    model = make_model([node("Any", "x", "y", domain="own", values=values)], {"x": (F32, [1])}, ["y"])
    data = model.SerializeToString()
    fields: list[int] = []
    scan = wire._Scanner.field
    monkeypatch.setattr(wire._Scanner, "field", lambda self, at, *rest: fields.append(at) or scan(self, at, *rest))
    slimmed = slim(memoryview(data), "it")
    assert slimmed.message == data and not slimmed.data and len(fields) < 50
    (attribute,) = load(data).content.graph.nodes[0].attributes
    assert attribute.name == "values"
    middle = len(data) // 2
    with pytest.raises(OnnxImportError):
        load(data[:middle] + b"\xff" * 12 + data[middle + 12 :])


@oracle.needs_onnx(1, 19)
@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
     "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int4", "uint4",
     "float4_e2m1fn"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["raw", "values"])
def test_element_types(dtype: str, form: str) -> None:
    numpy_dtype = np.dtype(dtype) if dtype in np.sctypeDict else np.dtype(getattr(ml_dtypes, dtype))
    array = (
        np.array([[0, 1, 2], [3, 1 if "uint" in dtype else -2, 1]]).astype(numpy_dtype)
        if dtype != "bool"
        else np.eye(2, 3, dtype=bool)
    )
    code = helper.np_dtype_to_tensor_dtype(numpy_dtype)
    if form == "raw":
        tensor = numpy_helper.from_array(array, "t")
    else:
        tensor = helper.make_tensor("t", code, array.shape, array.astype(np.float64).ravel().tolist())
    model = make_model([node("Identity", "x", "y")], {"x": (F32, [1])}, ["y"])
    model.graph.initializer.append(tensor)
    loaded = load(model)
    found = loaded.weights.array(loaded.content.graph.initializers[0])
    assert found.dtype == numpy_dtype and found.shape == array.shape
    assert np.array_equal(found.astype(np.float64), array.astype(np.float64))


def external_model(tmp_path: Path, **entries: str) -> Path:
    model = matmul_model()
    tensor = model.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(b"\0" * 16 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "16", "length": "16384", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_mapped(context: Any, tmp_path: Path) -> None:
    _, store = import_model(external_model(tmp_path), context=context)
    assert isinstance(mapping_of(store.get("w")), mmap.mmap)
    assert store.get("w")[0, 5] == 5


def test_large_weights_cost_no_memory(context: Any, tmp_path: Path) -> None:
    """Three gigabytes, which are nowhere but in a file with holes."""
    side = 2**14
    model = matmul_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.dims[:] = [3 * side, side]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3 * side
    with open(tmp_path / "weights.bin", "wb") as file:
        file.truncate(3 * side * side * 4)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())

    def imported() -> None:
        _, store = import_model(tmp_path / "net.onnx", context=context)
        assert store.nbytes == 3 * 2**30 and store.get("w")[-1, -1] == 0

    assert peak_growth(imported) < 50_000 * 1024


@pytest.mark.parametrize(
    ("entries", "part"),
    [
        ({"location": "gone.bin"}, "which does not exist"),
        ({"location": "../weights.bin"}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "outside the model's folder"),
        ({"location": ""}, "has external data, but no 'location'"),
        ({"offset": "17"}, "bytes 17 to 16401 of 'weights.bin', which has only 16400 bytes"),
        ({"offset": "-1"}, "has offset '-1', expected a number of bytes"),
        ({"length": "12"}, "needs 16384 bytes of data, but has 12"),
        ({"length": "9" * 30}, "expected a number of bytes"),
    ],
)
def test_bad_external_data(context: Any, tmp_path: Path, entries: dict[str, str], part: str) -> None:
    with pytest.raises(OnnxImportError) as caught:
        import_model(external_model(tmp_path, **entries), context=context)
    assert part in str(caught.value) and "tensor 'w'" in str(caught.value)


def test_names_of_external_data_are_printable(context: Any, tmp_path: Path) -> None:
    with pytest.raises(OnnxImportError, match="the name of a file with external data is not printable"):
        import_model(external_model(tmp_path, location="a\0b"), context=context)


def test_external_data_through_a_link_out_of_the_folder(context: Any, tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(20000))
    path = external_model(inside, location="link.bin")
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(OnnxImportError, match="outside the model's folder"):
        import_model(path, context=context)


def test_external_data_of_bytes(context: Any, tmp_path: Path) -> None:
    with pytest.raises(OnnxImportError, match="give the model's path instead of its bytes"):
        import_model(external_model(tmp_path).read_bytes(), context=context)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda t: t.dims.__setitem__(0, 63), "and dims [63, 64] needs 16128 bytes of data, but has 16384"),
        (lambda t: t.dims.__setitem__(0, -64), "has a negative dim: [-64, 64]"),
        (lambda t: t.dims.extend([1] * 1000), "has 1002 dims, arrays have at most"),
        (lambda t: t.dims.__setitem__(0, 2**62), "needs 1180591620717411303424 bytes of data"),
        (lambda t: setattr(t, "data_type", 8), "of dims [64, 64] has 0 strings"),
        (lambda t: setattr(t, "data_type", 99), "number 99, which ONNX does not define"),
        (lambda t: t.ClearField("raw_data"), "needs 4096 values in float_data, but has 0"),
    ],
)
def test_bad_tensors(context: Any, change: Any, part: str) -> None:
    model = matmul_model()
    change(model.graph.initializer[0])
    for source in (model, model.SerializeToString()):
        with pytest.raises(OnnxImportError) as caught:
            import_model(source, context=context)
        assert part in str(caught.value) and "tensor 'w'" in str(caught.value)


def sturdy_model() -> bytes:
    """Return a model with some of everything that the reader checks."""
    then = helper.make_graph([node("Relu", "h", "t")], "t", [], [helper.make_tensor_value_info("t", F32, None)])
    other = helper.make_graph([node("Tanh", "h", "e")], "e", [], [helper.make_tensor_value_info("e", F32, None)])
    body = helper.make_function("my", "F", ["a"], ["b"], [node("Neg", "a", "b")], [helper.make_opsetid("", 18)])
    nodes = [
        node("MatMul", "x w", "m"),
        node("Constant", "", "k", value=numpy_helper.from_array(np.ones(400, np.float32))),
        node("Gather", "k i", "g"),
        node("Add", "m g", "h"),
        node("If", "c", "q", then_branch=then, else_branch=other),
        helper.make_node("F", ["q"], ["r"], domain="my"),
        node("Reshape", "r s", "y"),
    ]
    constants = {
        "w": np.ones((16, 20), np.float32), "i": np.int64(3), "c": np.array(True), "s": np.array([-1, 5]),
    }  # fmt: skip
    return make_model(nodes, {"x": (F32, ["n", 16])}, ["y"], constants, functions=[body]).SerializeToString()


def test_damaged_bytes_never_crash(context: Any) -> None:
    """Cut short or with bytes changed, a model is imported or refused with our error, and nothing large is made."""
    whole = sturdy_model()
    import_model(whole, context=context)

    def import_damaged() -> None:
        generator = np.random.default_rng(0)
        refused = 0
        for trial in range(300):
            damaged = bytearray(whole)
            if trial % 3 == 0:
                del damaged[generator.integers(len(whole)) :]
            else:
                for at in generator.integers(len(whole), size=trial % 3):
                    damaged[at] = generator.integers(256)
            try:
                import_model(bytes(damaged), context=context)
            except OnnxImportError as error:
                refused += 1
                assert str(error)
        assert refused > 100

    assert peak_growth(import_damaged) < 200_000 * 1024


def test_a_square_weight_and_its_transpose_are_two(context: Any) -> None:
    weight = np.arange(64, dtype=np.float32).reshape(8, 8)
    nodes = [node("Transpose", "w", "t"), node("Add", "w x", "a"), node("Add", "t x", "b")]
    _, store = import_model(make_model(nodes, {"x": (F32, [8, 8])}, ["a", "b"], {"w": weight}), context=context)
    held = [store.get(name) for name in store.names()]
    assert len(held) == 2 and np.array_equal(held[0], weight) and np.array_equal(held[1], weight.T)


def test_dims_of_an_empty_weight_are_bounded(context: Any) -> None:
    model = make_model([node("Concat", "x w", "y", axis=0)], {"x": (F32, [2, 4, 4])}, ["y"])
    model.graph.initializer.add(name="w", data_type=F32, dims=[0, 1 << 62, 1 << 62])
    with pytest.raises(OnnxImportError, match=r"tensor 'w' of dims \[0, \d+, \d+\] is beyond any memory"):
        import_model(model, context=context)
