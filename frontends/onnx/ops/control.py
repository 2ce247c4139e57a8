"""Control flow."""

from __future__ import annotations

from typing import Any

from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter


@converter("If")
def if_(node: Node) -> Any:
    """A condition that import time knows picks a branch; another one becomes scf.if."""
    then_branch, else_branch = node.attr.graph("then_branch"), node.attr.graph("else_branch")
    if node.value(0).is_constant:
        return node.builder.branch(then_branch if node.scalar(0) else else_branch)
    return node.builder.choose(node.value(0), then_branch, else_branch)
