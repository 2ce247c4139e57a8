"""Shardings: constraints on the layouts of tensors, and manual computations on shards."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import RankLayout, Tensor, UnsupportedOperation, ir, tile_attributes
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.registry import converter, of_parts
from mirlo_stablehlo.shardings import (
    AXIS,
    XLA,
    ProgramSharding,
    read_shardings,
    read_xla_sharding,
    require_dims,
    text_of,
)


def to_parts(x: Tensor, layout: RankLayout, ranks: int) -> Tensor:
    """Return a rank's part of a tensor."""
    require_dims(layout, x.rank)
    parts, order = tile_attributes(layout.with_dims(x.rank), ranks)
    return x.builder.emit("to_parts", x, ranks=ranks, parts=parts, order=order)


def from_parts(x: Tensor, layout: RankLayout, ranks: int) -> Tensor:
    """Return the tensor whose parts ranks have."""
    require_dims(layout, x.rank)
    parts, order = tile_attributes(layout.with_dims(x.rank), ranks)
    return x.builder.emit("from_parts", x, ranks=ranks, parts=parts, order=order)


@of_parts
@converter("sdy.sharding_constraint", "sdy.reshard")
def constrain(op: StablehloOperation) -> Sequence[Tensor]:
    """Apply a sharding constraint; inside of a manual computation each process keeps its part."""
    if op.grid.ranks == 1 or op.program.manual_depth:
        return list(op.operands)
    (sharding,) = _shardings(op, "sharding", 1)
    return _constrained(op, sharding)


@of_parts
@converter("sdy.manual_computation")
def manual_computation(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a manual computation: its body computes on shards, with explicit collectives."""
    block = op.op.regions[0].blocks[0]
    if op.grid.ranks == 1:
        return op.builder.block(block, op.operands, op.scope)
    if op.program.manual_depth:
        raise UnsupportedOperation("is inside of another one: expected one with all manual axes")
    axes = [match[0] for match in AXIS.findall(str(op.op.attributes["manual_axes"]))]
    inputs = _shardings(op, "in_shardings", len(op.parts), axes)
    outputs = _shardings(op, "out_shardings", len(op.op.results), axes)
    parts = [
        to_parts(part, sharding.layout, op.grid.ranks)
        for sharding, each in zip(inputs, op.parts, strict=True)
        for part in each
    ]
    declared = [type_ for value in block.arguments for type_ in op.builder.part_types(value.type)]
    for part, type_ in zip(parts, declared, strict=True):
        if part.type != type_:
            raise UnsupportedOperation(f"has parts {part.type}, but its body takes {type_}")
    op.program.manual_depth += 1
    try:
        results = op.builder.block(block, parts, op.scope)
    finally:
        op.program.manual_depth -= 1
    grouped = op.builder.grouped([value.type for value in op.op.results], results, "its body returns")
    return [
        from_parts(part, sharding.layout, op.grid.ranks)
        for sharding, each in zip(outputs, grouped, strict=True)
        for part in each
    ]


@of_parts
@converter("custom_call.Sharding")
def xla_constraint(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert XLA's form of a sharding constraint."""
    layout = _xla_layout(op.op, op.grid.ranks)
    if layout is None or op.grid.ranks == 1:
        return list(op.operands)
    config = text_of(op.op.attributes["backend_config"]) if "backend_config" in op.op.attributes else ""
    return _constrained(op, ProgramSharding(layout, "unspecified_dims" in config))


@of_parts
@converter("custom_call.SPMDFullToShardShape")
def xla_parts(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert the begin of a manual computation in XLA's form: the operand is sharded."""
    if op.grid.ranks == 1:
        return list(op.operands)
    owner = op.op.operands[0].owner
    constraint = None if isinstance(owner, ir.Block) else owner.operation
    layout = None if constraint is None or XLA not in constraint.attributes else _xla_layout(constraint, op.grid.ranks)
    if layout is None:
        raise UnsupportedOperation("has an operand without a sharding of devices: expected the result of 'Sharding'")
    return [to_parts(part, layout, op.grid.ranks) for part in op.operands]


@of_parts
@converter("custom_call.SPMDShardToFullShape")
def xla_whole(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert the end of a manual computation in XLA's form."""
    if op.grid.ranks == 1:
        return list(op.operands)
    layout = _xla_layout(op.op, op.grid.ranks)
    if layout is None:
        raise UnsupportedOperation("has a result without a sharding of devices")
    return [from_parts(part, layout, op.grid.ranks) for part in op.operands]


def _constrained(op: StablehloOperation, sharding: ProgramSharding) -> list[Tensor]:
    results = []
    for part in op.operands:
        require_dims(sharding.layout, part.rank)
        layout = sharding.layout.with_dims(part.rank).fitting(part.shape)
        if layout.is_whole and sharding.is_open:
            results.append(part)
        else:
            results.append(from_parts(to_parts(part, layout, op.grid.ranks), layout, op.grid.ranks))
    return results


def _shardings(
    op: StablehloOperation, name: str, count: int, axes: Sequence[str] | None = None
) -> list[ProgramSharding]:
    text = str(op.op.attributes[name])
    result = read_shardings(text, op.program.meshes, op.grid.ranks, axes)
    if len(result) != count:
        raise UnsupportedOperation(f"has {len(result)} shardings in '{name}': expected {count}, found {text:.80}")
    return result


def _xla_layout(op: ir.Operation, ranks: int) -> RankLayout | None:
    if XLA not in op.attributes:
        raise UnsupportedOperation(f"has no attribute '{XLA}'")
    type_ = op.results[0].type
    rank = type_.rank if isinstance(type_, ir.RankedTensorType) else 0
    return read_xla_sharding(text_of(op.attributes[XLA]), rank, ranks)
