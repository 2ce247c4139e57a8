"""Safe IR rewrites. Misuse of the bindings can crash the process, so all IR surgery goes through this module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mirlo.dialects.bindings import ir


class SurgeryError(ValueError):
    """Raised for a rewrite that would break the IR."""


def attributes_of(op: ir.Operation | ir.OpView) -> dict[str, ir.Attribute]:
    """Return the attributes of an operation by name."""
    return dict(op.attributes.items())


def clone_with(
    op: ir.Operation | ir.OpView, operands: Sequence[ir.Value], location: ir.Location | None = None
) -> ir.Operation:
    """Return a copy of an operation without regions on other operands, at the current location unless one is given."""
    types = [value.type for value in op.results]
    return ir.Operation.create(op.name, types, operands, attributes_of(op), loc=location)


def enclosing(op: ir.Operation | ir.OpView, name: str) -> ir.Operation:
    """Return the operation of this name that an operation is in, or the operation itself."""
    result = op.operation
    while result.name != name:
        parent = result.parent
        if parent is None:
            raise SurgeryError(f"'{op.operation.name}' is in no '{name}'")
        result = parent.operation
    return result


def ancestors(op: ir.Operation | ir.OpView) -> Iterator[ir.Operation]:
    """Yield the operations that an operation is inside of, innermost first."""
    parent = op.operation.parent
    while parent is not None:
        yield parent.operation
        parent = parent.operation.parent


def is_dead(op: ir.Operation | ir.OpView) -> bool:
    """Return whether the results of an operation have no users."""
    for result in op.operation.results:
        for _ in result.uses:
            return False
    return True


def replace_op(op: ir.Operation | ir.OpView, values: Sequence[ir.Value]) -> None:
    """Replace all uses of an operation's results with these values, and erase it."""
    operation = op.operation
    if len(values) != len(operation.results):
        raise SurgeryError(
            f"'{operation.name}' has {len(operation.results)} results, got {len(values)} values for them"
        )
    for old, new in zip(operation.results, values, strict=True):
        if old.type != new.type:
            raise SurgeryError(f"'{operation.name}' returns {old.type}, the value in its place is {new.type}")
    for old, new in zip(operation.results, values, strict=True):
        old.replace_all_uses_with(new)
    erase_op(op)


def erase_op(op: ir.Operation | ir.OpView) -> None:
    """Erase an operation without users."""
    if not is_dead(op):
        raise SurgeryError(f"'{op.operation.name}' is still used, it cannot be erased")
    op.operation.erase()


def erase_dead(block: ir.Block, is_pure: Callable[[ir.Operation], bool]) -> int:
    """Erase the pure operations of a block that have no users, last first; return how many."""
    count = 0
    for op in reversed([o.operation for o in block.operations]):
        if is_dead(op) and is_pure(op):
            op.erase()
            count += 1
    return count


def blocks(function: ir.Operation | ir.OpView) -> list[ir.Block]:
    """Return the blocks of a function, including nested ones, in pre-order."""
    result: list[ir.Block] = []
    for region in function.operation.regions:
        for block in region.blocks:
            result.append(block)
            for inner in block.operations:
                if len(inner.operation.regions):
                    result += blocks(inner)
    return result


def operations(function: ir.Operation | ir.OpView) -> list[ir.Operation]:
    """Return a snapshot of the operations of a function's body, including the terminator."""
    regions = function.operation.regions
    return [op.operation for op in regions[0].blocks[0].operations] if len(regions) and len(regions[0].blocks) else []


def captured(op: ir.Operation | ir.OpView) -> Iterator[ir.Value]:
    """Yield the values defined outside this operation that nested operations use."""
    defined: set[ir.Value] = set()
    read: dict[ir.Value, None] = {}

    def collect(outer: ir.Operation | ir.OpView) -> None:
        for region in outer.regions:
            for block in region.blocks:
                defined.update(block.arguments)
                for inner in block.operations:
                    read.update(dict.fromkeys(inner.operation.operands))
                    defined.update(inner.operation.results)
                    collect(inner.operation)

    collect(op)
    return (value for value in read if value not in defined)


def replace_inside(op: ir.Operation, value: ir.Value, other: ir.Value) -> None:
    """Replace a value in the regions of an operation by another one."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                for i, each in enumerate(inner.operation.operands):
                    if each == value:
                        inner.operation.operands[i] = other
                replace_inside(inner.operation, value, other)


def clone_module(module: ir.Module | ir.OpView) -> ir.Module:
    """Return a copy of a module, with its attributes."""
    with module.operation.context:
        result = ir.Module.create(module.operation.location)
        for name, attribute in attributes_of(module.operation).items():
            result.operation.attributes[name] = attribute
        for op in module.body.operations:
            op.operation.clone(ip=ir.InsertionPoint(result.body))
    return result
