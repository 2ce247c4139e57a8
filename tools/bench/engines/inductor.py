"""TorchInductor on the CPU, of a model that onnx2torch reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx2torch
import torch


class Model:
    """A compiled module."""

    def __init__(self, module: Any, inputs: list[str], outputs: list[str]) -> None:
        self.module, self._inputs, self._outputs = module, inputs, outputs
        self.version = str(torch.__version__)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._tensors = [torch.from_numpy(np.array(inputs[name])) for name in self._inputs]

    def run(self) -> None:
        with torch.inference_mode():
            self._results = self.module(*self._tensors)

    def outputs(self) -> dict[str, np.ndarray]:
        results = self._results if isinstance(self._results, (tuple, list)) else (self._results,)
        return {name: tensor.numpy() for name, tensor in zip(self._outputs, results, strict=True)}


def load(model: str, threads: int, shapes: Mapping[str, Sequence[int]], cache: str | None) -> Model:
    """Import; compilation happens in the first call, which is made here with zeros."""
    import onnx

    torch.set_num_threads(threads)
    proto = onnx.load(model)
    known = {tensor.name for tensor in proto.graph.initializer}
    values = [value for value in proto.graph.input if value.name not in known]
    module = torch.compile(onnx2torch.convert(proto).eval(), backend="inductor")
    made = Model(module, [value.name for value in values], [value.name for value in proto.graph.output])
    made.bind({value.name: _zeros(value, shapes) for value in values})
    made.run()
    return made


def _zeros(value: Any, shapes: Mapping[str, Sequence[int]]) -> np.ndarray:
    import onnx

    tensor = value.type.tensor_type
    shape = shapes.get(value.name) or [dim.dim_value for dim in tensor.shape.dim]
    return np.zeros(list(shape), onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
