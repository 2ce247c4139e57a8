"""ONNX Runtime on the CPU, with all optimizations, and outputs in memory that is bound once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime


class OnnxRuntimeModel:
    """A session."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session
        self.version = onnxruntime.__version__

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        names = [output.name for output in self.session.get_outputs()]
        self._results = dict(zip(names, self.session.run(names, dict(inputs)), strict=True))
        self._keep = [np.ascontiguousarray(array) for array in inputs.values()]
        self._binding = self.session.io_binding()
        for name, array in zip(inputs, self._keep, strict=True):
            self._binding.bind_cpu_input(name, array)
        for name, array in self._results.items():
            # A new array: those of the session may be in its own memory.
            self._results[name] = held = np.zeros_like(array)
            self._binding.bind_output(name, "cpu", 0, held.dtype, held.shape, held.ctypes.data)

    def run(self) -> None:
        self.session.run_with_iobinding(self._binding)

    def outputs(self) -> dict[str, np.ndarray]:
        return self._results


def load(model: str, threads: int, shapes: Mapping[str, Sequence[int]], cache: str | None) -> OnnxRuntimeModel:
    """Create a session. Shapes are those of the arrays."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return OnnxRuntimeModel(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))
