"""Models as PyTorch computes them: the nodes of an ONNX file, one by one, for times beside those of compiled models.

The nodes are data; `torch.compile` makes of them what it makes of any function. Only what the benchmark models have is
known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .seeds import weight

Attributes = Mapping[str, Any]
Operator = Callable[[Any, Attributes, Sequence[Any]], Any]


@dataclass
class Graph:
    """The nodes of a model, and its weights on a device."""

    torch: Any
    nodes: Sequence[Mapping[str, Any]]
    outputs: Sequence[str]
    weights: Mapping[str, Any]

    def __call__(self, named: Mapping[str, Any]) -> list[Any]:
        """Return the outputs for inputs by name."""
        known = {**self.weights, **named}
        for node in self.nodes:
            operands = [known[name] if name else None for name in node["inputs"]]
            result = OPERATORS[node["op"]](self.torch, node["attributes"], operands)
            names = node["outputs"]
            known.update(zip(names, result if isinstance(result, (tuple, list)) else [result], strict=False))
        return [known[name] for name in self.outputs]


def open_graph(torch: Any, folder: Path, facts: Mapping[str, Any], device: str) -> Graph:
    """Open a graph that was written when the folder was built; in 16 bits if `half` is set."""
    held = json.loads((folder / facts["file"]).read_text(encoding="utf-8"))
    with np.load(folder / facts["data"]) as data:
        weights = {row["name"]: _weight(torch, row, data, device, facts["half"]) for row in held["weights"]}
    return Graph(torch, held["nodes"], held["outputs"], weights)


def _weight(torch: Any, row: Mapping[str, Any], data: Any, device: str, half: bool) -> Any:
    array = weight({**row, "dtype": "f32"}) if "initializer" in row else data[row["key"]]
    tensor = torch.from_numpy(np.array(array, order="C")).to(device)
    if tensor.is_floating_point():
        return tensor.half() if half else tensor
    return Numbers(array.tolist(), tensor)


class Numbers:
    """A constant of integers: as a list where an operator wants a shape, as a tensor where it wants indices."""

    def __init__(self, values: Any, tensor: Any) -> None:
        self.values, self.tensor = values, tensor


def _tensor(value: Any) -> Any:
    return value.tensor if isinstance(value, Numbers) else value


def _list(value: Any) -> list[int]:
    values = value.values if isinstance(value, Numbers) else value.tolist()
    return values if isinstance(values, list) else [values]


def _conv(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    pads = a.get("pads") or [0] * 4
    data = torch.nn.functional.pad(x[0], (pads[1], pads[3], pads[0], pads[2])) if pads[:2] != pads[2:] else x[0]
    padding = pads[:2] if data is x[0] else 0
    bias = x[2] if len(x) > 2 else None
    return torch.nn.functional.conv2d(
        data, x[1], bias, a.get("strides", 1), padding, a.get("dilations", 1), a.get("group", 1)
    )


def _gemm(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    left = x[0].t() if a.get("transA") else x[0]
    right = x[1].t() if a.get("transB") else x[1]
    return torch.addmm(x[2], left, right) if len(x) > 2 else left @ right


def _reshape(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    shape = [x[0].shape[i] if dim == 0 else dim for i, dim in enumerate(_list(x[1]))]
    return x[0].reshape(shape)


def _split(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    axis = a.get("axis", 0)
    return torch.split(x[0], _list(x[1]) if len(x) > 1 else x[0].shape[axis] // a["num_outputs"], axis)


def _gather(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    axis, index = a.get("axis", 0), _tensor(x[1])
    data = _tensor(x[0])
    rows = torch.index_select(data, axis, index.reshape(-1))
    return rows.reshape(*data.shape[:axis], *index.shape, *data.shape[axis + 1 :])


def _mean(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    axes = _list(x[1]) if len(x) > 1 else a["axes"]
    return x[0].mean(axes, keepdim=bool(a.get("keepdims", 1)))


def _layer_norm(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    return torch.nn.functional.layer_norm(x[0], x[0].shape[a.get("axis", -1) :], x[1], x[2], a.get("epsilon", 1e-5))


_KINDS = {1: "float32", 6: "int32", 7: "int64", 9: "bool", 10: "float16"}


def _cast(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    return _tensor(x[0]).to(getattr(torch, _KINDS[a["to"]]))


def _both(apply: Callable[[Any, Any], Any]) -> Operator:
    return lambda torch, a, x: apply(_tensor(x[0]), _tensor(x[1]))


def _clip(torch: Any, a: Attributes, x: Sequence[Any]) -> Any:
    return torch.clamp(x[0], *(x[1:3]))


OPERATORS: dict[str, Operator] = {
    "Add": _both(lambda x, y: x + y),
    "And": _both(lambda x, y: x & y),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda torch, a, x: torch.cat([_tensor(v) for v in x], a["axis"]),
    "Conv": _conv,
    "Div": _both(lambda x, y: x / y),
    "Erf": lambda torch, a, x: torch.erf(x[0]),
    "Gather": _gather,
    "GatherND": lambda torch, a, x: _tensor(x[0])[tuple(_tensor(x[1]).movedim(-1, 0))],
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "MatMul": _both(lambda x, y: x @ y),
    "MaxPool": lambda torch, a, x: torch.nn.functional.max_pool2d(
        x[0], a["kernel_shape"], a["strides"], a.get("pads", [0] * 4)[:2]
    ),
    "Mul": _both(lambda x, y: x * y),
    "Pow": _both(lambda x, y: x**y),
    "ReduceMean": _mean,
    "Relu": lambda torch, a, x: torch.relu(x[0]),
    "Reshape": _reshape,
    "Softmax": lambda torch, a, x: torch.softmax(x[0], a.get("axis", -1)),
    "Split": _split,
    "Tanh": lambda torch, a, x: torch.tanh(x[0]),
    "Transpose": lambda torch, a, x: x[0].permute(a["perm"]),
    "Where": lambda torch, a, x: torch.where(_tensor(x[0]), _tensor(x[1]), _tensor(x[2])),
}
