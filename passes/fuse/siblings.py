"""Reductions of columns that read the same tensor, joined into one kernel with several results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import attributes_of, clone_with
from mirlo.dialects.core.values import OPERAND_RUNS, RESULT_RUNS
from mirlo.dialects.tir.block import Block, Yield
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.fuse.groups import MAX_NODES, Groups
from mirlo.passes.fuse.inline import MergedOperand, order_of_types
from mirlo.passes.fuse.kinds import FusionKind, block_kind


def join_siblings(groups: Groups, nbytes: Sequence[int]) -> list[list[int]]:
    """Return the kernels to join, each list in program order: reductions over one domain of mostly the same values.

    None reads what another computes, and all of their operands are there before a result is read.
    """
    joined: list[list[int]] = []
    counts: list[int] = []
    for members in _reductions(groups):
        for position, other in enumerate(joined):
            if counts[position] < RESULT_RUNS and _may_join(groups, nbytes, other, members):
                other += members
                counts[position] += 1
                break
        else:
            joined.append(list(members))
            counts.append(1)
    return _without_cycles(groups, [sorted(each) for each, count in zip(joined, counts, strict=True) if count > 1])


def _without_cycles(groups: Groups, joined: list[list[int]]) -> list[list[int]]:
    """Return the kernels all of whose operands, also those of joined kernels that they read, are there in time."""
    while True:
        of = {i: members for members in joined for i in members}
        kept = [each for each in joined if _last_operand(groups, each, of, ()) < first_reader(groups, each)]
        if len(kept) == len(joined):
            return kept
        joined = kept


def _last_operand(
    groups: Groups, members: Sequence[int], joined: Mapping[int, Sequence[int]], reading: tuple[int, ...]
) -> int:
    """Return the last node that a kernel waits for; one after all others if it waits for itself."""
    if members[0] in reading:
        return len(groups.nodes)
    last = -1
    for source in {source for i in members for source in groups.nodes[i].inputs}.difference(members):
        kernel = joined.get(source)
        available = source if kernel is None else _last_operand(groups, kernel, joined, (*reading, members[0]))
        last = max(last, available)
    return last


def first_reader(groups: Groups, members: Collection[int]) -> int:
    """Return the first node outside of a kernel that reads a result of it."""
    return min(user for member in members for user in groups.nodes[member].users if user not in members)


def read_values(groups: Groups, members: Collection[int]) -> set[int]:
    """Return the values that a kernel reads from memory."""
    nodes = [groups.nodes[i] for i in members]
    return {v for node in nodes for v in node.reads} - {v for node in nodes for v in node.makes}


def _reductions(groups: Groups) -> list[list[int]]:
    """Return the kernels with one reduction of columns and a result that is read, in program order."""
    kernels = [each for each in groups.inside if sum(groups.nodes[i].columns is not None for i in each) == 1]
    return sorted((each for each in kernels if groups.nodes[max(each)].users), key=max)


def _may_join(groups: Groups, nbytes: Sequence[int], left: Sequence[int], right: Sequence[int]) -> bool:
    nodes, members = groups.nodes, {*left, *right}
    if len({nodes[i].columns for i in members if nodes[i].columns is not None}) > 1:
        return False
    if any(not set(left).isdisjoint(nodes[i].inputs) for i in right):
        return False
    if any(not set(right).isdisjoint(nodes[i].inputs) for i in left):
        return False
    if len(members) > MAX_NODES or len({nodes[i].rules for i in members}) > 1:
        return False
    reads = [read_values(groups, each) for each in (left, right)]
    least = min(sum(nbytes[value] for value in each) for each in reads)
    if 2 * sum(nbytes[value] for value in reads[0] & reads[1]) <= least:
        return False
    if len(read_values(groups, members)) > groups.max_inputs:
        return False
    operands = {source for i in members for source in nodes[i].inputs} - members
    return max(operands, default=-1) < first_reader(groups, members)


def merge_reductions(function: ir.OpView) -> None:
    """Merge the reductions of columns of a function that have one domain into a block with several outputs."""
    blocks = PrimView(function).blocks
    reductions = [block for block in blocks if block_kind(block) is FusionKind.COLUMNS]
    if not reductions:
        return
    first, before = reductions[0], set(PrimView(function).arguments)
    for block in blocks[: blocks.index(first)]:
        before.update(block.op.results)
    alike = [each for each in reductions if _has_domain_of(first, each) and {o.value for o in each.inputs} <= before]
    if len(alike) > 1:
        _merge(alike[:RESULT_RUNS])


def _has_domain_of(first: BlockView, block: BlockView) -> bool:
    maps = [each.outputs[0].map for each in (first, block)]
    return block.axes == first.axes and block.domain == first.domain and maps[0] == maps[1]


def _merge(blocks: Sequence[BlockView]) -> None:
    """Replace blocks by one in the place of the first."""
    operands = {MergedOperand.of(operand).key: MergedOperand.of(operand) for each in blocks for operand in each.inputs}
    slots = list(operands.values())
    slots = [slots[index] for index in order_of_types(slots)]
    if len({str(slot.value.type) for slot in slots}) > OPERAND_RUNS:
        return
    first, unit = blocks[0], ir.UnitAttr.get()
    maps = [unit if slot.map is None else ir.AffineMapAttr.get(slot.map) for slot in slots]
    outside = [unit if slot.outside is None else slot.outside for slot in slots]
    outputs = [each.outputs[0] for each in blocks]
    with ir.InsertionPoint(first.op), ir.Location.fused([each.op.location for each in blocks]) as location:
        merged = Block.build(
            [slot.value for slot in slots], result_types=[output.value.type for output in outputs], name=first.name,
            axes=first.axes, domain=first.domain,
            maps=ir.ArrayAttr.get([*maps, *(ir.AffineMapAttr.get(output.map) for output in outputs)]),
            outside=ir.ArrayAttr.get(outside) if any(slot.outside is not None for slot in slots) else None,
            init=ir.ArrayAttr.get([each.op.opview.init[0] for each in blocks]),
        )  # fmt: skip
        types: list[ir.Type] = [ir.IndexType.get()] * first.rank
        types += [slot.value.type if slot.map is None else slot.value.type.element_type for slot in slots]
        types += [each.accumulators[0].type for each in blocks]
        body = merged.operation.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
    arguments = list(body.arguments)
    elements = dict(zip((slot.key for slot in slots), arguments[first.rank :], strict=False))
    yielded, computed = [], dict[tuple[object, ...], ir.Operation]()
    with ir.InsertionPoint(body), location:
        for each, accumulator in zip(blocks, arguments[first.rank + len(slots) :], strict=True):
            env: dict[ir.Value, ir.Value] = dict(zip(each.index_arguments, arguments, strict=False))
            keys = [MergedOperand.of(operand).key for operand in each.inputs]
            env.update(zip(each.input_arguments, (elements[key] for key in keys), strict=True))
            env[each.accumulators[0]] = accumulator
            for op in each.body_ops:
                values = [env[value] for value in op.operands]
                key = (op.name, *map(str, attributes_of(op).values()), *(value.type for value in op.results), *values)
                copy = computed[key] if key in computed else computed.setdefault(key, clone_with(op, values))
                env.update(zip(op.results, copy.results, strict=True))
            yielded.append(env[each.yielded[0]])
        Yield.build(yielded, result_types=[])
    for each, result in zip(blocks, merged.operation.results, strict=True):
        each.op.results[0].replace_all_uses_with(result)
    for each in blocks:
        each.op.erase()
