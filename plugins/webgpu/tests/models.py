"""Small models in ONNX, and the check for a device with WebGPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import onnx
import pytest
from mirlo_webgpu.device import DeviceError, device
from onnx import TensorProto, helper, numpy_helper

KINDS = {
    "f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "i32": TensorProto.INT32, "u8": TensorProto.UINT8,
    "i8": TensorProto.INT8, "i16": TensorProto.INT16, "bool": TensorProto.BOOL, "f64": TensorProto.DOUBLE,
    "f16": TensorProto.FLOAT16,
}  # fmt: skip


@cache
def _missing() -> str:
    """Return why WebGPU is not available; empty if it is."""
    try:
        device()
    except DeviceError as error:
        return str(error)
    return ""


def needs_webgpu() -> pytest.MarkDecorator:
    """Skip tests, with a message, if there is no device with WebGPU."""
    return pytest.mark.skipif(bool(_missing()), reason=f"no WebGPU: {_missing()}")


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[str, Sequence[int | str]]], outputs: Mapping[str, str],
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """Return a model with inputs of types and shapes, and outputs of types."""
    values = [helper.make_tensor_value_info(n, KINDS[kind], shape) for n, (kind, shape) in inputs.items()]
    results = [helper.make_tensor_value_info(n, KINDS[kind], None) for n, kind in outputs.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "model", values, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
