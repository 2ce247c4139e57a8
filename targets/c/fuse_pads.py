"""Pass `fuse-pads`: fuse padding into convolutions, which compute it a few rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import erase_op
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.tir.view import PrimView, is_tensor_form, prim_functions
from mirlo.passes.registry import Pass, register_pass
from mirlo.passes.schedule.stored import calls_of, count_runs
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class FusePads(Pass):
    """Move blocks that pad a tensor into the function that reduces the padded tensor, if nothing else reads it.

    The padded tensor then needs no memory of its own: a schedule computes the rows that it reads next.
    """

    name = "fuse-pads"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        functions = {symbol_name(f): f for f in prim_functions(op) if is_tensor_form(f)}
        pads = {name: view for name, f in functions.items() if _is_pad(view := PrimView(f))}
        symbols = ir.SymbolTable(op.operation)
        fused: dict[tuple[str, str, int], str] = {}
        for name, sites in calls_of(op).items():
            if name in pads or name not in functions:
                continue
            view = PrimView(functions[name])
            for site in sites:
                for number, value in enumerate(site.operands):
                    source = value.owner if isinstance(value, ir.OpResult) else None
                    if source is None or source.name != "relax.call_tir" or source.opview.callee not in pads:
                        continue
                    if len(list(value.uses)) != 1 or not _reduces(view, number):
                        continue
                    key = (source.opview.callee, name, number)
                    if key not in fused:
                        fused[key] = _fuse(pads[key[0]], view, number, symbols, op)
                    _call(site, fused[key], number, source.operands[0])
                    erase_op(source)
                    break


def _is_pad(view: PrimView) -> bool:
    """Return whether a function computes elements of one tensor one by one, and puts a constant around them."""
    if view.others or not view.blocks or len(view.returned) != 1 or len(view.arguments) != 1:
        return False
    operands = [operand for block in view.blocks for operand in block.inputs]
    return (
        any(operand.outside is not None for operand in operands)
        and not any(operand.is_opaque for operand in operands)
        and not any(block.is_reduction or len(block.outputs) != 1 for block in view.blocks)
        and all(isinstance(dim, int) for block in view.blocks for dim in block.domain)
    )


def _reduces(view: PrimView, number: int) -> bool:
    """Return whether a function reads an operand in a reduction, once and within its edges."""
    if view.others or not view.blocks or not view.blocks[0].is_reduction:
        return False
    argument = view.arguments[number]
    read = [operand for operand in view.blocks[0].inputs if operand.value == argument]
    return len(read) == 1 and len(list(argument.uses)) == 1 and read[0].outside is None and not read[0].is_opaque


def _fuse(pad: PrimView, view: PrimView, number: int, symbols: ir.SymbolTable, module: ir.OpView) -> str:
    """Add a function that computes the padded operand itself; return its name."""
    function = view.op.operation.clone(ip=ir.InsertionPoint(module.operation.regions[0].blocks[0]))
    rename_symbol(function, f"{symbol_name(pad.op)}_{symbol_name(view.op)}")
    name = ir.StringAttr(symbols.insert(function)).value
    entry = function.regions[0].blocks[0]
    argument = entry.arguments[number]
    first = entry.operations[0]
    values: dict[ir.Value, ir.Value] = {}
    for block in pad.blocks:
        copy = block.op.operation.clone(ip=ir.InsertionPoint(first))
        for at, value in enumerate(block.op.operation.operands):
            copy.operands[at] = values.get(value, argument)
        values[block.op.operation.results[0]] = copy.results[0]
    padded = values[pad.returned[0]]
    for use in list(argument.uses):
        owner = use.owner.operation
        if owner.results[0] not in values.values():
            owner.operands[use.operand_number] = padded
    argument.set_type(pad.arguments[0].type)
    kind = ir.FunctionType.get([a.type for a in entry.arguments], [v.type for v in view.returned])
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    return name


def _call(site: ir.Operation, name: str, number: int, value: ir.Value) -> None:
    site.operands[number] = value
    site.attributes["callee"] = ir.FlatSymbolRefAttr.get(name)
    count_runs(site)
