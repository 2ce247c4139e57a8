"""Properties of the inputs of an ONNX model before compilation: default values, and dims that users may fix."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.caches import find_paged_inputs


def default_inputs(model: str | Path) -> dict[str, np.ndarray | None]:
    """Return the inputs of a model by name, with their default values: initializers of their names; None without.

    An input with a default value is a constant of the compiled model, unless `shapes` of `mirlo.compile` names it.
    """
    loaded = models.load(model)
    graph = loaded.content.graph
    names = {value.name for value in graph.inputs}
    defaults: dict[str, np.ndarray | None] = dict.fromkeys(names)
    for tensor in graph.initializers:
        if tensor.name in names:
            defaults[tensor.name] = loaded.weights.array(tensor, tensor.name)
    return defaults


def has_pages(model: str | Path) -> bool:
    """Return whether a model has caches in pages, which PagedAttention reads."""
    return "cache" in find_paged_inputs(models.load(model).content.graph).values()


def page_dims(model: str | Path) -> list[str]:
    """Return the dynamic dims that are the rows of a page, of caches in pages: compiled code is faster for a number."""
    graph = models.load(model).content.graph
    caches = {name for name, role in find_paged_inputs(graph).items() if role == "cache"}
    shapes = [value.type.dims for value in graph.inputs if value.name in caches]
    return sorted({dims[1] for dims in shapes if dims is not None and len(dims) > 1 and isinstance(dims[1], str)})
