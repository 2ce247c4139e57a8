"""The record of a function's collectives, including those that it had before."""

from __future__ import annotations

from mirlo.extend.passes import PassError, TensorType, Trait, blocks, ir, names_of, substitute, traits_of
from mirlo.extend.passes import dims as D
from mirlo_ranks.shard.plan import InsertedCollective, ShardingRecord


def record_exchanges(function: ir.OpView, record: ShardingRecord) -> bool:
    """Record the collectives of a function; return whether it has any."""
    operations = [op.operation for block in blocks(function) for op in block.operations]
    collectives = [op for op in operations if Trait.COLLECTIVE in traits_of(op)]
    for op in collectives:
        if op.opview.ranks != record.ranks:
            raise PassError(
                f"the model has collectives of {op.opview.ranks} ranks, but ranks is {record.ranks}: compile it with "
                f"ranks={op.opview.ranks}"
            )
        if len(op.operands):
            note_exchange(op, op.location, record)
    return bool(collectives)


def note_exchange(op: ir.Operation | ir.OpView, location: ir.Location, record: ShardingRecord) -> None:
    """Record a collective, and the bytes that a rank sends by it per token."""
    kind = TensorType.from_mlir(op.operands[0].type)
    assert kind is not None
    names = names_of(location)
    row = InsertedCollective(op.name, names[0] if names else "", str(kind), _sent(op, kind))
    record.collectives.append(row)


def _sent(op: ir.Operation | ir.OpView, kind: TensorType) -> int:
    """Return the bytes of an operand that other ranks of the group read."""
    view, nbytes = op.operation.opview, _bytes_of_token(kind)
    if op.name == "relax.collective_permute":
        return nbytes
    others: int = (view.group_size or view.ranks) - 1
    is_divided = op.name in ("relax.reduce_scatter", "relax.all_to_all")
    return nbytes * others // (others + 1) if is_divided else nbytes * others


def _bytes_of_token(kind: TensorType) -> int:
    """Return the bytes of a tensor with all dynamic dims set to 1."""
    count = kind.dtype.bytes
    for dim in kind.shape:
        size = substitute(dim, dict.fromkeys(D.symbols_of(dim), 1))
        count *= size if isinstance(size, int) else 1
    return count
