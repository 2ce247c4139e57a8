"""Nodes to relax operations: constants, folding of shape arithmetic, converters, expansion of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx import functions, schema
from mirlo.frontends.onnx.attributes import Attributes
from mirlo.frontends.onnx.constants import INLINE_ELEMENTS, dense
from mirlo.frontends.onnx.errors import NodeError, OnnxImportError
from mirlo.frontends.onnx.fold import fold
from mirlo.frontends.onnx.graph import Step, steps
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.node import Node, relax_op
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.values import Value, constant
from mirlo.runtime.params import ParameterStore

EXPANSION_DEPTH = 32
"""Functions that call functions deeper than this call themselves, or might as well."""


class Scope:
    """The values of one graph or function body, by name, and those of the graphs around it."""

    def __init__(
        self, opsets: Mapping[str, int], parent: Scope | None = None, prefix: str = "", depth: int = 0
    ) -> None:
        self.opsets = opsets
        self.parent = parent
        self.prefix = prefix
        self.depth = depth
        self.values: dict[str, Value | None] = {}
        """None stands for a value that could not be made; what depends on it is skipped."""

    def define(self, value: Value) -> None:
        self.values[value.name] = value

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise KeyError(name)

    def outer_names(self) -> set[str]:
        names: set[str] = set()
        scope = self.parent
        while scope is not None:
            names |= scope.values.keys()
            scope = scope.parent
        return names


class Body:
    """The import of one function body; operations go to the current insertion point."""

    def __init__(self, model: LoadedModel, store: ParameterStore, named_tensors: Mapping[str, Any]) -> None:
        self.model = model
        self.store = store
        self.problems: list[str] = []
        self._named_tensors = named_tensors
        self._scope: list[Scope] = []
        self._file = ir.Location.current

    # What nodes ask for (node.Builder)

    def ssa(self, value: Value) -> Any:
        if value.ir is not None:
            return value.ir
        assert value.known is not None
        if value.is_symbolic:
            assert value.compute is not None
            value.ir = value.compute()
        elif value.known.size <= INLINE_ELEMENTS:
            value.ir = relax_op("constant").make(value=dense(value.known, value.type), result_types=[value.type])
        else:
            value.ir = relax_op("constant").make(param=self._parameter(value), result_types=[value.type])
        return value.ir

    def array(self, tensor: Any) -> np.ndarray:
        return self.model.weights.array(tensor)

    def branch(self, graph: Any) -> list[Value]:
        outer = self._scope[-1]
        return self.graph(graph, Scope(outer.opsets, outer, outer.prefix, outer.depth))

    # Graphs and nodes

    def graph(self, graph: Any, scope: Scope) -> list[Value]:
        """Import the nodes of a graph; the values of its outputs."""
        for tensor in graph.initializer:
            array = self.model.weights.array(tensor)
            found = constant(tensor.name, array)
            found.tensor = tensor
            scope.define(found)
        wanted = [value.name for value in graph.output]
        return self.nodes(graph.node, wanted, scope)

    def nodes(self, nodes: Sequence[Any], wanted: Sequence[str], scope: Scope) -> list[Value]:
        ordered = steps(nodes, scope.values, scope.outer_names(), wanted, self.model.name, scope.prefix)
        self._scope.append(scope)
        for step in ordered:
            self._step(step, scope)
        self._scope.pop()
        found = [scope.find(name) for name in wanted]
        return [value for value in found if value is not None]

    def _step(self, step: Step, scope: Scope) -> None:
        outputs = list(step.proto.output)
        inputs = [scope.find(name) if name else None for name in step.proto.input]
        if any(name and value is None for name, value in zip(step.proto.input, inputs, strict=True)):
            scope.values.update(dict.fromkeys(outputs))
            return
        location = ir.Location.name(step.name, ir.Location.file(self.model.name, step.index + 1, 0))
        try:
            with location:
                values = self._convert(step, inputs, scope)
        except (NodeError, OpError) as error:
            self.problems.append(self._problem(step, inputs, error))
            scope.values.update(dict.fromkeys(outputs))
            return
        for name, value in zip(outputs, values, strict=False):
            if name:
                scope.values[name] = value

    def _convert(self, step: Step, inputs: list[Value | None], scope: Scope) -> list[Value]:
        domain, operator, outputs = step.domain, step.proto.op_type, list(step.proto.output)
        local = functions.local(self.model, domain, operator, getattr(step.proto, "overload", ""))
        if local is not None:
            return self._expand(local, step, inputs, scope)
        version = scope.opsets.get(domain)
        if version is None:
            raise NodeError(f"the model imports no version of the operator set '{domain or 'ai.onnx'}'")
        sig = schema.signature(domain, operator, version)
        attributes = Attributes(step.proto.attribute)
        if sig is not None:
            types = [value.type if value else None for value in inputs]
            schema.check(sig, types, len(outputs), attributes.names())

        def node() -> Node:
            return Node(operator, version, inputs, outputs, Attributes(step.proto.attribute), sig, self)

        def convert() -> Any:
            return self._run(node(), domain, version)

        folded = fold(node(), lambda: convert()[0])
        if folded is not None:
            return folded
        results = convert()
        if results is not NotImplemented:
            return [
                result if isinstance(result, Value) else Value(name, _type(result), ir=result)
                for name, result in zip(outputs, results, strict=False)
            ]
        body = functions.of_schema(step.proto, domain, version, inputs)
        if body is None:
            raise NodeError(f"{operator} is not supported with these attributes and inputs")
        return self._expand(body, step, inputs, scope)

    def _run(self, node: Node, domain: str, version: int) -> Any:
        """The outputs of a node by its converter; NotImplemented where there is none that takes it."""
        converter = CONVERTERS.find(domain, node.operator, version)
        if converter is None:
            return NotImplemented
        results = converter(node)
        if results is NotImplemented:
            return NotImplemented
        if node.attr.unread():
            raise NodeError(f"attribute '{node.attr.unread()[0]}' is not supported")
        if node.unread_inputs():
            raise NodeError(f"input '{node.input_name(node.unread_inputs()[0])}' is not supported")
        results = results if isinstance(results, (tuple, list)) else (results,)
        for index in range(len(results), len(node.outputs)):
            if node.has_output(index):
                raise NodeError(f"output #{index} ('{node.outputs[index]}') is not supported")
        return results

    def _expand(self, body: Any, step: Step, inputs: list[Value | None], scope: Scope) -> list[Value]:
        """Import a function's nodes in the place of the node that calls it."""
        if scope.depth >= EXPANSION_DEPTH:
            raise NodeError(f"functions are nested more than {EXPANSION_DEPTH} deep: '{body.name}' calls itself?")
        inner = Scope(functions.opsets(body, scope.opsets), None, f"{step.name}/", scope.depth + 1)
        if len(inputs) > len(body.input):
            raise NodeError(f"function '{body.name}' takes {len(body.input)} inputs, got {len(inputs)}")
        nodes = functions.instantiate(
            body, step.proto, [i < len(inputs) and inputs[i] is not None for i in range(len(body.input))]
        )
        for name, value in zip(body.input, inputs, strict=False):
            if value is not None:
                inner.values[name] = value
        wanted = list(body.output)[: len(step.proto.output)]
        before = len(self.problems)
        values = self.nodes(nodes, wanted, inner)
        if len(self.problems) > before:
            return [None for _ in wanted]  # type: ignore[misc]
        return values

    def _parameter(self, value: Value) -> str:
        """Put the elements of a value into the store; its name there is the model's, where that is free."""
        assert value.known is not None
        if (
            value.tensor is not None
            and self._named_tensors.get(value.name) is value.tensor
            and value.name not in self.store
        ):
            self.store.add(value.name, value.known, source=self.model.path)
            return value.name
        return self.store.add_unique(value.name or "constant", value.known)

    def _problem(self, step: Step, inputs: Sequence[Value | None], error: Exception) -> str:
        listed = ", ".join(f"'{value.name}' {value.type}" if value else "none" for value in inputs)
        text = str(error).removeprefix(f"{self.model.name}: ")
        return f"{self.model.name}: node '{step.name}' ({step.proto.op_type}): {text} [inputs: {listed or 'none'}]"


def _type(value: Any) -> TensorType:
    found = TensorType.from_mlir(value.type)
    if found is None:
        raise OnnxImportError(f"internal: a converter made {value.type}")
    return found
