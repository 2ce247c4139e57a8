"""Annotations for LLVM on the loops that schedules emit: which to leave unchanged, and when they end.

The loops of schedules are vectorized, unrolled and jammed already. Most of LLVM's passes look for remaining work there
and find none, so that a function of such loops goes through few of them (`machine_code.py`). So does one of loops that
compute with vectors: LLVM would unroll these, which makes kernels no faster, unless iterations wait for each other
because they accumulate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import element_of
from mirlo.passes.schedule.loops import LOOP_ANNOTATION

ON_BRANCH = "loop_annotation"
"""Attribute of a branch of the LLVM dialect, which becomes metadata of LLVM IR."""
SCHEDULED = "mirlo-scheduled"
"""Attribute of a function of LLVM IR, which none of its module calls, whose innermost loops all stay as they are.

LLVM's other passes make vectors of loops over scalars, and unroll those."""
ONCE = "mirlo-once"
"""Attribute of a function of LLVM IR whose results no level of optimization changes, in a module without loops.

Such are the function that calls the kernels of a model, and the one that computes its sizes. LLVM would keep addresses
in registers, or spill them, from one call to the next, hundreds of calls later: that takes it longer than the largest
kernel, and a call no less time."""
TILED = "mirlo-tiled"
"""Attribute of a function of LLVM IR with a loop that has an annotation: that of a register tile, whose instructions
beside the products count."""
FAST_MATH, EXACT = "fastmathFlags", "#llvm.fastmath<none>"
"""Attribute of each arithmetic operation of floats in the LLVM dialect, and of calls; its value where none is set."""
_PASSTHROUGH = "passthrough"
"""Attribute of a function of the LLVM dialect: attributes in LLVM IR that the dialect does not know."""
_NE, _SLT = 1, 2
"""Predicates of `llvm.icmp`."""


def annotate_branches(module: ir.Module, is_apart: bool) -> None:
    """Give the branches of the LLVM dialect the annotations of their loops, and mark kernels: `TILED`, `SCHEDULED`.

    Without `is_apart` functions of the module may call others, and none is `SCHEDULED`: LLVM decides what it inlines.
    """
    functions = [op.operation for op in module.body.operations if _has_body(op.operation)]
    for function in functions:
        branches = {block: _terminator(block) for block in function.regions[0].blocks}
        for branch in branches.values():
            attributes = branch.attributes
            if LOOP_ANNOTATION in attributes:
                attributes[ON_BRANCH] = attributes[LOOP_ANNOTATION]
                del attributes[LOOP_ANNOTATION]
        if any(ON_BRANCH in branch.attributes for branch in branches.values()):
            _add_attribute(function, TILED)
        if is_apart:
            _mark_scheduled(function, branches)


def mark_once(module: ir.Module) -> None:
    """Mark the functions of a module of the LLVM dialect as `ONCE` if none of them has a loop.

    One with products and sums of floats that may be rounded once is not: whether they are depends on the level, and
    other kernels have the level of their settings.
    """
    functions = [op.operation for op in module.body.operations if _has_body(op.operation)]
    for function in functions:
        branches = {block: _terminator(block) for block in function.regions[0].blocks}
        if _latches(function.regions[0].blocks[0], branches):
            return
    for function in functions:
        if not _rounds_by_level(function):
            _add_attribute(function, ONCE)


def _rounds_by_level(function: ir.Operation) -> bool:
    """Return whether a function has floats whose arithmetic LLVM may change."""
    operations = [op.operation for block in function.regions[0].blocks for op in block.operations]
    loose = (op for op in operations if FAST_MATH in op.attributes and str(op.attributes[FAST_MATH]) != EXACT)
    return any(isinstance(element_of(result.type), ir.FloatType) for op in loose for result in op.results)


def _add_attribute(function: ir.Operation, name: str) -> None:
    others = ir.ArrayAttr(function.attributes[_PASSTHROUGH]) if _PASSTHROUGH in function.attributes else ()
    function.attributes[_PASSTHROUGH] = ir.ArrayAttr.get([*others, ir.StringAttr.get(name)])


def _mark_scheduled(function: ir.Operation, branches: Mapping[ir.Block, ir.Operation]) -> None:
    """Mark a function whose innermost loops must all stay unchanged, and make its loops end by inequality."""
    latches = _latches(function.regions[0].blocks[0], branches)
    heads = {head for _, head in latches}
    for latch, head in latches:
        blocks = _blocks_of_loop(latch, head)
        is_innermost = blocks.isdisjoint(heads - {head})
        if is_innermost and ON_BRANCH not in branches[latch].attributes and not _is_of_vectors(head, blocks):
            return
    for latch, head in latches:
        _end_by_inequality(head, branches[latch], [branches[block] for block in head.predecessors])
    _add_attribute(function, SCHEDULED)


def _latches(entry: ir.Block, branches: Mapping[ir.Block, ir.Operation]) -> list[tuple[ir.Block, ir.Block]]:
    """Return the blocks that branch back to the beginning of a loop, each with that beginning."""
    latches = []
    path = [(entry, iter(branches[entry].successors))]
    seen, on_path = {entry}, {entry}
    while path:
        block, successors = path[-1]
        successor = next(successors, None)
        if successor is None:
            path.pop()
            on_path.remove(block)
        elif successor in on_path:
            latches.append((block, successor))
        elif successor not in seen:
            seen.add(successor)
            on_path.add(successor)
            path.append((successor, iter(branches[successor].successors)))
    return latches


def _blocks_of_loop(latch: ir.Block, head: ir.Block) -> set[ir.Block]:
    blocks, waiting = {head}, [latch]
    while waiting:
        block = waiting.pop()
        if block not in blocks:
            blocks.add(block)
            waiting += block.predecessors
    return blocks


def _is_of_vectors(head: ir.Block, blocks: Iterable[ir.Block]) -> bool:
    """Return whether a loop computes with vectors and accumulates nothing: it carries its index only."""
    results = (result for block in blocks for op in block.operations for result in op.operation.results)
    return len(head.arguments) == 1 and any(isinstance(result.type, ir.VectorType) for result in results)


def _end_by_inequality(head: ir.Block, latch: ir.Operation, entries: Sequence[ir.Operation]) -> None:
    """Compare an index that reaches the end of its loop exactly by `ne`.

    Where code generation knows that, it counts from a negative number to zero and needs no comparison.
    """
    branch = _terminator(head)
    if branch.name != "llvm.cond_br" or len(entries) != 2 or any(entry.name != "llvm.br" for entry in entries):
        return
    compare = branch.operands[0].owner
    if isinstance(compare, ir.Block) or compare.name != "llvm.icmp" or _integer(compare, "predicate") != _SLT:
        return
    index, end = compare.operands[0], _constant(compare.operands[1])
    if end is None or index.owner != head:
        return
    number = list(head.arguments).index(index)
    increment = latch.operands[number].owner
    if isinstance(increment, ir.Block) or increment.name != "llvm.add" or increment.operands[0] != index:
        return
    first = next(entry for entry in entries if entry != latch)
    start, step = _constant(first.operands[number]), _constant(increment.operands[1])
    if start is not None and step is not None and step > 0 and start <= end and (end - start) % step == 0:
        compare.attributes["predicate"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _NE)


def _has_body(op: ir.Operation) -> bool:
    return op.name == "llvm.func" and len(op.regions[0].blocks) > 0


def _terminator(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def _constant(value: ir.Value) -> int | None:
    """Return the value of an integer constant of the LLVM dialect."""
    op = value.owner
    return _integer(op, "value") if not isinstance(op, ir.Block) and op.name == "llvm.mlir.constant" else None


def _integer(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value
