"""The operations of a graph as data: their kinds, nodes and operands."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.entry import find_entry
from mirlo.passes.locations import node_labels
from mirlo.runtime.records import dataclass

INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True)
class FollowedOperation:
    """An operation at the top of a graph, an input, or an output."""

    name: str
    title: str
    """The name of the kernel that it calls, of the input or the output; else of the operator."""
    nodes: tuple[str, ...]
    reads: tuple[tuple[int, int], ...]
    """For each operand, the operation that computes it and which of its results that is."""
    types: tuple[str, ...]


def operations_of(module: ir.Operation) -> list[FollowedOperation]:
    """Return the operations of the model's function: inputs first, outputs last; constants are left out."""
    block = find_entry(module).regions[0].blocks[0]
    operations: list[FollowedOperation] = []
    owner: dict[ir.Value, tuple[int, int]] = {}
    for i, argument in enumerate(block.arguments):
        owner[argument] = len(operations), 0
        operations.append(FollowedOperation(INPUT, f"input {i}", (), (), (str(argument.type),)))
    for inner in block.operations:
        op = inner.operation
        reads = tuple(owner[value] for value in op.operands if value in owner)
        if op.name == "func.return":
            operations += [FollowedOperation(OUTPUT, f"output {i}", (), (each,), ()) for i, each in enumerate(reads)]
            continue
        if op.name == "relax.constant":
            continue
        for i, value in enumerate(op.results):
            owner[value] = len(operations), i
        types = tuple(str(value.type) for value in op.results)
        operations.append(FollowedOperation(op.name, _title(op), tuple(node_labels(op.location)), reads, types))
    return operations


def calls_kernels(operations: list[FollowedOperation]) -> bool:
    """Return whether a graph calls kernels, whose results are still values."""
    return any(operation.name == "relax.call_tir" for operation in operations)


def _title(op: ir.Operation) -> str:
    if "callee" in op.attributes:
        callee = op.attributes["callee"]
        return str(ir.FlatSymbolRefAttr(callee).value) if isinstance(callee, ir.FlatSymbolRefAttr) else str(callee)
    return op.name.partition(".")[2] or op.name
