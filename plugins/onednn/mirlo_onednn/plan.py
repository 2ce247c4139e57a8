"""The interface of the code generator and the loader: functions of library operations on tensors, as data.

A plan contains operations and constants but no layouts or implementations, which the library chooses when the plan is
loaded.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mirlo.extend.runtime import ArtifactError, numpy_dtype
from mirlo_onednn.sizes import evaluate, solve

VERSION = 1


@dataclass(frozen=True)
class PlanTensor:
    """Type of a value."""

    shape: tuple[Any, ...]
    """Numbers; in a plan, dynamic dims are text (`sizes`)."""
    dtype: str


@dataclass(frozen=True)
class PostOp:
    """An elementwise operation on a result before it is stored: `eltwise`, or `binary` with an operand."""

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: str = ""
    """Name of the second operand of a binary one; it broadcasts to the result."""


@dataclass(frozen=True)
class PrimitiveNode:
    """One library operation, or a view: operands by role, one result, attributes of the operation."""

    op: str
    operands: dict[str, str]
    result: str
    attributes: dict[str, Any] = field(default_factory=dict)
    post_ops: tuple[PostOp, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the names of all values that a step reads."""
        return (*self.operands.values(), *(post.operand for post in self.post_ops if post.operand))


@dataclass(frozen=True)
class PrimitiveRegion:
    """A region: values by name, the inputs and outputs among them, and the nodes in topological order."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: dict[str, PlanTensor]
    nodes: tuple[PrimitiveNode, ...]
    params: dict[str, str] = field(default_factory=dict)
    """Values that are parameters, with their names in the parameter store."""
    literals: dict[str, np.ndarray] = field(default_factory=dict)
    """Values that are small constants."""

    @property
    def boundary(self) -> tuple[str, ...]:
        """Return the values in the caller's tensors: the inputs, then the outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def dynamic_dims(self) -> tuple[tuple[int, int, str], ...]:
        """Return the dims that a call determines: index of the tensor, axis, text."""
        return tuple(
            (number, axis, dim)
            for number, name in enumerate(self.boundary)
            for axis, dim in enumerate(self.tensors[name].shape)
            if isinstance(dim, str)
        )

    def for_sizes(self, values: Sequence[int]) -> PrimitiveRegion:
        """Return the function with its dynamic dims set to these sizes."""
        known = solve((text, value) for (_, _, text), value in zip(self.dynamic_dims, values, strict=True))
        tensors = {
            name: PlanTensor(tuple(evaluate(dim, known) for dim in tensor.shape), tensor.dtype)
            for name, tensor in self.tensors.items()
        }
        return replace(self, tensors=tensors)


@dataclass(frozen=True)
class OneDnnPlan:
    """The functions of an artifact."""

    functions: tuple[PrimitiveRegion, ...]

    @property
    def params(self) -> tuple[str, ...]:
        """Return the names of all parameters used."""
        return tuple(dict.fromkeys(name for function in self.functions for name in function.params.values()))


def write(plan: OneDnnPlan) -> bytes:
    """Write the plan as JSON."""
    document = {"version": VERSION, "functions": [_function_json(function) for function in plan.functions]}
    return json.dumps(document, separators=(",", ":")).encode()


def read(data: bytes) -> OneDnnPlan:
    """Read a plan from its JSON."""
    try:
        document = json.loads(data)
        version = document["version"]
        if version != VERSION:
            raise ArtifactError(f"artifact for oneDNN has version {version}, this Mirlo reads {VERSION}: compile again")
        return OneDnnPlan(tuple(_function(row) for row in document["functions"]))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ArtifactError(
            f"artifact for oneDNN is damaged ({type(problem).__name__}: {problem}): compile again"
        ) from None


def _function_json(function: PrimitiveRegion) -> dict[str, Any]:
    return {
        "name": function.name,
        "inputs": function.inputs,
        "outputs": function.outputs,
        "tensors": {name: [tensor.dtype, *tensor.shape] for name, tensor in function.tensors.items()},
        "params": function.params,
        "literals": {
            name: base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
            for name, value in function.literals.items()
        },
        "nodes": [_node_json(node) for node in function.nodes],
    }


def _node_json(node: PrimitiveNode) -> dict[str, Any]:
    row: dict[str, Any] = {"op": node.op, "operands": node.operands, "result": node.result}
    if node.attributes:
        row["attributes"] = node.attributes
    if node.post_ops:
        row["post_ops"] = [[p.kind, p.algorithm, p.alpha, p.beta, p.operand] for p in node.post_ops]
    return row


def _function(row: Mapping[str, Any]) -> PrimitiveRegion:
    tensors = {name: PlanTensor(tuple(dims), dtype) for name, (dtype, *dims) in row["tensors"].items()}
    literals = {
        name: np.frombuffer(base64.b64decode(text), numpy_dtype(tensors[name].dtype)).reshape(tensors[name].shape)
        for name, text in row["literals"].items()
    }
    function = PrimitiveRegion(
        name=row["name"],
        inputs=tuple(row["inputs"]),
        outputs=tuple(row["outputs"]),
        tensors=tensors,
        nodes=tuple(_node(entry) for entry in row["nodes"]),
        params=dict(row["params"]),
        literals=literals,
    )
    known = {*function.inputs, *function.params, *function.literals}
    for node in function.nodes:
        missing = [name for name in node.reads if name not in known]
        if missing:
            raise KeyError(missing[0])
        known.add(node.result)
    return function


def _node(row: Mapping[str, Any]) -> PrimitiveNode:
    attributes = {name: tuple(v) if isinstance(v, list) else v for name, v in row.get("attributes", {}).items()}
    post_ops = tuple(PostOp(*entry) for entry in row.get("post_ops", ()))
    return PrimitiveNode(row["op"], dict(row["operands"]), row["result"], attributes, post_ops)
