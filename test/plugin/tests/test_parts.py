"""The unit as a code generator: parts of ONNX models, in its layouts, by commands of its driver."""

import mirlo_npu.device as device
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.testing import runs_as_onnxruntime


@pytest.fixture(autouse=True)
def unit():
    for found in (device.CALLS, device.TOKENS, device.ERRORS):
        found.clear()
    yield
    assert device.ERRORS == []
    assert not any(device.TOKENS.values())


def model_of(nodes, inputs, constants):
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    output = helper.make_tensor_value_info("y", 0, None)
    output.ClearField("type")
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "parts", values, [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def network():
    random = np.random.default_rng(0)
    constants = {
        "w1": random.standard_normal((8, 3, 3, 3), np.float32) / 4, "b1": random.standard_normal(8, np.float32),
        "w2": random.standard_normal((8, 1, 3, 3), np.float32) / 3,
        "w3": random.standard_normal((4, 8, 1, 1), np.float32) / 3,
        "fc": random.standard_normal((4, 12), np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="depthwise", group=8),
        helper.make_node("Sigmoid", ["c2"], ["s2"]),
        helper.make_node("Conv", ["s2", "w3"], ["c3"], name="last"),
        helper.make_node("GlobalAveragePool", ["c3"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "fc"], ["y"]),
    ]
    return model_of(nodes, {"x": (TensorProto.FLOAT, [4, 3, 13, 13])}, constants)


def test_numbers_and_commands(tmp_path):
    x = np.random.default_rng(1).standard_normal((4, 3, 13, 13), np.float32)
    executable = runs_as_onnxruntime(network(), {"x": x}, target="npu,llvm")
    # Two convolutions of four images, each with its kernel; the first has a bias as well.
    assert dict(device.CALLS) == {"NpuConv": 8, "NpuLoad": 8 + 2 + 1, "NpuStore": 8, "NpuSync": 2, "NpuGemm": 1}
    assert [(e.target, e.format, e.functions) for e in executable.artifact.externals] == [("npu", "npu-driver", ())]
    executable.save(tmp_path / "m.mirlo")
    np.testing.assert_array_equal(mirlo.load(tmp_path / "m.mirlo")(x), executable(x))


def test_layouts_are_those_of_the_unit_there_and_the_models_elsewhere():
    with make_context(), ir.Location.unknown():
        module, store = import_model(network())
        session = Session(store)
        steps = Pipeline(Targets.parse("npu,llvm").steps())
        steps.replace(
            "run-on-external", 'run-on-external{target=npu pipeline="convert-layout,hoist-layouts,fold-constant"}'
        )
        steps.remove("codegen-external").remove("inline-external").run(module, session)
        text = str(module)
    own, external = text[: text.index("module @npu")], text[text.index("module @npu") :]
    assert external.count('data_layout = "N*C"') == external.count('kernel_layout = "O*I"') == 2
    assert "tensor<8x3x3x3xf32>" in external and "relax.permute" not in external
    assert own.count('"relax.conv"') == 1 and "layout =" not in own and "groups = 8" in own
    (placement,) = [note for note in session.notes if isinstance(note, Placement)]
    reasons = {n.names[0]: placement.why_not(n.id, "npu") for n in placement.nodes if n.operator == "relax.conv"}
    assert reasons["first"] == reasons["last"] == ""
    assert "the unit has no groups and no dilations (groups=8" in reasons["depthwise"]


def test_bytes():
    random = np.random.default_rng(2)
    weight = random.integers(-8, 8, (6, 3, 3, 3)).astype(np.int8)
    nodes = [helper.make_node("ConvInteger", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    model = model_of(nodes, {"x": (TensorProto.INT8, [2, 3, 6, 5])}, {"w": weight})
    x = random.integers(-100, 100, (2, 3, 6, 5)).astype(np.int8)
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.int64))
    np.testing.assert_array_equal(mirlo.compile(model, "npu,llvm")(x), expected)
    assert device.CALLS["NpuConv"] == 2
