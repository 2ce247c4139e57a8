"""In-place execution: inputs of a prim function that its output may overwrite."""

from __future__ import annotations

from mirlo.dialects.bindings import arith, ir, memref, scf
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.surgery import erase_op
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.buffers import INPLACE, START, tensor_bytes
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView


def annotate_inplace(view: PrimView) -> None:
    """Annotate a prim function in tensor form with `tir.inplace` if it has such inputs."""
    positions = inplace_inputs(view)
    if positions:
        view.op.attributes[INPLACE] = ir.DenseI64ArrayAttr.get(positions)


def inplace_inputs(view: PrimView) -> list[int]:
    """Return positions of the inputs that the output may overwrite, for functions of one elementwise block."""
    if len(view.blocks) != 1 or view.others or len(view.returned) != 1:
        return []
    block = view.blocks[0]
    if block.is_reduction or len(block.outputs) != 1 or view.returned[0] != block.outputs[0].value:
        return []
    output = block.outputs[0]
    size = _bytes(output.value)
    return [
        i
        for i, argument in enumerate(view.arguments)
        if _bytes(argument) == size and _reads_in_step(block, argument, output)
    ]


def _bytes(value: ir.Value) -> Dim:
    return tensor_bytes(dims_of(value.type), value.type.element_type)


def _reads_in_step(block: BlockView, argument: ir.Value, output: OperandView) -> bool:
    """Return whether each element of the argument is read only for the same element of the output."""
    reads = [operand for operand in block.inputs if operand.value == argument]
    return bool(reads) and all(
        not operand.is_opaque
        and operand.outside is None
        and operand.shape == output.shape
        and operand.map == output.map
        for operand in reads
    )


def inplace_of(function: ir.OpView) -> list[int]:
    """Return the inputs that a scheduled prim function allows to be overwritten."""
    attributes = function.operation.attributes
    return list(ir.DenseI64ArrayAttr(attributes[INPLACE])) if INPLACE in attributes else []


def without_start(module: ir.OpView, function: ir.OpView) -> str:
    """Return the name of the variant of a prim function that works in place, without the initial copy.

    This is the function itself if it has no initial copy.
    """
    name = symbol_name(function)
    if not _starts(function.operation):
        return name
    changed = f"{name}.in_place"
    known = {symbol_name(op) for op in _functions(module)}
    if changed not in known:
        clone = function.operation.clone(ip=ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]))
        rename_symbol(clone, changed)
        for op in _starts(clone):
            erase_op(op)
    return changed


def with_checked_start(module: ir.OpView, function: ir.OpView, inputs: int) -> str:
    """Return the name of the variant of a prim function that makes no initial copy if both have one memory.

    This is the function itself if it has no initial copy. `inputs` is the number of its inputs.
    """
    operation = function.operation
    name = symbol_name(operation)
    if not _starts(operation):
        return name
    changed = f"{name}.state"
    known = {symbol_name(op) for op in _functions(module)}
    if changed in known:
        return changed
    clone = operation.clone(ip=ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]))
    rename_symbol(clone, changed)
    arguments = clone.regions[0].blocks[0].arguments
    (position,), (start,) = inplace_of(function), _starts(clone)
    with ir.InsertionPoint(start), start.location:
        source, target = (memref.ExtractAlignedPointerAsIndexOp(arguments[i]).result for i in (position, inputs))
        branch = scf.IfOp(arith.CmpIOp(arith.CmpIPredicate.ne, source, target).result, [])
        with ir.InsertionPoint(branch.then_block):
            start.clone()
            scf.YieldOp([])
    erase_op(start)
    return changed


def _functions(module: ir.OpView) -> list[ir.Operation]:
    operations = [op.operation for op in module.regions[0].blocks[0].operations]
    return [op for op in operations if op.name == "func.func"]


def _starts(function: ir.Operation) -> list[ir.Operation]:
    """Return the initial copies of an input to the output."""
    blocks = function.regions[0].blocks
    return [op.operation for op in blocks[0].operations if START in op.operation.attributes] if len(blocks) else []
