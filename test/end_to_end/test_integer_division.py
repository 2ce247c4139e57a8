"""Division of integers by zero, and of the minimum by -1: the program continues with some result."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from c_compiler import with_c
from commands import output_of, python
from onnx import helper, numpy_helper

# In a process of its own: a division that stops the program would take the tests along.
DIVIDE = """
import json, sys
import numpy as np, onnx, mirlo
values = np.array(json.loads(sys.argv[2]))
for path in sys.argv[3:]:
    model = onnx.load(path)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    x, y = values.astype(dtype)
    found = mirlo.compile(model, sys.argv[1], cache=False).run({"x": x, "y": y})
    print(json.dumps([int(number) for number in found["z"]]))
"""
OPERATORS = {"Div": {}, "Mod": {}, "fmod": {"fmod": 1}}


def model_of(operator: str, dtype: Any, count: int) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Mod" if operator == "fmod" else operator, ["x", "y"], ["z"], **OPERATORS[operator])
    x, y, z = (helper.make_tensor_value_info(name, kind, [count]) for name in "xyz")
    graph = helper.make_graph([node], "division", [x, y], [z])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


PAIRS = [("llvm", dtype) for dtype in (np.int8, np.int32, np.int64, np.uint8)]
PAIRS += [with_c(target, dtype) for target in ("c", "c,llvm") for dtype in (np.int32, np.int64)]


@pytest.mark.parametrize(("target", "dtype"), PAIRS)
def test_divisors_that_there_are_none_for(tmp_path: Any, target: str, dtype: Any) -> None:
    """In whole vectors, and in the scalar remainder."""
    least = int(np.iinfo(dtype).min)
    rows = [[7, -7 if least else 9, least, 5, least], [0, 0, -1 if least else 0, -1 if least else 1, 2]]
    if least:
        wanted = {"Div": [0, 0, least, -5, least // 2], "Mod": [0] * 5, "fmod": [0] * 5}
    else:
        wanted = {"Div": [0, 0, 0, 5, 0], "Mod": [0] * 5, "fmod": [0] * 5}
    values = [(row * 8)[:37] for row in rows]
    paths = [tmp_path / f"{operator}.onnx" for operator in OPERATORS]
    for operator, path in zip(OPERATORS, paths, strict=True):
        onnx.save(model_of(operator, dtype, 37), path)
    printed = output_of(python("-c", DIVIDE, target, json.dumps(values), *paths)).splitlines()
    assert [json.loads(line) for line in printed] == [(wanted[operator] * 8)[:37] for operator in OPERATORS]


# The lanes of a tile that are off hold zeros.
FUSED = """
import sys
import numpy as np, onnx, mirlo
a, b = np.uint8([[1], [1]]), np.int32([[-5, 7], [-2, 6]])
print(mirlo.compile(onnx.load(sys.argv[1]), cache=False).run({"a": a, "b": b})["z"].tolist())
"""


@pytest.mark.sample(0)
@pytest.mark.parametrize("fmod", [0, 1])
def test_the_remainder_of_a_product(tmp_path: Any, fmod: int) -> None:
    product = helper.make_node("MatMulInteger", ["a", "w"], ["y"])
    nodes = [product, helper.make_node("Mod", ["y", "b"], ["z"], fmod=fmod)]
    shapes = {"a": (onnx.TensorProto.UINT8, [2, 1]), "b": (onnx.TensorProto.INT32, [2, 2])}
    given = [helper.make_tensor_value_info(name, *found) for name, found in shapes.items()]
    made = [helper.make_tensor_value_info("z", onnx.TensorProto.INT32, [2, 2])]
    weights = [numpy_helper.from_array(np.int8([[5, 3]]), "w")]
    graph = helper.make_graph(nodes, "remainder", given, made, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    printed = output_of(python("-c", FUSED, tmp_path / "m.onnx"))
    # Python's remainder has the divisor's sign, that of C the dividend's.
    assert json.loads(printed) == ([[0, 3], [1, 3]] if fmod else [[0, 3], [-1, 3]])
