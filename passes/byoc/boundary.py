"""Layout changes at function boundaries: permutes move from a function's edge to its callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.surgery import erase_dead, operations, replace_op
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallExternal
from mirlo.passes.byoc.outline import symbol_name
from mirlo.passes.byoc.rewrite import next_operation
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.graph.fold_constant import FoldConstant
from mirlo.passes.graph.requested_layouts import FORCED, NOTHING
from mirlo.passes.graph.rewrite import Rewriter, kind_of, rewrite, without_unit_dims
from mirlo.passes.graph.rules.layout import MARK, inverse, permuted
from mirlo.passes.rules import LAYOUT
from mirlo.passes.session import Session
from mirlo.runtime.records import dataclass

Axes = list[int]


@dataclass
class Edge:
    """The permutes at the edge of a function, by parameter and by result."""

    parameters: dict[int, Axes] = field(default_factory=dict)
    results: dict[int, Axes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.parameters or self.results)

    def __len__(self) -> int:
        return len(self.parameters) + len(self.results)


def marked_permute(value: ir.Value) -> ir.OpView | None:
    """Return the layout-change permute that defines a value, if any."""
    if not isinstance(value, ir.OpResult):
        return None
    op = value.owner
    return op.opview if op.name == "relax.permute" and MARK in op.attributes else None


def count_permutes(function: ir.OpView | ir.Operation) -> int:
    """Return the number of layout-change permutes that are computed at run time."""
    return sum(_is_marked(op) and not _is_folded(op.operands[0]) for op in operations(function))


def _is_folded(value: ir.Value) -> bool:
    """Return whether a value is a constant, in another shape or not."""
    return is_constant(without_unit_dims(value))


def edge_of(function: ir.OpView | ir.Operation) -> Edge:
    """Find parameters that are read through one permute only, and results that one produces."""
    edge = Edge()
    block = function.operation.regions[0].blocks[0]
    for i, argument in enumerate(block.arguments):
        readers = [use.owner for use in argument.uses]
        orders = {tuple(r.opview.axes) if _is_marked(r) else () for r in readers}
        if len(orders) == 1 and () not in orders:
            edge.parameters[i] = list(*orders)
    for i, value in enumerate(operations(function)[-1].operands):
        permute = marked_permute(value)
        if permute is not None and isinstance(permute.x, ir.OpResult):
            edge.results[i] = list(permute.axes)
    return edge


def _is_marked(op: ir.OpView | ir.Operation) -> bool:
    return bool(op.name == "relax.permute" and MARK in op.attributes)


def strip(function: ir.OpView | ir.Operation, edge: Edge) -> None:
    """Remove the permutes at the edge of a function and update its type."""
    block = function.operation.regions[0].blocks[0]
    for i in edge.parameters:
        argument = block.arguments[i]
        permutes = [use.owner for use in argument.uses]
        kind = permutes[0].results[0].type
        argument.set_type(kind)
        for permute in permutes:
            permute.results[0].replace_all_uses_with(argument)
            permute.erase()
    returned = operations(function)[-1]
    for i in edge.results:
        returned.operands[i] = marked_permute(returned.operands[i]).x  # type: ignore[union-attr]
    set_type(function)
    erase_dead(block, is_pure_relax)


def push(function: ir.Operation | ir.OpView, parameters: dict[int, tuple[Axes, ir.Type]], session: Session) -> None:
    """Make a function take parameters of the type before a permute, and permute them itself."""
    block = function.operation.regions[0].blocks[0]
    for i, (axes, kind) in parameters.items():
        argument = block.arguments[i]
        users = [use.owner for use in argument.uses]
        argument.set_type(kind)
        if users:
            result = permuted(argument, axes, Rewriter(operations(function)[0], session))
            argument.replace_all_uses_except(result, result.owner.operation)
    set_type(function)


def set_type(function: ir.OpView | ir.Operation) -> None:
    """Set the declared type of a function to that of its body."""
    block = function.operation.regions[0].blocks[0]
    results = [value.type for value in operations(function)[-1].operands]
    kind = ir.FunctionType.get([argument.type for argument in block.arguments], results)
    function.operation.attributes["function_type"] = ir.TypeAttr.get(kind)


def rebuild_call(
    call: ir.Operation, operands: Sequence[ir.Value], function: ir.Operation, edge: Edge, session: Session
) -> ir.Operation:
    """Rebuild a call for a function's new type: operands unpermuted, results permuted at the call."""
    types = [value.type for value in operations(function)[-1].operands]
    with ir.InsertionPoint(call), call.location:
        if call.name == "func.call":
            result = func.CallOp(types, ir.FlatSymbolRefAttr.get(symbol_name(function)), list(operands)).operation
        else:
            result = CallExternal.build(list(operands), callee=call.opview.callee, result_types=types).operation
    behind = Rewriter(next_operation(call), session)
    values = [permuted(v, edge.results[i], behind) if i in edge.results else v for i, v in enumerate(result.results)]
    # The permutes are inserted after the old call, before its users.
    replace_op(call, values)
    return result


def hoist(function: ir.Operation, calls: Sequence[ir.Operation], session: Session) -> Edge:
    """Move the permutes at the edge of a function to its calls; returns what was moved."""
    edge = edge_of(function)
    if edge:
        strip(function, edge)
        for call in calls:
            rebuild_call(call, _permuted_operands(call, edge, session), function, edge, session)
    return edge


def _permuted_operands(call: ir.Operation, edge: Edge, session: Session) -> list[ir.Value]:
    """Return the operands of a call, permuted as its function did."""
    return [
        permuted_for(value, edge.parameters[i], call, session) if i in edge.parameters else value
        for i, value in enumerate(call.operands)
    ]


def permuted_for(value: ir.Value, axes: Axes, reader: ir.Operation, session: Session) -> ir.Value:
    """Return a value permuted before its reader; reuses an existing permute or cancels an inverse one."""
    made_by = marked_permute(value)
    if made_by is not None and list(made_by.axes) == inverse(axes):
        result: ir.Value = made_by.x
        return result
    return find_permute(value, axes, reader) or permuted(value, axes, Rewriter(reader, session))


def find_permute(value: ir.Value, axes: Axes, reader: ir.Operation) -> ir.Value | None:
    """Return an equal permute of a value that precedes an operation."""
    for use in value.uses:
        op = use.owner.operation
        is_same = _is_marked(op) and list(op.opview.axes) == axes and op.block == reader.block
        if is_same and op.is_before_in_block(reader.operation):
            return op.results[0]
    return None


def sink(function: ir.Operation, call: ir.Operation, session: Session) -> bool:
    """Sink permutes of a single call's operands through the function where that leaves fewer of them.

    The rewrite is tried on a copy: permutes that neither vanish nor come out as permuted results stay.
    """
    permutes = {i: p for i, v in enumerate(call.operands) if (p := marked_permute(v)) is not None}
    if not permutes:
        return False
    trial = function.operation.clone()
    push(trial, {i: (list(p.axes), p.x.type) for i, p in permutes.items()}, session)
    rewrite(trial, LAYOUT, session, layouts=NOTHING)
    edge = edge_of(trial)
    stays = {i: axes for i, axes in edge.parameters.items() if i in permutes and axes == list(permutes[i].axes)}
    edge.parameters = stays
    before = len(permutes) + count_permutes(function)
    strip(trial, edge)
    after = len(edge) + count_permutes(trial)
    moved = len(permutes) > len(stays) and (after < before or (after == before and edge.results))
    if moved:
        _replace_body(function, trial)
        FoldConstant().run(function.opview, session)
        operands = [
            permutes[i].x if i in permutes and i not in stays else value for i, value in enumerate(call.operands)
        ]
        rebuild_call(call, operands, function, edge, session)
    trial.erase()
    return bool(moved)


def force(function: ir.Operation, call: ir.Operation, session: Session) -> bool:
    """Move permutes inside a function to its edge, even if other values must be permuted, where that pays.

    Such a permute is free where the caller has it already or cancels it, and of a constant; a permuted result is free
    where all readers permute it back.
    """
    inside = count_permutes(function)
    return bool(inside) and any(
        _accept(trial, edge, function, call, session) for trial, edge in _rearranged(function, session)
    )


def _accept(trial: ir.Operation, edge: Edge, function: ir.Operation, call: ir.Operation, session: Session) -> bool:
    """Replace a function by a rearranged copy if that leaves fewer permutes inside, and no more than before."""
    inside, left = count_permutes(function), count_permutes(trial)
    before = inside + sum(_reading(call.results[i], inverse(axes))[0] for i, axes in edge.results.items())
    after = left + sum(_price(call.operands[i], axes, call) for i, axes in edge.parameters.items())
    after += sum(_reading(call.results[i], inverse(axes))[1] for i, axes in edge.results.items())
    pays = after <= before and left < inside
    if pays:
        _replace_body(function, trial)
        FoldConstant().run(function.opview, session)
        if edge:
            rebuild_call(call, _permuted_operands(call, edge, session), function, edge, session)
    trial.erase()
    return pays


def _rearranged(function: ir.Operation, session: Session) -> Iterator[tuple[ir.Operation, Edge]]:
    """Yield copies of a function whose permutes are elsewhere, and what their callers must permute.

    In one, permutes have sunk although other operands are then permuted; in the others, the values that a permute is
    computed from are read in its layout.
    """
    trial = function.clone()
    rewrite(trial, LAYOUT, session, layouts=FORCED)
    edge = edge_of(trial)
    strip(trial, edge)
    yield trial, edge
    permutes = [op.opview for op in operations(function) if _is_marked(op)]
    for axes in dict.fromkeys(tuple(p.axes) for p in permutes if isinstance(p.x, ir.OpResult)):
        trial = function.clone()
        raised = _raise(trial, list(axes), session)
        edge = edge_of(trial)
        strip(trial, edge)
        yield trial, Edge(_composed(raised, edge.parameters), edge.results)


def _raise(function: ir.Operation, axes: Axes, session: Session) -> dict[int, Axes]:
    """Permute the values that permutes by these axes are computed from; return the parameters that callers permute."""
    block = function.regions[0].blocks[0]
    starts = [op.opview.x for op in operations(function) if _is_marked(op) and list(op.opview.axes) == axes]
    sources = _sources(starts, len(axes))
    raised = {}
    for value in sources:
        if isinstance(value, ir.BlockArgument):
            raised[value.arg_number] = axes
        else:
            behind = Rewriter(next_operation(value.owner.operation), session)
            folded = behind.emit(OPS["permute"], value, axes=axes)
            value.replace_all_uses_except(permuted(folded, inverse(axes), behind), folded.owner.operation)
    push(function, {i: (inverse(axes), _permuted_type(block.arguments[i], axes)) for i in raised}, session)
    rewrite(function, LAYOUT, session, layouts=NOTHING)
    return raised


def _sources(starts: Sequence[ir.Value], rank: int) -> list[ir.Value]:
    """Return the parameters and constants that values are computed from by operators that permutes pass."""
    sources: list[ir.Value] = []
    seen, pending = set(starts), list(starts)
    while pending:
        value = pending.pop()
        if isinstance(value, ir.BlockArgument) or is_constant(value):
            if kind_of(value).rank == rank:
                sources.append(value)
        elif LAYOUT.covers(value.owner.name) and Trait.CONTRACTION not in traits_of(value.owner.opview):
            new = [operand for operand in value.owner.operands if operand not in seen]
            seen.update(new)
            pending += new
    return sources


def _permuted_type(value: ir.Value, axes: Axes) -> ir.Type:
    kind = kind_of(value)
    return kind.with_shape(tuple(kind.shape[axis] for axis in axes)).to_mlir()


def _composed(raised: dict[int, Axes], stripped: dict[int, Axes]) -> dict[int, Axes]:
    """Return the permutes of operands that are permuted first as raised, then as stripped; none where they cancel."""
    composed = {**stripped, **raised}
    for i in raised.keys() & stripped.keys():
        composed[i] = [raised[i][axis] for axis in stripped[i]]
    return {i: axes for i, axes in composed.items() if axes != sorted(axes)}


def _price(value: ir.Value, axes: Axes, reader: ir.Operation) -> int:
    """Return the number of permutes that permuting an operand adds: 0 if one exists or cancels, else 1."""
    made_by = marked_permute(value)
    undoes = made_by is not None and list(made_by.axes) == inverse(axes)
    return 0 if undoes or find_permute(value, axes, reader) is not None else 1


def _reading(value: ir.Value, axes: Axes) -> tuple[bool, bool]:
    """Return whether some readers of a value apply this permute, and whether others do not."""
    so = [_is_marked(use.owner.operation) and list(use.owner.opview.axes) == axes for use in value.uses]
    return any(so), not all(so)


def _replace_body(function: ir.Operation, trial: ir.Operation) -> None:
    """Replace the body and type of a function by those of another one."""
    old, new = function.operation.regions[0].blocks[0], trial.regions[0].blocks[0]
    for op in reversed(operations(function)):
        op.erase()
    env: dict[ir.Value, ir.Value] = {}
    for argument, other in zip(old.arguments, new.arguments, strict=True):
        argument.set_type(other.type)
        env[other] = argument
    for moved, target in env.items():
        moved.replace_all_uses_with(target)
    for op in operations(trial):
        old.append(op)
    function.operation.attributes["function_type"] = trial.attributes["function_type"]
