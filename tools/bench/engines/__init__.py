"""The engines that `mirlo bench` compares: each a file that imports nothing but its engine and numpy.

`load(model, threads, shapes, cache)` compiles a model and returns an object with `version`, `bind(inputs)`, which
prepares calls with these arrays, `run()` and `outputs()`; where another machine runs it, `seconds(count, gap,
cpu_time)` returns the times of calls there. A file runs in a separate process, possibly of another Python.
"""

from __future__ import annotations

from typing import NamedTuple


class Engine(NamedTuple):
    """The description of an engine; a named tuple, since `mirlo --help` reads the table."""

    name: str
    title: str
    module: str
    """The name of its Python module."""
    package: str
    """The requirements for pip."""


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine("mirlo", "Mirlo", "mirlo", "mirlo"),
        Engine("onnxruntime", "ONNX Runtime", "onnxruntime", "onnxruntime"),
        Engine("openvino", "OpenVINO", "openvino", "openvino"),
        Engine("tvm", "TVM", "tvm", "apache-tvm"),
        Engine("iree", "IREE", "iree.compiler", "iree-base-compiler iree-base-runtime"),
        Engine("inductor", "TorchInductor", "torch", "torch onnx2torch"),
    )
}
"""By the names that `--against` takes. The pip extra of each is `mirlo[bench-NAME]`."""
