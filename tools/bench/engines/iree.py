"""IREE on the CPU: `iree-import-onnx`, `iree-compile` for this machine, and the runtime's local tasks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import iree.compiler as compiler
import iree.runtime as runtime
import numpy as np
import onnx
from iree.compiler.tools.import_onnx import __main__ as importer

FLAGS = [
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
]


class IreeModel:
    """A loaded module."""

    def __init__(self, function: Callable[..., object], device: object, inputs: list[str], outputs: list[str]) -> None:
        self.function, self.device, self._inputs, self._outputs = function, device, inputs, outputs
        self.version = version("iree-base-compiler")

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._arrays = [runtime.asdevicearray(self.device, np.ascontiguousarray(inputs[n])) for n in self._inputs]

    def run(self) -> None:
        results = self.function(*self._arrays)
        self._results = results if isinstance(results, (tuple, list)) else (results,)

    def outputs(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(array) for name, array in zip(self._outputs, self._results, strict=True)}


def load(model: str, threads: int, shapes: Mapping[str, Sequence[int]], cache: str | None) -> IreeModel:
    """Import, compile and load."""
    graph = onnx.load(model, load_external_data=False).graph
    known = {tensor.name for tensor in graph.initializer}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "model.mlir"
        # The command `iree-import-onnx` in this process: compile time excludes starting Python and imports.
        status = importer.main(importer.parse_arguments([model, "-o", str(source), "--opset-version", "17"]))
        if status:
            raise RuntimeError(f"iree-import-onnx ended with status {status}")
        code = compiler.compile_file(str(source), input_type="onnx", extra_args=FLAGS)
    runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    config = runtime.Config("local-task" if threads > 1 else "local-sync")
    module = runtime.VmModule.copy_buffer(config.vm_instance, code)
    context = runtime.SystemContext(config=config)
    context.add_vm_module(module)
    entry = next(name for name in module.function_names if not name.startswith("__") and "$" not in name)
    inputs = [value.name for value in graph.input if value.name not in known]
    function = context.modules[module.name][entry]
    return IreeModel(function, config.device, inputs, [value.name for value in graph.output])
