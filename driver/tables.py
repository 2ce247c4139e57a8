"""Which constants of a model are tables: calls read some of their rows."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks

CONSTANT, LOOKUP = "relax.constant", "relax.gather"


def find_tables(module: ir.Module) -> set[str]:
    """Return the names of parameters that are only gathered from, such as embeddings."""
    tables: set[str] = set()
    read: set[str] = set()
    for function in module.body.operations:
        for block in blocks(function):
            for op in block.operations:
                if op.operation.name != CONSTANT or op.opview.param is None:
                    continue
                uses = list(op.operation.results[0].uses)
                is_table = all(use.owner.operation.name == LOOKUP and use.operand_number == 0 for use in uses)
                (tables if is_table else read).add(str(op.opview.param))
    return tables - read
