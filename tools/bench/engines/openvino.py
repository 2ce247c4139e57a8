"""OpenVINO on the CPU, in f32 or the types that it chooses, tuned for latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import openvino


class OpenVinoModel:
    """A compiled model and one request."""

    def __init__(self, compiled: openvino.CompiledModel) -> None:
        self.compiled = compiled
        self.request = compiled.create_infer_request()
        self.version = openvino.__version__
        self._inputs: list[np.ndarray] = []
        """The arrays whose memory the request reads; it does not keep them alive."""

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._inputs = []
        for port in self.compiled.inputs:
            name = next(name for name in port.get_names() if name in inputs)
            self._inputs.append(np.ascontiguousarray(inputs[name]))
            self.request.set_tensor(port, openvino.Tensor(self._inputs[-1], shared_memory=True))

    def run(self) -> None:
        self.request.infer(share_outputs=True)

    def outputs(self) -> dict[str, np.ndarray]:
        ports = self.compiled.outputs
        return {name: np.array(self.request.get_tensor(port).data) for port in ports for name in port.get_names()}


def load(
    model: str,
    threads: int,
    shapes: Mapping[str, Sequence[int]],
    cache: str | None,
    precision: str | None = "f32",
) -> OpenVinoModel:
    """Compile in f32, the precision of all engines, or with None in the types that OpenVINO chooses."""
    core = openvino.Core()
    read = core.read_model(model)
    if shapes:
        read.reshape({name: list(shape) for name, shape in shapes.items()})
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
    }
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = precision
    return OpenVinoModel(core.compile_model(read, "CPU", settings))
