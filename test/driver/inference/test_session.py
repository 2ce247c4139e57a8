"""`mirlo.InferenceSession`: the same calls give what ONNX Runtime gives, results and exceptions alike."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.driver.inference import errors
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
        [numpy_helper.from_array(weight, "w")], doc_string="of the graph",
    )  # fmt: skip
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, producer_name="a test", model_version=3,
        domain="org.example", doc_string="of the model",
    )  # fmt: skip
    helper.set_model_props(made, {"names": "{0: 'a', 1: 'ä'}", "stride": "32"})
    path = tmp_path_factory.mktemp("session") / "m.onnx"
    onnx.save(made, path)
    return str(path)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _data(rows: int = 5) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, 32)).astype(np.float32)


def _program(ort: Any, model: str) -> list[Any]:
    """Call a session in the way of programs written for ONNX Runtime."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: list[Any] = [[(a.name, a.shape, a.type) for a in (*session.get_inputs(), *session.get_outputs())]]
    found.extend([session.get_providers(), session.get_provider_options()])
    name = session.get_inputs()[0].name
    found.extend(session.run(None, {name: _data()}))
    found.extend(session.run(["label"], {name: _data(3)}))
    found.extend(session.run(["label", "label"], {name: _data(3).tolist()}, ort.RunOptions()))
    found.extend(session.run([], {name: np.asfortranarray(_data(3))}))
    binding = session.io_binding()
    binding.bind_cpu_input(name, _data())
    binding.bind_output("label")
    room = ort.OrtValue.ortvalue_from_numpy(np.zeros((5, 48), np.float32))
    binding.bind_ortvalue_output("y", room)
    session.run_with_iobinding(binding)
    found.extend(binding.copy_outputs_to_cpu())
    found.append(room.numpy())
    found.extend([value.shape(), value.data_type(), value.numpy()] for value in binding.get_outputs())
    given = {name: ort.OrtValue.ortvalue_from_numpy(_data(2))}
    found.extend(value.numpy() for value in session.run_with_ort_values(["label", "y"], given))
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


def test_the_metadata_of_the_file_is_told(model: str) -> None:
    found, expected = (ort.InferenceSession(model).get_modelmeta() for ort in (mirlo, onnxruntime))
    names = ("producer_name", "graph_name", "domain", "description", "graph_description", "version")
    assert [getattr(found, name) for name in names] == [getattr(expected, name) for name in names]
    assert found.custom_metadata_map == expected.custom_metadata_map == {"names": "{0: 'a', 1: 'ä'}", "stride": "32"}


_VALUES: list[Any] = [
    [1, 2], [1.5, 2.0], [True, False], [], [None], [300, -1], ["a", "b"], [[1, 2], [3]], [1, "a"], [np.int64(1)],
    [np.float32([1, 2]), np.float32([3, 4])], np.array(["a", 1, None, np.nan], object), np.array(["a", "bc"]), 1, "a",
    {"a": 1},
]  # fmt: skip
"""What is no array of the type of an input."""


@pytest.mark.parametrize("beside", ["", "s"], ids=["alone", "beside-strings"])
@pytest.mark.parametrize("kind", ["FLOAT", "INT64", "UINT8", "BOOL", "STRING"])
def test_lists_and_objects_become_arrays(kind: str, beside: str) -> None:
    """In models of tensors and in those that have strings too, which are programs."""
    ports = [("x", getattr(TensorProto, kind)), *((name, TensorProto.STRING) for name in beside)]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name, _ in ports]
    inputs = [helper.make_tensor_value_info(name, element, [None]) for name, element in ports]
    outputs = [helper.make_tensor_value_info(f"{name}_out", element, None) for name, element in ports]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    ours, theirs = mirlo.InferenceSession(made), onnxruntime.InferenceSession(made)
    for value in _VALUES:
        feed = {"x": value, **dict.fromkeys(beside, ["text"])}
        try:
            expected = theirs.run(None, feed)
        except Exception:
            with pytest.raises(mirlo.MirloError, match="input 'x'"):
                ours.run(None, feed)
        else:
            for result, array in zip(ours.run(None, feed), expected, strict=True):
                assert result.dtype == array.dtype
                np.testing.assert_array_equal(result, array)


_DIMS = [
    [None, 3], ["batch", 3], ["batch size", "?"], ["", 4], ["n", "n"], [2, 3], ["-1", 3], [],
]  # fmt: skip


@pytest.mark.parametrize("dims", _DIMS, ids=str)
def test_dims_are_told_as_the_file_declares_them(dims: list[Any]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Shape", ["x"], ["z"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims),
         helper.make_tensor_value_info("z", TensorProto.INT64, ["rank"])],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    found, expected = (
        [(a.name, a.shape, a.type) for a in (*s.get_inputs(), *s.get_outputs())]
        for s in (mirlo.InferenceSession(made), onnxruntime.InferenceSession(made))
    )
    assert found == expected


def test_inputs_with_a_default_value_are_initializers() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "w")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])], [numpy_helper.from_array(np.ones(3, "f"), "w")],
    )  # fmt: skip
    for version in (3, 9):
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=version)
        found, expected = (
            [[(a.name, a.shape, a.type) for a in part] for part in (s.get_inputs(), s.get_overridable_initializers())]
            for s in (ort.InferenceSession(made.SerializeToString()) for ort in (mirlo, onnxruntime))
        )
        assert found == expected


_WRONG: dict[str, Callable[[Any, Any], object]] = {
    "nothing": lambda ort, s: s.run(None, {}),
    "another input": lambda ort, s: s.run(None, {"z": _data()}),
    "an input too many": lambda ort, s: s.run(None, {"x": _data(), "z": _data()}),
    "another output": lambda ort, s: s.run(["q"], {"x": _data()}),
    "another type": lambda ort, s: s.run(None, {"x": _data().astype(np.float64)}),
    "another size": lambda ort, s: s.run(None, {"x": _data()[:, :8]}),
    "another rank": lambda ort, s: s.run(None, {"x": _data()[0]}),
    "text for names": lambda ort, s: s.run("label", {"x": _data()}),
    "options of another class": lambda ort, s: s.run(None, {"x": _data()}, 3),
    "terminated": lambda ort, s: s.run(None, {"x": _data()}, _terminated(ort)),
    "an input that is not bound": lambda ort, s: _bound(s, {}, ["y"]),
    "another input bound": lambda ort, s: _bound(s, {"z": _data()}, ["y"]),
    "a shape bound": lambda ort, s: _bound(s, {"x": _data()[:, :8]}, ["y"]),
    "a file that is not there": lambda ort, s: ort.InferenceSession("no-such-file.onnx"),
    "bytes of something else": lambda ort, s: ort.InferenceSession(b"not a model at all, but this text"),
    "a graph that contradicts itself": lambda ort, s: ort.InferenceSession(_contradiction()),
    "an option that there is not": lambda ort, s: setattr(ort.SessionOptions(), "intra_op_threads", 2),
    "an option of another type": lambda ort, s: setattr(ort.SessionOptions(), "intra_op_num_threads", "two"),
    "an entry that was not added": lambda ort, s: ort.SessionOptions().get_session_config_entry("no.such"),
    "an entry without a key": lambda ort, s: ort.SessionOptions().add_session_config_entry("", "1"),
    "a run's entry that was not added": lambda ort, s: ort.RunOptions().get_run_config_entry("no.such"),
    "a severity": lambda ort, s: ort.set_default_logger_severity(9),
    "a device": lambda ort, s: ort.OrtValue.ortvalue_from_numpy(_data(), "cuda", 0),
    "an update of another shape": lambda ort, s: ort.OrtValue.ortvalue_from_numpy(_data()).update_inplace(_data(2)),
}


def _terminated(ort: Any) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    return options


def _bound(session: Any, inputs: dict[str, np.ndarray], outputs: list[str]) -> None:
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name in outputs:
        binding.bind_output(name)
    session.run_with_iobinding(binding)


def _contradiction() -> bytes:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


def test_each_status_of_onnx_runtime_has_an_exception() -> None:
    """Its interface in C numbers 14 of them without a gap; those without a number of their own share one."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "status")]
    numbers = {(kind.code, kind.status) for kind in kinds}
    assert sorted(code for code, _ in numbers) == list(range(1, 15)) and len({text for _, text in numbers}) == 14
    assert {(6, "RUNTIME_EXCEPTION"), (9, "NOT_IMPLEMENTED"), (14, "NOT_FOUND")} <= numbers


@pytest.fixture(scope="module")
def sessions(model: str) -> dict[Any, Any]:
    return {mirlo: mirlo.InferenceSession(model), onnxruntime: onnxruntime.InferenceSession(model)}


@pytest.mark.parametrize("call", _WRONG.values(), ids=list(_WRONG))
def test_exceptions_are_those_that_programs_catch(sessions: dict[Any, Any], call: Callable[[Any, Any], object]) -> None:
    with pytest.raises(Exception) as expected:
        call(onnxruntime, sessions[onnxruntime])
    with pytest.raises(mirlo.MirloError) as found:
        call(mirlo, sessions[mirlo])
    caught = {kind.__name__ for kind in type(found.value).__mro__}
    if type(expected.value).__name__ == "Fail" and "InvalidGraph" in caught:
        return  # what is wrong with a graph has either status there
    assert type(expected.value).__name__ in caught
    if str(expected.value).startswith("[ONNXRuntimeError]"):
        assert str(found.value).split(" : ")[:3] == str(expected.value).split(" : ")[:3]


def test_a_terminated_run_writes_no_bound_array(sessions: dict[Any, Any]) -> None:
    for ort, session in sessions.items():
        room = np.zeros((5, 48), np.float32)
        binding = session.io_binding()
        binding.bind_cpu_input("x", _data())
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(room))
        with pytest.raises(RuntimeError, match="^Error in execution: .*terminate"):
            session.run_with_iobinding(binding, _terminated(ort))
        assert not room.any()


def test_a_run_on_another_thread_calls_back(sessions: dict[Any, Any]) -> None:
    answers = []
    for session in sessions.values():
        for rows in (_data(), _data()[:, :8]):
            done = threading.Event()

            def tell(results: list[Any], data: Any, error: str, done: threading.Event = done) -> None:
                answers.append((results, data, bool(error)))
                done.set()

            session.run_async(["label"], {"x": rows}, tell, "mine")
            assert done.wait(60)
    _assert_same(answers[:2], answers[2:])


def test_a_buffer_bound_by_its_address_is_written(model: str) -> None:
    session = mirlo.InferenceSession(model)
    data, room = _data(), np.zeros((5, 48), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, data.shape, data.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, room.shape, room.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(room, session.run(["y"], {"x": data})[0])


@pytest.mark.parametrize("kind", ["input", "output"])
def test_memory_of_a_device_is_refused(model: str, kind: str) -> None:
    binding, data = mirlo.InferenceSession(model).io_binding(), _data()
    bind = {"input": binding.bind_input, "output": binding.bind_output}[kind]
    name = {"input": "x", "output": "y"}[kind]
    with pytest.raises(mirlo.MirloError, match=f"{kind} '{name}'"):
        bind(name, "cuda", 0, np.float32, data.shape, data.ctypes.data)


def test_bytes_and_compiled_files_are_opened(model: str, tmp_path: Path) -> None:
    expected = mirlo.InferenceSession(model).run(None, {"x": _data()})
    options = mirlo.SessionOptions()
    options.optimized_model_filepath = tmp_path / "m.mirlo"
    session = mirlo.InferenceSession(Path(model).read_bytes(), options, cache=False)
    _assert_same(session.run(None, {"x": _data()}), expected)
    _assert_same(mirlo.InferenceSession(tmp_path / "m.mirlo").run(None, {"x": _data()}), expected)
    with pytest.raises(SessionOptionError, match="compiled already"):
        mirlo.InferenceSession(tmp_path / "m.mirlo", precision="bf16")


def test_a_dim_is_fixed_by_its_name(model: str) -> None:
    options = mirlo.SessionOptions()
    options.add_free_dimension_override_by_name("rows", 4)
    session = mirlo.InferenceSession(model, options)
    assert session.get_inputs()[0].shape == [4, 32]
    assert session.get_session_options() is options


def test_values_other_than_tensors_are_described_as_onnx_runtime_does() -> None:
    kinds = [
        helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
    ]
    graph = helper.make_graph(
        [helper.make_node("SequenceAt", ["x", "i"], ["y"])], "g", kinds,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = mirlo.InferenceSession(made.SerializeToString())
    expected = onnxruntime.InferenceSession(made.SerializeToString())
    assert [a.type for a in found.get_inputs()] == [a.type for a in expected.get_inputs()]
    feeds = {"x": [np.ones(2, np.float32), np.zeros(3, np.float32)], "i": np.array(1)}
    _assert_same(found.run(None, feeds), expected.run(None, feeds))
    binding = found.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, mirlo.OrtValue(value))
    room = mirlo.OrtValue.ortvalue_from_shape_and_type([3], np.float32)
    binding.bind_ortvalue_output("y", room)
    found.run_with_iobinding(binding)
    np.testing.assert_array_equal(room.numpy(), np.zeros(3, np.float32))


def test_calls_that_the_build_for_any_sizes_excludes() -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["s"]), helper.make_node("Squeeze", ["s"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    found, expected = mirlo.InferenceSession(made), onnxruntime.InferenceSession(made)
    for shape in ((2, 1, 3), (1, 1, 3), (1, 1, 5), (2, 1, 1), (1, 1, 1), (3, 1, 2), (1, 1, 4)):
        feed = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
        _assert_same(found.run(None, feed), expected.run(None, feed))
    assert len(found._builds) == 3


def test_models_in_memory_are_cached(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path(model).read_bytes()
    monkeypatch.setattr("mirlo.driver.build.MIN_COMPILE_SECONDS", 0)
    monkeypatch.setattr("mirlo.driver.model_cache.extended", lambda target: None)  # other tests extend the compiler
    expected = mirlo.InferenceSession(content, cache=tmp_path).run(None, {"x": _data()})
    monkeypatch.setattr("mirlo.driver.compiler.Compiler.run", lambda self: pytest.fail("it was compiled again"))
    _assert_same(mirlo.InferenceSession(content, cache=tmp_path).run(None, {"x": _data()}), expected)


def test_providers_that_are_not_here_are_left_out(model: str) -> None:
    wanted: list[Any] = [("CUDAExecutionProvider", {"device_id": 0}), "TensorrtExecutionProvider"]
    for chosen in (wanted, [*wanted, "CPUExecutionProvider"], ["CoreMLExecutionProvider"], []):
        with pytest.warns(UserWarning, match="not available here") if chosen else warnings.catch_warnings():
            session = mirlo.InferenceSession(model, providers=chosen)
        assert session.get_providers() == onnxruntime.InferenceSession(model, providers=chosen).get_providers()
    session.set_providers(["CPUExecutionProvider"], [{"arena_extend_strategy": "kSameAsRequested"}])
    assert session.get_provider_options() == {"CPUExecutionProvider": {"arena_extend_strategy": "kSameAsRequested"}}
    assert mirlo.get_available_providers() == ["CPUExecutionProvider"] and mirlo.get_device() == "CPU"


def test_what_cannot_apply_is_refused(model: str) -> None:
    options = mirlo.SessionOptions()
    with pytest.raises(SessionOptionError, match="mirlo.onnx_operator"):
        options.register_custom_ops_library("ops.so")
    with pytest.raises(SessionOptionError, match="there is no provider 'lvm'"):
        mirlo.InferenceSession(model, providers=["lvm"])
    with pytest.raises(SessionOptionError, match="expected a list of names, found 'CPUExecutionProvider'"):
        mirlo.InferenceSession(model, providers="CPUExecutionProvider")
    with pytest.raises(SessionOptionError, match="expected options for each of the 1 providers, found 2"):
        mirlo.InferenceSession(model, providers=["CPUExecutionProvider"], provider_options=[{}, {}])
    with pytest.raises(SessionOptionError, match="expected mirlo.SessionOptions"):
        mirlo.InferenceSession(model, onnxruntime.SessionOptions())  # type: ignore[arg-type]
    with pytest.raises(mirlo.MirloError, match="ONNX Runtime's own format"):
        mirlo.InferenceSession(b"\x18\0\0\0ORTM" + bytes(64))
    session = mirlo.InferenceSession(model)
    with pytest.raises(InputError, match="no output is named 'lable'; outputs: .*; did you mean 'label'"):
        session.run(["lable"], {"x": _data()})
    with pytest.raises(InputError, match="no input is named 'z'"):
        session.io_binding().bind_cpu_input("z", _data())
