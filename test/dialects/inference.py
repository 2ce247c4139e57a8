"""Running inference as numpy and ONNX Runtime run, for tests that compare them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from mirlo.dialects import relax
from mirlo.dialects.core.attributes import REQUIRED
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType

Shape = tuple[int, ...]


REFUSALS = (ValueError, IndexError, RuntimeError)
"""What numpy and ONNX Runtime raise for arguments that make no sense."""


def infer(name: str, *operands: Any, **given: Any) -> Any:
    """Return the inferred results for these operands: shapes of f32, `TensorType`s, None, or lists of them."""
    op = relax.OPS[name]
    values = {key: declared.default for key, declared in op._attributes.items()} | given
    assert values.keys() == op._attributes.keys() and REQUIRED not in values.values()
    return op.infer(*map(as_types, operands), **values)


def infer_or_none(*arguments: Any, **attributes: Any) -> Any:
    try:
        return shapes(infer(*arguments, **attributes))
    except OpError:
        return None


def as_types(operand: Any) -> Any:
    if operand is None or isinstance(operand, TensorType):
        return operand
    return [as_types(member) for member in operand] if isinstance(operand, list) else TensorType.of(operand, "f32")


def shapes(inferred: Any) -> Any:
    return [t.shape for t in inferred] if isinstance(inferred, tuple) else inferred.shape


def agree(expected: Callable[[], Any], found: Callable[[], Any], what: Any) -> bool:
    """Both refuse, or both give the same; returns whether they gave something."""
    try:
        reference = expected()
    except REFUSALS:
        with pytest.raises(OpError):
            pytest.fail(f"{what}: the reference refuses, but inference gives {found()}")
        return False
    assert found() == reference, what
    return True


def onnx_shape(op_type: str, inputs: list[np.ndarray], **attributes: Any) -> Shape:
    """Shape of the first output of one ONNX operator, run by ONNX Runtime."""
    import onnxruntime

    names = [f"x{i}" for i in range(len(inputs))]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op_type, names, ["y"], **attributes)],
        "one",
        [onnx.helper.make_tensor_value_info(n, k, x.shape) for n, k, x in zip(names, kinds, inputs, strict=True)],
        [onnx.helper.make_empty_tensor_value_info("y")],
    )
    graph.output[0].type.tensor_type.elem_type = kinds[0]
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, dict(zip(names, inputs, strict=True)))[0].shape
    except Exception as error:  # its exceptions have no base class of their own
        raise RuntimeError(str(error)) from error


def zeros(shape: Shape) -> np.ndarray:
    return np.zeros(shape, np.float32)


def random_shape(rng: random.Random, rank: int, low: int = 1, high: int = 5) -> Shape:
    return tuple(rng.randint(low, high) for _ in range(rank))


FAR = [2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]


def random_slice(rng: random.Random, rank: int) -> dict[str, Shape]:
    axes = rng.sample(range(rank), rng.randint(0, rank))
    position = lambda: rng.choice([rng.randint(-7, 7), rng.randint(-7, 7), rng.choice(FAR)])  # noqa: E731
    return {
        "axes": tuple(rng.choice([axis, axis - rank]) for axis in axes),
        "begin": tuple(position() for _ in axes),
        "end": tuple(position() for _ in axes),
        "strides": tuple(rng.choice([1, 1, 2, 3, -1, -2]) for _ in axes),
    }
