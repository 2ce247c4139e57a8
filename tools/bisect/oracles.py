"""The oracles: references that compute every value of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mirlo.runtime.errors import MirloError
from mirlo.tools.bisect.compare import ModelValue
from mirlo.tools.bisect.declared import evaluated_operators, later_operators

Values = dict[str, ModelValue]
Oracle = Callable[["onnx.ModelProto", Mapping[str, ModelValue], Sequence[str]], Values]
"""Computes the values with these names of a ModelProto for arrays by input name."""


class OracleError(MirloError):
    """An oracle that cannot compute the model."""

    error_code = "MIR0704"
    remedy = "Name another oracle, which knows the operators of the model."


def reference(model: onnx.ModelProto, feeds: Mapping[str, ModelValue], names: Sequence[str]) -> Values:
    """Compute values with the reference evaluator of the `onnx` package: slow, in numpy, by the specification.

    Nodes that it has no implementation of are computed with ONNX Runtime, where that is installed.
    """
    try:
        return _evaluate(model, feeds, names)
    except OracleError as problem:
        try:
            return _by_node(model, feeds, names, (_evaluate, onnxruntime))
        except OracleError as other:
            raise problem from other


def _evaluate(model: onnx.ModelProto, feeds: Mapping[str, ModelValue], names: Sequence[str]) -> Values:
    operators = [*later_operators(model), *evaluated_operators()]
    try:
        values = ReferenceEvaluator(model, new_ops=operators).run(None, dict(feeds), intermediate=True)
    except Exception as error:
        raise OracleError(
            f"onnx's reference evaluator cannot run the model: {_short(error)}; it knows the operators of plug-ins "
            "that are classes with ONNX and meaning"
        ) from error
    return {name: values[name] for name in names if name in values}


def onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, ModelValue], names: Sequence[str]) -> Values:
    """Compute values with ONNX Runtime on the CPU, without its optimizations."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise OracleError("onnxruntime is not installed: 'pip install onnxruntime', or --against reference") from None
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip(names, session.run(list(names), dict(feeds)), strict=True))
    except Exception as error:
        raise OracleError(f"ONNX Runtime cannot run the model: {_short(error)}; try --against reference") from error


def either(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> Values:
    """Compute values node by node with ONNX Runtime, and with the reference evaluator where that fails."""
    return _by_node(model, feeds, names, (onnxruntime, _evaluate))


def _by_node(
    model: onnx.ModelProto, feeds: Mapping[str, ModelValue], names: Sequence[str], oracles: Sequence[Oracle]
) -> Values:
    """Compute values node by node, each with the first of the oracles that can."""
    values: Values = {**{tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}, **feeds}
    for node in model.graph.node:
        outputs = [name for name in node.output if name]
        operands = {name: np.asarray(values[name]) for name in (*node.input, *_captured(node)) if name in values}
        kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in operands.items()}
        inputs = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in operands.items()]
        alone = onnx.ModelProto()
        alone.CopyFrom(model)
        shown = [helper.make_empty_tensor_value_info(name) for name in outputs]
        alone.graph.CopyFrom(helper.make_graph([node], node.name or node.op_type, inputs, shown))
        values.update(_first_answer(alone, operands, outputs, oracles))
    return {name: values[name] for name in names}


def _captured(node: onnx.NodeProto) -> list[str]:
    """Return the names that the subgraphs of a node read."""
    graphs = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
    return [name for graph in graphs for inner in graph.node for name in (*inner.input, *_captured(inner))]


def _first_answer(
    model: onnx.ModelProto, feeds: Mapping[str, ModelValue], names: Sequence[str], oracles: Sequence[Oracle]
) -> Values:
    problem: OracleError | None = None
    for oracle in oracles:
        try:
            return oracle(model, feeds, names)
        except OracleError as error:
            problem = problem or error
    raise problem or OracleError("there is no oracle")


ORACLES: dict[str, Oracle] = {"reference": reference, "onnxruntime": onnxruntime}


def _short(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return text if len(text) <= 300 else f"{text[:297]}..."
