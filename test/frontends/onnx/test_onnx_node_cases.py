"""ONNX's own cases with the inputs that determine shapes as constants; test/conformance runs them unchanged."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from node_cases import leave_out_slow_cases
from onnx import numpy_helper

import mirlo
from mirlo.dialects.context import make_context
from mirlo.frontends.onnx import OnnxImportError, import_model
from mirlo.frontends.onnx.registry import CONVERTERS, FOLDERS, load_converters
from mirlo.passes.graph.constants import constant_reader
from mirlo.passes.session import Session
from mirlo.runtime.errors import InputError, MirloError, UnmetAssumption
from mirlo.testing import oracle

# What the compiler cannot do yet, or does as ONNX Runtime does and not as ONNX's reference says.
GAPS = (
    "attention.*(bf16|fp16)",  # summed in f32 here, so not to the last bit
    "test_if|nonzero|scan_sum|range_float",  # control and shapes that depend on data
    "training|round_mode|e8m0|sequence_|_seq|_opt$|optional|string",  # not supported, and said so
)

DRAWN = frozenset({"Bernoulli"})
"""Operators whose results are random, of which the suite has cases."""


@cache
def _suite() -> list[Any]:
    leave_out_slow_cases()
    from onnx.backend.test.case.node import collect_testcases

    return [case for case in collect_testcases(None) if case.model is not None]


@cache
def _cases() -> dict[str, Any]:
    """Return a case of each operator."""
    found: dict[str, Any] = {}
    for case in _suite():
        nodes = case.model.graph.node
        left_out = "expanded" in case.name or any(re.search(gap, case.name) for gap in GAPS)
        if len(nodes) == 1 and not left_out and case.model.opset_import[0].version >= 7:
            found.setdefault(nodes[0].op_type, case)
    return found


def _operators() -> list[str]:
    load_converters()
    return sorted({operator for domain, operator in CONVERTERS.operators() if not domain})


@pytest.mark.sample(24)
@oracle.needs_onnx(1, 19)
@pytest.mark.parametrize("operator", _operators())
def test_case(operator: str) -> None:
    case = _cases().get(operator)
    if case is None:
        pytest.skip("ONNX has no case of one node")
    given, expected = ([_array(item) for item in side] for side in case.data_sets[0])
    model, inputs = _with_constants(case.model, given)
    results = mirlo.compile(model)(*inputs)
    for found, wanted in zip(results if isinstance(results, (list, tuple)) else (results,), expected, strict=True):
        found = np.asarray(found)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if operator in DRAWN:
            continue  # each implementation has a generator of its own
        if wanted.dtype.kind in "fV":  # V: bfloat16
            numbers = found.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(*numbers, rtol=case.rtol or 1e-3, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.sample(16)
@oracle.needs_onnx(1, 19)
@pytest.mark.parametrize("operator", _operators())
def test_constants_of_equal_elements(operator: str) -> None:
    """Replace each input by a constant of equal elements, which rules read without memory: results stay equal."""
    case = _cases().get(operator)
    if case is None or operator in DRAWN:
        pytest.skip("ONNX has no case of one node, or its results are random")
    model, given = _with_constants(case.model, [_array(item) for item in case.data_sets[0][0]])
    for number, value in enumerate(model.graph.input if len(given) > 1 else ()):
        inputs = list(given)
        element = 0.5 if given[number].dtype.kind == "f" else given[number].flat[:1]  # the mean of halves is exact
        inputs[number] = np.full(given[number].shape, element, given[number].dtype)
        made = onnx.ModelProto()
        made.CopyFrom(model)
        made.graph.initializer.append(numpy_helper.from_array(inputs[number], value.name))
        del made.graph.input[number]
        try:
            wanted = _results(model, inputs)
        except UnmetAssumption:
            continue  # other axes or sizes than the model's results have
        except InputError:  # not in the operator's domain: constants are refused, too
            with pytest.raises(MirloError, match=operator):
                _results(made, inputs[:number] + inputs[number + 1 :])
            continue
        found = _results(made, inputs[:number] + inputs[number + 1 :])
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=value.name, strict=True)


def test_padding_of_equal_elements() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        main (int64[6] pads) => (float[a, b, c] y) <float[1,1,2] x = {1.5, 1.5}, float v = {2.5}>
        { y = Pad <mode = "constant"> (x, pads, v) }""")
    (found,) = _results(model, [np.array([0, 1, 0, 1, 0, 2])])
    np.testing.assert_array_equal(
        found, np.pad(np.full((1, 1, 2), 1.5, "f4"), ((0, 1), (1, 0), (0, 2)), constant_values=2.5)
    )


def _results(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Compile without optimizations of graphs, in which no constant is folded."""
    results = mirlo.compile(model, opt_level=0)(*inputs)
    return [np.asarray(each) for each in (results if isinstance(results, (list, tuple)) else (results,))]


@oracle.needs_onnx(1, 19)
def test_folded_results_are_those_of_the_suite(whole: bool) -> None:
    """Import the cases whose operators are folded, with all inputs as constants: one in four, or all."""
    load_converters()
    count = 0
    for case in [case for case in _suite() if _is_folded(case.model)][:: 1 if whole else 4]:
        given, expected = case.data_sets[0]
        if not all(isinstance(value, np.ndarray) for value in (*given, *expected)):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        names = [value.name for value in model.graph.input]
        model.graph.initializer.extend(map(numpy_helper.from_array, given, names))
        del model.graph.input[:]
        with make_context() as context:
            module, store = import_model(model, context=context)
            results = list(list(module.body.operations[0].regions[0].blocks[0].operations)[-1].operands)
            for result, wanted in zip(results, expected, strict=True):
                if result.owner.name != "relax.constant":
                    continue  # as operands that are too large
                found = constant_reader(result, Session(store))()
                np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=case.name, strict=True)
                count += 1
    assert count > 60


def _is_folded(model: onnx.ModelProto) -> bool:
    """Return whether a model is one node whose operator is folded."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    node = model.graph.node[0]
    is_supported = len(model.graph.node) == 1 and min(opsets.values()) >= 7
    return is_supported and FOLDERS.find(node.domain, node.op_type, opsets.get(node.domain, 1)) is not None


def _array(item: Any) -> np.ndarray:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else np.asarray(item)


def _with_constants(model: onnx.ModelProto, given: list[np.ndarray]) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Return the model with shapes, axes and the like as initializers, as exporters write them."""
    if not _needs_constants(model):
        return model, given
    tells = [i for i, array in enumerate(given) if array.ndim <= 1 and (i or array.dtype.kind == "i" or len(given) > 2)]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    inputs = list(made.graph.input)
    made.graph.initializer.extend(numpy_helper.from_array(given[i], inputs[i].name) for i in tells)
    del made.graph.input[:]
    made.graph.input.extend(value for i, value in enumerate(inputs) if i not in tells)
    return made, [array for i, array in enumerate(given) if i not in tells]


def _needs_constants(model: onnx.ModelProto) -> bool:
    try:
        import_model(model)
    except OnnxImportError as error:
        return bool(re.search("must be a constant|depends on data|known at run time only", str(error)))
    return False
