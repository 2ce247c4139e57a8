"""TVM on the CPU: Relax's ONNX importer and its default pipeline, untuned."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


class TvmModel:
    """A virtual machine with the compiled model."""

    def __init__(
        self,
        machine: tvm.relax.VirtualMachine,
        device: tvm.runtime.Device,
        inputs: list[str],
        outputs: list[str],
        version: str,
    ) -> None:
        self.machine, self.device, self._inputs, self._outputs, self.version = machine, device, inputs, outputs, version

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._arrays = [tvm.runtime.tensor(np.ascontiguousarray(inputs[name]), self.device) for name in self._inputs]

    def run(self) -> None:
        self._results = self.machine["main"](*self._arrays)

    def outputs(self) -> dict[str, np.ndarray]:
        results = self._results if len(self._outputs) > 1 else [self._results]
        return {name: array.numpy() for name, array in zip(self._outputs, results, strict=False)}


def load(model: str, threads: int, shapes: Mapping[str, Sequence[int]], cache: str | None) -> TvmModel:
    """Import and compile."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    proto = onnx.load(model)
    known = {tensor.name for tensor in proto.graph.initializer}
    module = from_onnx(proto, shape_dict={name: list(shape) for name, shape in shapes.items()} or None)
    target = tvm.target.Target.from_device("cpu") if hasattr(tvm.target.Target, "from_device") else "llvm"
    compiled = tvm.compile(relax.transform.LegalizeOps()(module), target=target)
    inputs = [value.name for value in proto.graph.input if value.name not in known]
    outputs = [value.name for value in proto.graph.output]
    return TvmModel(relax.VirtualMachine(compiled, tvm.cpu()), tvm.cpu(), inputs, outputs, tvm.__version__)
