"""The inputs of an ONNX model, with the default values of those that have one."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def default_inputs(model: str | Path) -> dict[str, np.ndarray | None]:
    """Return the inputs of a model by name, with their default values: initializers of their names; None without.

    An input with a default value is a constant of the compiled model, unless `shapes` of `mirlo.compile` names it.
    """
    from mirlo.frontends.onnx import model as models

    loaded = models.load(model)
    graph = loaded.content.graph
    names = {value.name for value in graph.inputs}
    defaults: dict[str, np.ndarray | None] = dict.fromkeys(names)
    for tensor in graph.initializers:
        if tensor.name in names:
            defaults[tensor.name] = loaded.weights.array(tensor, tensor.name)
    return defaults
