"""Assignments in scripts."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence


def as_value(target: ast.expr) -> ast.expr:
    """Return the expression that reads the target of an assignment."""
    if isinstance(target, ast.Subscript):
        return ast.Subscript(target.value, target.slice, ast.Load())
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target


def reassigned_names(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that are assigned more than once."""
    return {name for name, count in _assigned(statements).items() if count > 1}


def _assigned(statements: Sequence[ast.stmt]) -> Counter[str]:
    """Count the assignments of each name, without loop indices."""
    result: Counter[str] = Counter()
    for statement in statements:
        for node in ast.walk(statement):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign):
                result.update({node.target.id: 2} if isinstance(node.target, ast.Name) else {})
            for target in targets:
                result.update(
                    n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                )
    return result
