"""Operators that are composed here of another operator, with nodes before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import dtype_of_array
from mirlo.frontends.onnx.dtypes import onnx_code
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import MICROSOFT, FunctionDef, NodeDef, node_of, tensor_of
from mirlo.frontends.onnx.values import AnyValue
from mirlo.frontends.tensor import Tensor

OPSET = 21
NORM_EPSILON = 1e-6
"""Added to the sum of squares of a head."""
GATED_DELTA_NET = (
    "query", "key", "value", "cu_seqlens", "decay", "beta", "initial_state", "a_log", "dt_bias", "capture_count",
    "state_update_active",
)  # fmt: skip
NEEDS = {"linear": (), "gated": ("decay",), "delta": ("beta",), "gated_delta": ("decay", "beta")}
"""The inputs of each rule of a recurrence."""


class _Function:
    """A function body under construction."""

    def __init__(self, name: str, node: NodeDef, inputs: Sequence[AnyValue | None], names: Sequence[str]) -> None:
        self.name = name
        self.nodes: list[NodeDef] = []
        self._attributes = {attribute.name: attribute.value for attribute in node.attributes}
        self._types = {
            name: value.type for name, value in zip(names, inputs, strict=False) if isinstance(value, Tensor)
        }

    def has(self, name: str) -> bool:
        return name in self._types

    def type_of(self, name: str) -> TensorType:
        """Return the type of an input."""
        if name not in self._types:
            raise NodeError(f"input '{name}' is needed")
        return self._types[name]

    def text(self, name: str, default: str) -> str:
        attribute = self._attributes.get(name)
        return attribute.decode("utf-8", "replace") if isinstance(attribute, bytes) else default

    def number(self, name: str, default: float) -> float:
        attribute = self._attributes.get(name)
        return float(attribute) if isinstance(attribute, (int, float)) else default

    def sizes(self, name: str, count: int) -> list[int]:
        """Return the last dims of an input, which must be known."""
        tensor_type = self.type_of(name)
        last = [dim for dim in tensor_type.shape[-count:] if isinstance(dim, int) and dim > 0]
        if len(last) != count:
            raise NodeError(f"the last {count} dims of input '{name}' must be known, got {tensor_type}")
        return last

    def add(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: object) -> str:
        """Add a node; return the name of its first output, which the others follow with numbers."""
        index = len(self.nodes)
        name = f"_{index}"
        names = [name, *(f"{name}.{i}" for i in range(1, outputs))]
        self.nodes.append(node_of(operator, inputs, names, domain=domain, index=index, **attributes))
        return name

    def constant(self, value: object, dtype: type = np.int64) -> str:
        array: np.ndarray = np.asarray(value, dtype)
        return self.add("Constant", value=tensor_of(array, onnx_code(dtype_of_array(array))))

    def rename(self, value: str, output: str) -> None:
        """Rename a value to that of an output."""
        self.nodes.append(node_of("Identity", [value], [output], index=len(self.nodes)))

    def finish(self, inputs: Sequence[str], outputs: Sequence[str]) -> FunctionDef:
        opsets = {"": OPSET, MICROSOFT: 1}
        attributes = frozenset(self._attributes)
        return FunctionDef(
            self.name, "mirlo", "", tuple(inputs), tuple(outputs), tuple(self.nodes), attributes, opsets=opsets
        )


def gated_delta_net(node: NodeDef, inputs: Sequence[AnyValue | None]) -> FunctionDef:
    """Return `GatedDeltaNet` as gates and norms before `LinearAttention`, all in f32.

    Heads of queries and keys are repeated for the heads of values, and the state is transposed.
    """
    output = _Function("GatedDeltaNet", node, inputs, GATED_DELTA_NET)
    rule = output.text("update_rule", "gated_delta")
    if rule not in NEEDS:
        raise NodeError(f"attribute 'update_rule' must be one of {', '.join(NEEDS)}, got '{rule}'")
    parts, (keys, heads, size, width) = _parts(output)
    rank = output.type_of("query").rank
    if rank == 3 and output.has("key") and not output.has("initial_state"):
        raise NodeError("input 'initial_state' is needed: its first dim says how many sequences there are")
    is_split = rank == (4 if output.has("key") else 3)
    outer = _batch_and_length(output, is_split)

    def shaped(value: str, *dims: int) -> str:
        return output.add("Reshape", value, output.add("Concat", outer, output.constant(dims), axis=0))

    if output.number("qk_l2_norm", 0):
        parts[:2] = [_normalized(output, part) for part in parts[:2]]
    columns = [shaped(part, keys, 1, size) for part in parts[:2]]
    repeated = [output.add("Expand", column, output.constant([1, 1, 1, heads // keys, 1])) for column in columns]
    spread = [shaped(each, heads * size) for each in repeated]
    gates = {name: _gate(output, name) if name in NEEDS[rule] else "" for name in ("decay", "beta")}
    for name, value in gates.items():
        if value:
            is_each = name == "decay" and output.type_of(name).rank == rank + (not output.has("key"))
            gates[name] = shaped(value, heads * size if is_each else heads)
    state = output.add("Transpose", "initial_state", perm=[0, 1, 3, 2]) if output.has("initial_state") else ""
    scale = output.number("scale", 0.0) or size**-0.5
    result = output.add(
        "LinearAttention", *spread, shaped(parts[2], heads * width), state, *gates.values(), domain=MICROSOFT,
        outputs=2, update_rule=rule, q_num_heads=heads, kv_num_heads=heads, scale=scale,
    )  # fmt: skip
    rows = shaped(result, heads, width)
    if not is_split:
        rows = output.add("Reshape", rows, output.constant([-1, heads, width]))
    output.rename(output.add("CastLike", rows, "query"), "output")
    output.rename(output.add("Transpose", f"{result}.1", perm=[0, 1, 3, 2]), "final_state")
    return output.finish(GATED_DELTA_NET, ("output", "final_state"))


def _batch_and_length(body: _Function, is_split: bool) -> str:
    """Return the first dims of the query; those of packed tokens if the number of sequences is that of the states."""
    if is_split:
        return body.add("Slice", body.add("Shape", "query"), *map(body.constant, ([0], [2], [0])))
    batch = body.add("Slice", body.add("Shape", "initial_state"), *map(body.constant, ([0], [1], [0])))
    tokens = body.add("Slice", body.add("Shape", "query"), *map(body.constant, ([0], [1], [0])))
    return body.add("Concat", batch, body.add("Div", tokens, batch), axis=0)


def _parts(body: _Function) -> tuple[list[str], tuple[int, int, int, int]]:
    """Return queries, keys and values in f32, and the heads of keys, the heads of values, and their sizes."""
    if body.has("key") != body.has("value"):
        raise NodeError("inputs 'key' and 'value' must both be given, or none")
    if body.has("key"):
        (queries, size), (keys, other), (heads, width) = (body.sizes(name, 2) for name in ("query", "key", "value"))
        ranks = {body.type_of(name).rank for name in ("query", "key", "value")}
        if queries != keys or size != other or ranks not in ({3}, {4}):
            types = ", ".join(str(body.type_of(name)) for name in ("query", "key", "value"))
            raise NodeError(f"queries and keys of as many heads and sizes are expected, of rank 3 or 4, got {types}")
        parts = [body.add("Cast", name, to=1) for name in ("query", "key", "value")]
    else:
        (total,), (heads, width, size) = body.sizes("query", 1), body.sizes("initial_state", 3)
        keys, rest = divmod(total - heads * width, 2 * size)
        if rest or keys < 1:
            raise NodeError(
                f"input 'query' must hold queries, keys and values for states {body.type_of('initial_state')}"
            )
        sizes = body.constant([keys * size, keys * size, heads * width])
        first = body.add("Split", body.add("Cast", "query", to=1), sizes, axis=-1, outputs=3)
        parts = [first, f"{first}.1", f"{first}.2"]
        for i in (0, 1):
            parts[i] = body.add(
                "Reshape", parts[i], body.constant([*[0] * (body.type_of("query").rank - 1), keys, size])
            )
    if heads % keys:
        raise NodeError(f"the {heads} heads of values must be a multiple of the {keys} heads of keys")
    if body.has("initial_state") and tuple(body.type_of("initial_state").shape[1:]) != (heads, width, size):
        expected: tuple[Dim, ...] = (heads, width, size)
        raise NodeError(f"input 'initial_state' must be states {expected}, got {body.type_of('initial_state')}")
    return parts, (keys, heads, size, width)


def _normalized(body: _Function, part: str) -> str:
    """Divide each head by its norm."""
    squares = body.add("ReduceSumSquare", part, body.constant([-1]), keepdims=1)
    return body.add("Div", part, body.add("Sqrt", body.add("Add", squares, body.constant(NORM_EPSILON, np.float32))))


def _gate(body: _Function, name: str) -> str:
    """Return the decay or the rate of updates, after its activation."""
    body.type_of(name)  # raises an error if it is missing
    if name == "beta":
        kind = body.text("beta_activation", "none")
        if kind not in ("none", "sigmoid"):
            raise NodeError(f"attribute 'beta_activation' must be none or sigmoid, got '{kind}'")
        return body.add("Sigmoid", name) if kind == "sigmoid" else name
    kind = body.text("gate_activation", "none")
    if kind not in ("none", "qwen"):
        raise NodeError(f"attribute 'gate_activation' must be none or qwen, got '{kind}'")
    if kind == "none":
        return name
    for each in ("a_log", "dt_bias"):
        body.type_of(each)
    soft = body.add("Softplus", body.add("Add", name, "dt_bias"))
    return body.add("Neg", body.add("Mul", body.add("Exp", "a_log"), soft))


COMPOSED: dict[tuple[str, str], Callable[[NodeDef, Sequence[AnyValue | None]], FunctionDef]] = {
    (MICROSOFT, "GatedDeltaNet"): gated_delta_net
}
"""The makers of function bodies, by domain and operator."""
