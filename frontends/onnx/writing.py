"""Messages for the `onnx` package: nodes and models that it checks, and models that other programs run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.core.dtypes import DTYPES
from mirlo.frontends.onnx import graph as G
from mirlo.frontends.onnx.dtypes import FIELDS, onnx_code
from mirlo.frontends.onnx.graph import (
    AttributeDef,
    FunctionDef,
    GraphDef,
    ModelDef,
    NodeDef,
    TensorDef,
    TypeDef,
    ValueDef,
)
from mirlo.frontends.onnx.reading import read_values
from mirlo.frontends.onnx.values import AnyValue
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import MAP, SEQUENCE, STRING, Kind

if TYPE_CHECKING:
    import onnx

MAX_SHAPE_ELEMENTS = 1024
"""Larger constants do not determine shapes."""
_PREFIX = re.compile(r"^.*\[(?:ShapeInference|TypeInference)Error\] ?", re.DOTALL)
SMALL = 1024
"""Most bytes of a tensor that shape inference reads."""

Elements = Callable[[TensorDef], np.ndarray]
"""Returns the elements of a tensor."""


def node_message(node: NodeDef, elements: Elements | None = None) -> onnx.NodeProto:
    """Return the NodeProto of a node; `elements` reads tensors whose elements are written, else only small ones are."""
    import onnx

    result = onnx.NodeProto(
        name=node.name, op_type=node.operator, domain=node.domain, overload=node.overload,
        input=node.inputs, output=node.outputs,
    )  # fmt: skip
    result.attribute.extend(_attribute(each, elements) for each in node.attributes)
    return result


def model_message(model: ModelDef, elements: Elements | None = None) -> onnx.ModelProto:
    """Return the ModelProto of a model."""
    import onnx

    result = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer)
    result.opset_import.extend(_opsets(model.opsets))
    result.functions.extend(_function(each, elements) for each in model.functions.values())
    result.graph.CopyFrom(graph_message(model.graph, elements))
    return result


def graph_message(graph: GraphDef, elements: Elements | None = None) -> onnx.GraphProto:
    """Return the GraphProto of a graph."""
    import onnx

    result = onnx.GraphProto(name=graph.name)
    result.node.extend(node_message(node, elements) for node in graph.nodes)
    result.input.extend(map(_value, graph.inputs))
    result.output.extend(map(_value, graph.outputs))
    result.value_info.extend(map(_value, graph.values))
    result.initializer.extend(_tensor(tensor, elements) for tensor in graph.initializers)
    return result


def _opsets(versions: Mapping[str, int]) -> Iterable[onnx.OperatorSetIdProto]:
    from onnx import helper

    return (helper.make_opsetid(domain, version) for domain, version in versions.items())


def _function(function: FunctionDef, elements: Elements | None) -> onnx.FunctionProto:
    import onnx

    names = {default.name for default in function.defaults}
    result = onnx.FunctionProto(
        name=function.name, domain=function.domain, overload=function.overload, input=function.inputs,
        output=function.outputs, attribute=sorted(function.attributes - names),
    )  # fmt: skip
    result.attribute_proto.extend(_attribute(each, elements) for each in function.defaults)
    result.node.extend(node_message(node, elements) for node in function.nodes)
    result.opset_import.extend(_opsets(function.opsets))
    return result


_VALUE_FIELDS = {
    G.FLOAT: "f", G.INT: "i", G.STRING: "s", G.FLOATS: "floats", G.INTS: "ints", G.STRINGS: "strings",
}  # fmt: skip


def _attribute(attribute: AttributeDef, elements: Elements | None) -> onnx.AttributeProto:
    import onnx

    result = onnx.AttributeProto(name=attribute.name, type=attribute.kind, ref_attr_name=attribute.reference)
    value = attribute.value
    if attribute.reference:
        return result
    if isinstance(value, TensorDef):
        result.t.CopyFrom(_tensor(value, elements))
    elif isinstance(value, GraphDef):
        result.g.CopyFrom(graph_message(value, elements))
    elif isinstance(value, TypeDef):
        result.tp.CopyFrom(_type(value))
    elif attribute.kind in _VALUE_FIELDS:
        field = _VALUE_FIELDS[attribute.kind]
        if isinstance(value, tuple):
            getattr(result, field).extend(value)
        else:
            setattr(result, field, value)
    elif isinstance(value, tuple):
        result.tensors.extend(_tensor(each, elements) for each in value if isinstance(each, TensorDef))
        result.graphs.extend(graph_message(each, elements) for each in value if isinstance(each, GraphDef))
    return result


def _value(value: ValueDef) -> onnx.ValueInfoProto:
    import onnx

    return onnx.ValueInfoProto(name=value.name, type=_type(value.type) if value.type.case else None)


def _type(declared: TypeDef) -> onnx.TypeProto:
    import onnx

    result = onnx.TypeProto()
    if declared.case in ("tensor", "sparse tensor"):
        tensor = result.tensor_type if declared.case == "tensor" else result.sparse_tensor_type
        tensor.elem_type = declared.code
        if declared.dims is not None:
            tensor.shape.SetInParent()
            for dim in declared.dims:
                tensor.shape.dim.add(**({} if dim is None else {_DIM_FIELDS[type(dim)]: dim}))
    elif declared.element is not None:
        inner = _type(declared.element)
        if declared.case == "map":
            result.map_type.key_type = declared.key
            result.map_type.value_type.CopyFrom(inner)
        else:
            getattr(result, f"{declared.case}_type").elem_type.CopyFrom(inner)
    return result


_DIM_FIELDS: dict[type, str] = {int: "dim_value", str: "dim_param"}


def _tensor(tensor: TensorDef, elements: Elements | None) -> onnx.TensorProto:
    import onnx

    result = onnx.TensorProto(name=tensor.name, data_type=tensor.code, dims=tensor.dims)
    if tensor.code == G.STRING_CODE:
        result.string_data.extend(tensor.strings)
    elif elements is not None:
        result.raw_data = onnx.numpy_helper.from_array(np.ascontiguousarray(elements(tensor))).raw_data
    elif tensor.raw is not None and len(tensor.raw) < SMALL:
        result.raw_data = bytes(tensor.raw)
    elif tensor.numbers is not None and tensor.code in FIELDS:
        getattr(result, FIELDS[tensor.code]).extend(tensor.numbers.tolist())
    return result


def type_message(kind: Kind) -> onnx.TypeProto:
    """Return the TypeProto of a kind."""
    from onnx import helper

    if kind.name == MAP and kind.key is not None and kind.element is not None:
        key_code = G.STRING_CODE if kind.key == STRING else onnx_code(DTYPES[kind.key])
        return helper.make_map_type_proto(key_code, type_message(kind.element))
    if kind.element is not None:
        make = helper.make_sequence_type_proto if kind.name == SEQUENCE else helper.make_optional_type_proto
        return make(type_message(kind.element))
    code = G.STRING_CODE if kind.name == STRING else onnx_code(DTYPES[kind.name])
    return helper.make_tensor_type_proto(code, None if kind.shape is None else list(kind.shape))


def inference_error(node: NodeDef, version: int, inputs: Sequence[AnyValue | None]) -> str | None:
    """Return why ONNX's shape inference refuses the node for these inputs; None if it does not."""
    import onnx
    from onnx import helper, numpy_helper

    if node.graphs:  # they may capture values of the enclosing graphs
        return None
    value_infos: dict[str, onnx.ValueInfoProto] = {}
    constants: list[onnx.TensorProto] = []
    for name, value in zip(node.inputs, inputs, strict=True):
        if value is None or name in value_infos:
            continue
        if not isinstance(value, Tensor):
            return None
        dims = [dim if isinstance(dim, int) else None for dim in value.type.shape]
        value_infos[name] = helper.make_tensor_value_info(name, onnx_code(value.type.dtype), dims)
        if value.known is not None and value.array is not None and value.known.size <= MAX_SHAPE_ELEMENTS:
            constants.append(numpy_helper.from_array(value.known, name))
    shown = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    graph = helper.make_graph([node_message(node)], "node", list(value_infos.values()), shown, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        return _PREFIX.sub("", str(error)).strip().rstrip(".") or "it is not valid"
    except Exception:  # inference is unavailable
        return None
    return None


def inferred_values(model: ModelDef) -> tuple[ValueDef, ...]:
    """Return the values and outputs of a model with the types that it declares or ONNX's shape inference finds."""
    import onnx

    graph = model.graph
    try:
        inferred = onnx.shape_inference.infer_shapes(model_message(model)).graph
    except Exception:  # its problems are reported elsewhere
        return (*graph.values, *graph.outputs)
    return read_values([*inferred.value_info, *inferred.output])
