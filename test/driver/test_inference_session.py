"""`mirlo.InferenceSession`: the same calls give what ONNX Runtime gives; options that do not apply are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.driver.inference.options import SessionOptionError
from mirlo.runtime.errors import InputError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    weight = np.random.default_rng(0).normal(size=(32, 48)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
        helper.make_node("ArgMax", ["m"], ["label"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 48]),
         helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("session") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return str(path)


def _data(rows: int = 5) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, 32)).astype(np.float32)


def _program(ort: Any, model: str) -> list[Any]:
    """Call a session of a package the way that programs written for ONNX Runtime do."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: list[Any] = [[(a.name, a.shape, a.type) for a in (*session.get_inputs(), *session.get_outputs())]]
    found.append(session.get_providers())
    name = session.get_inputs()[0].name
    found.extend(session.run(None, {name: _data()}))
    found.extend(session.run(["label"], {name: _data(3)}))
    binding = session.io_binding()
    binding.bind_cpu_input(name, _data())
    binding.bind_output("label")
    room = ort.OrtValue.ortvalue_from_numpy(np.zeros((5, 48), np.float32))
    binding.bind_ortvalue_output("y", room)
    session.run_with_iobinding(binding)
    found.extend(binding.copy_outputs_to_cpu())
    found.append(room.numpy())
    found.extend([value.shape(), value.data_type(), value.numpy()] for value in binding.get_outputs())
    return found


def test_a_program_for_onnx_runtime_gets_the_same_answers(model: str) -> None:
    _assert_same(_program(mirlo, model), _program(onnxruntime, model))


def _assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_same(one, other)
    else:
        assert found == expected


def test_a_buffer_bound_by_its_address_is_written(model: str) -> None:
    session = mirlo.InferenceSession(model)
    data, room = _data(), np.zeros((5, 48), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, data.shape, data.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, room.shape, room.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(room, session.run(["y"], {"x": data})[0])


def test_bytes_and_compiled_files_are_opened(model: str, tmp_path: Path) -> None:
    expected = mirlo.InferenceSession(model).run(None, {"x": _data()})
    session = mirlo.InferenceSession(Path(model).read_bytes(), cache=False)
    _assert_same(session.run(None, {"x": _data()}), expected)
    session.executable.save(tmp_path / "m.mirlo")
    _assert_same(mirlo.InferenceSession(tmp_path / "m.mirlo").run(None, {"x": _data()}), expected)
    with pytest.raises(SessionOptionError, match="compiled already"):
        mirlo.InferenceSession(tmp_path / "m.mirlo", precision="bf16")


def test_a_dim_is_fixed_by_its_name(model: str) -> None:
    options = mirlo.SessionOptions()
    options.add_free_dimension_override_by_name("rows", 4)
    session = mirlo.InferenceSession(model, options)
    assert session.get_inputs()[0].shape == [4, 32]


def test_values_other_than_tensors_are_described_as_onnx_runtime_does() -> None:
    kinds = [
        helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
    ]
    graph = helper.make_graph(
        [helper.make_node("SequenceAt", ["x", "i"], ["y"])], "g", kinds,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = mirlo.InferenceSession(model.SerializeToString())
    expected = onnxruntime.InferenceSession(model.SerializeToString())
    assert [a.type for a in found.get_inputs()] == [a.type for a in expected.get_inputs()]
    feeds = {"x": [np.ones(2, np.float32), np.zeros(3, np.float32)], "i": np.array(1)}
    _assert_same(found.run(None, feeds), expected.run(None, feeds))


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("intra_op_num_threads", -1, "intra_op_num_threads: expected a number from 0, found -1"),
        ("inter_op_num_threads", 4, "expected 0, 1, found 4: kernels run one after the other"),
        ("enable_profiling", True, "expected False, found True: use 'mirlo run MODEL --profile'"),
        ("intra_op_threads", 2, "has no option 'intra_op_threads'; did you mean 'intra_op_num_threads'"),
        ("optimized_model_filepath", "x.onnx", "use 'mirlo compile MODEL -o FILE.mirlo'"),
    ],
)
def test_options_that_do_not_apply_are_errors(name: str, value: Any, message: str) -> None:
    with pytest.raises(SessionOptionError, match=message.replace("(", r"\(")):
        setattr(mirlo.SessionOptions(), name, value)


def test_what_configures_onnx_runtime_is_refused(model: str) -> None:
    options = mirlo.SessionOptions()
    with pytest.raises(SessionOptionError, match="session.disable_prepacking"):
        options.add_session_config_entry("session.disable_prepacking", "1")
    with pytest.raises(SessionOptionError, match="mirlo.onnx_operator"):
        options.register_custom_ops_library("ops.so")
    with pytest.raises(SessionOptionError, match="there is no provider 'TensorrtExecutionProvider'"):
        mirlo.InferenceSession(model, providers=["TensorrtExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(SessionOptionError, match="arena_extend_strategy"):
        mirlo.InferenceSession(model, providers=[("CPUExecutionProvider", {"arena_extend_strategy": "x"})])
    with pytest.raises(SessionOptionError, match="expected mirlo.SessionOptions"):
        mirlo.InferenceSession(model, onnxruntime.SessionOptions())  # type: ignore[arg-type]
    session = mirlo.InferenceSession(model)
    with pytest.raises(InputError, match="no output is named 'lable'; outputs: .*; did you mean 'label'"):
        session.run(["lable"], {"x": _data()})
    with pytest.raises(InputError, match="no input is named 'z'"):
        session.io_binding().bind_cpu_input("z", _data())
