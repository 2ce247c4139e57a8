"""Conversion of one node by its converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.values import Output


class NotSupported(Exception):
    """No converter accepts the node; its function body may."""


def converted(node: Callable[[], Node], domain: str) -> Sequence[Output]:
    """Return the outputs of a node by the first converter that accepts it."""
    made = node()
    complaint = f"{made.operator} is not supported with these attributes and inputs"
    for converter in CONVERTERS.find(domain, made.operator, made.opset):
        made = node()
        results = converter(made)
        if results is NotImplemented:
            continue
        results = results if isinstance(results, (tuple, list)) else (results,)
        unread = _unread(made, len(results))
        if unread is None:
            return results
        complaint = f"{unread} is not supported"
    raise NotSupported(complaint)


def _unread(node: Node, results: int) -> str | None:
    """Return what a converter did not read, or did not make, of a node."""
    if node.attr.unread():
        return f"attribute '{node.attr.unread()[0]}'"
    if node.unread_inputs():
        return f"input '{node.input_name(node.unread_inputs()[0])}'"
    missing = [i for i in range(results, len(node.outputs)) if node.has_output(i)]
    return f"output #{missing[0]} ('{node.outputs[missing[0]]}')" if missing else None
