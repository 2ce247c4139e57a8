"""Conversion of one node by its converters."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.values import Output


class NotSupported(Exception):
    """No converter accepts the node; its function body may."""


def converted(node: Node) -> Sequence[Output]:
    """Return the outputs of a node by the first converter that accepts it."""
    complaint = f"{node.operator} is not supported with these attributes and inputs"
    for converter in CONVERTERS.find(node.domain, node.operator, node.opset):
        node = node.fresh()
        results = converter(node)
        if results is NotImplemented:
            continue
        results = results if isinstance(results, (tuple, list)) else (results,)
        unread = node.unread() or _unmade(node, len(results))
        if unread is None:
            return results
        complaint = f"{unread} is not supported"
    raise NotSupported(complaint)


def _unmade(node: Node, results: int) -> str | None:
    """Return an output that a converter did not make; None if there is none."""
    missing = [i for i in range(results, len(node.outputs)) if node.has_output(i)]
    return f"output #{missing[0]} ('{node.outputs[missing[0]]}')" if missing else None
