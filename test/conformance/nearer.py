"""Cases whose expected result is less exact than Mirlo's: decided by the same graph in f64, not by a list."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LESS_EXACT = re.compile(r"^(test_attention_.*fp16.*|test_dft_inverse(_opset19)?)_cpu$")
"""Cases whose reference rounds to f16 on the way, or has noise where the exact result is 0."""
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


def is_nearer(name: str) -> bool:
    """Return whether each element outside the tolerance is nearer to the result in f64 than the expected one is."""
    if not LESS_EXACT.match(name):
        return False
    from onnx.backend.test.loader import load_model_tests
    from onnx.reference import ReferenceEvaluator

    import mirlo

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = next(case for case in load_model_tests(kind="node") if case.name == name.removesuffix("_cpu"))
    inputs, expected = case.data_sets[0]
    names = [value.name for value in case.model.graph.input]
    found = mirlo.compile(case.model).run(dict(zip(names, inputs, strict=True)))
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    exact = ReferenceEvaluator(_in_f64(case.model)).run(None, dict(zip(names, wide, strict=True)))
    for value, other, best in zip(case.model.graph.output, expected, exact, strict=True):
        own, other = found[value.name].astype(np.float64), other.astype(np.float64)
        is_outside = ~np.isclose(own, other, rtol=case.rtol, atol=case.atol)
        if own.shape != other.shape or (abs(own - best) > abs(other - best))[is_outside].any():
            return False
    return True


def _in_f64(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that computes in f64 whatever it computes in f32 or f16."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in made.graph.initializer:
        _widen(tensor)
    for node in (*made.graph.node, *(node for function in made.functions for node in function.node)):
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "softmax_precision") and attribute.i in _FLOATS:
                attribute.i = TensorProto.DOUBLE
            if attribute.HasField("t"):
                _widen(attribute.t)
    return made


def _widen(tensor: Any) -> None:
    if tensor.data_type in _FLOATS:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
