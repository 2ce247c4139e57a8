"""ONNX's own cases on sequences, optional values and strings, each compiled and compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from node_cases import leave_out_slow_cases

import mirlo
from mirlo.testing import oracle


def _is_on_objects(model: onnx.ModelProto) -> bool:
    types = [value.type for value in (*model.graph.input, *model.graph.output)]
    return any(
        each.WhichOneof("value") != "tensor_type" or each.tensor_type.elem_type == onnx.TensorProto.STRING
        for each in types
    )  # fmt: skip


def _compare(actual: Any, expected: Any, name: str) -> None:
    assert (actual is None) == (expected is None), name
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), name
        for a, b in zip(actual, expected, strict=True):
            _compare(a, b, name)
    elif isinstance(expected, Mapping):
        assert actual == expected, name
    elif expected is not None:
        number = np.asarray(expected)
        assert np.shape(actual) == number.shape, name
        np.testing.assert_array_equal(actual, number.astype(object) if number.dtype.kind in "UO" else number, name)


@oracle.needs_onnx(1, 19)
def test_cases_on_objects_give_what_onnx_expects() -> None:
    leave_out_slow_cases()
    from onnx.backend.test.case.node import collect_testcases

    cases = [case for case in collect_testcases(None) if case.model is not None and _is_on_objects(case.model)]
    assert len(cases) > 50
    for case in cases:
        program = mirlo.compile(case.model, opt_level=0)
        for inputs, expected in case.data_sets:
            results = program(*inputs)
            _compare(results if len(expected) > 1 else [results], expected, case.name)
