"""The entry function of a model: what LLVM is given does not grow faster than the model."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.targets.llvm import object_code

COUNT = 300


@pytest.fixture
def functions(monkeypatch):
    """Return the number of arguments of each function that LLVM is given with a body, by name."""
    found = {}
    original = object_code.generate

    def record(module, *rest):
        for op in module.body.operations:
            if op.operation.name == "llvm.func" and len(op.operation.regions[0].blocks):
                name = ir.StringAttr(op.operation.attributes["sym_name"]).value
                found[name] = len(op.operation.regions[0].blocks[0].arguments)
        return original(module, *rest)

    monkeypatch.setattr(object_code, "generate", record)
    return found


@pytest.mark.sample(0)
def test_arguments_of_main_do_not_grow_with_the_model(functions):
    names = [f"x{i}" for i in range(COUNT)]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([helper.make_node("Sum", names, ["y"])], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    executable = mirlo.compile(model, cache=False, jobs=1)
    feeds = {name: np.full(5, i, np.float32) for i, name in enumerate(names)}
    np.testing.assert_array_equal(executable.run(feeds)["y"], np.full(5, sum(range(COUNT)), np.float32))
    assert functions["main"] == 4  # tables of tensors and of weights, arena, profile
