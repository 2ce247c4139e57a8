"""The pass `fuse-tir`: merges a `relax.primitive` function into one prim function and inlines its blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.core.surgery import blocks, operations
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.core.types import dims_of, ranked_tensor
from mirlo.dialects.core.walk import walk
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.buffers import FOREIGN
from mirlo.dialects.tir.view import PRIM_FUNC, RULES, is_prim_func, is_tensor_form
from mirlo.passes.fuse.fuse_ops import PRIMITIVE
from mirlo.passes.fuse.inline import inline_blocks
from mirlo.passes.fuse.kinds import KIND, analyze
from mirlo.passes.fuse.siblings import merge_reductions
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class FuseTir(Pass):
    """Merge each group of `fuse-ops` into one prim function, and remove unused prim functions.

    Elementwise blocks are inlined into the blocks that read them, and reductions of columns over one domain become one
    block with several results.
    """

    name = "fuse-tir"
    keeps_layers = True
    contained = True
    trusted = True
    inline: bool = option(True, "inline elementwise blocks into their readers")

    def run(self, op: ir.OpView, session: Session) -> None:
        body = op.regions[0].blocks[0]
        functions = {symbol_name(f): f for f in body.operations if f.operation.name == "func.func"}
        groups = {
            name: f
            for name, f in functions.items()
            if PRIMITIVE in f.operation.attributes and len(f.operation.regions[0].blocks)
        }
        first: dict[str, str] = {}
        shared: dict[str, str] = {}
        fused: dict[str, ir.OpView] = {}
        for name, group in groups.items():
            shared[name] = first.setdefault(_shape_of_group(group), name)
            if shared[name] != name:
                continue
            _check(group, functions)
            fused[name] = _fuse(group, functions)
            if self.inline:
                inline_blocks(fused[name])
                merge_reductions(fused[name])
            fused[name].operation.attributes[KIND] = ir.StringAttr.get(analyze(fused[name]).label)
        _redirect(body, shared)
        for name, group in groups.items():
            group.operation.erase()
            if name in fused:
                rename_symbol(fused[name], name)
        remove_unused(op)


def _check(group: ir.OpView, functions: dict[str, ir.OpView]) -> None:
    """Check that a group contains only calls of prim functions over tensors."""
    for op in operations(group)[:-1]:
        if op.name != "relax.call_tir":
            what = f"'@{symbol_name(group)}' is a '{PRIMITIVE}' function, which holds calls of prim functions only"
            raise PassError(f"{what}, but has '{op.name}'", op.location)
        callee = functions.get(op.opview.callee)
        if callee is None or not is_prim_func(callee):
            raise PassError(f"'@{op.opview.callee}' is not a prim function of this module", op.location)
        if not is_tensor_form(callee):
            raise PassError(f"'@{op.opview.callee}' is scheduled already: fuse-tir comes before schedule", op.location)


def _shape_of_group(group: ir.OpView) -> str:
    """Return text that is equal for groups that compute the same: everything but the name."""
    text: str = group.operation.get_asm(assume_verified=True, use_local_scope=True)
    return text.replace(f"@{symbol_name(group)}(", "@(", 1)


def _storage(tensor_type: ir.Type) -> ir.Type:
    element = dtype_of_mlir(tensor_type.element_type)
    assert element is not None
    return ranked_tensor(dims_of(tensor_type), ir.Type.parse(element.storage))


def _fuse(function: ir.OpView, functions: dict[str, ir.OpView]) -> func.FuncOp:
    """Concatenate the blocks of all called prim functions in one prim function."""
    op = function.operation
    entry = op.regions[0].blocks[0]
    operations = [o.operation for o in entry.operations]
    results = [_storage(v.type) for v in operations[-1].operands]
    with op.location:
        types = [_storage(a.type) for a in entry.arguments]
        result = func.FuncOp(
            symbol_name(function) + "_tir",
            ir.FunctionType.get(types, results),
            visibility="private",
            ip=ir.InsertionPoint(op),
        )
        result.operation.attributes[PRIM_FUNC] = ir.UnitAttr.get()
        block = result.add_entry_block()
        env: dict[ir.Value, ir.Value] = dict(zip(entry.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for call in operations[:-1]:
                called = functions[call.opview.callee].operation
                if RULES in called.attributes:  # alike in a group
                    result.operation.attributes[RULES] = called.attributes[RULES]
                if FOREIGN in called.attributes:
                    result.operation.attributes[FOREIGN] = called.attributes[FOREIGN]
                callee = called.regions[0].blocks[0]
                env.update(zip(call.results, _inlined(callee, [env[v] for v in call.operands]), strict=True))
            func.ReturnOp([env[v] for v in operations[-1].operands])
    return result


def _inlined(callee: ir.Block, arguments: list[ir.Value]) -> list[ir.Value]:
    env: dict[ir.Value, ir.Value] = dict(zip(callee.arguments, arguments, strict=True))
    operations = [o.operation for o in callee.operations]
    for op in operations[:-1]:
        copy = op.clone()
        for i, operand in enumerate(op.operands):
            copy.operands[i] = env[operand]
        env.update(zip(op.results, copy.results, strict=True))
    return [env[v] for v in operations[-1].operands]


def _redirect(body: ir.Block, shared: dict[str, str]) -> None:
    """Replace `func.call @primitive` by `relax.call_tir` of the prim function."""
    for function in body.operations:
        if function.operation.name != "func.func" or is_prim_func(function):
            continue
        for op in [wrapped.operation for block in blocks(function) for wrapped in block.operations]:
            if op.name != "func.call":
                continue
            symbol = shared.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
            if symbol is None:
                continue
            with ir.InsertionPoint(op), op.location:
                result = CallTir.build(
                    list(op.operands), result_types=[v.type for v in op.results], callee=symbol
                ).operation
            for old, new in zip(op.results, result.results, strict=True):
                old.replace_all_uses_with(new)
            op.erase()


def remove_unused(module: ir.OpView) -> None:
    """Remove prim functions that no call names."""
    used: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if "callee" in op.attributes and isinstance(op.attributes["callee"], ir.FlatSymbolRefAttr):
            used.add(op.attributes["callee"].value)
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    for function in list(module.regions[0].blocks[0].operations):
        if is_prim_func(function) and symbol_name(function) not in used and _is_private(function):
            function.operation.erase()


def _is_private(function: ir.OpView) -> bool:
    attributes = function.operation.attributes
    return "sym_visibility" in attributes and ir.StringAttr(attributes["sym_visibility"]).value == "private"
