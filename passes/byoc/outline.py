"""Outlining of groups of nodes to functions, and inlining of calls."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.values import OPERAND_RUNS, RESULT_RUNS
from mirlo.dialects.core.walk import walk
from mirlo.passes.byoc.graph import BlockGraph, BlockNode, BlockValue, QuotientGraph
from mirlo.passes.registry import PassError
from mirlo.passes.targets import is_target, unknown_target

COMPOSITE, TARGET, EXTERNAL = "relax.composite", "relax.target", "relax.external"


class GroupOutliner:
    """An outliner of disjoint groups of one block that form no cycle."""

    def __init__(self, graph: BlockGraph, body: ir.Block, symbols: ir.SymbolTable | None):
        self.graph = graph
        self.body = body
        self.symbols = symbols

    def prepare(self, masks: Sequence[int]) -> None:
        """Reorder the block so that each group can become one call, with its results read after all of its nodes."""
        if not any(self._is_read_inside(mask) for mask in masks):
            return
        quotient = QuotientGraph(self.graph)
        for mask in masks:
            quotient.join(mask)
        last = self.graph.nodes[-1].op
        for node in quotient.order():
            if not node.is_terminator:
                node.op.move_before(last)

    def _is_read_inside(self, mask: int) -> bool:
        """Return whether an outside reader of the group precedes the group's last node."""
        end = mask.bit_length()
        return any(
            user.index < end and not mask >> user.index & 1 for node in self.graph.members(mask) for user in node.users
        )

    def outline(
        self, mask: int, name: str, attributes: Mapping[str, ir.StringAttr], bind_constants: bool = True
    ) -> ir.Operation:
        """Move a group to a new private function; returns the call that replaces it."""
        nodes = self.graph.members(mask)
        inside = {value for node in nodes for value in node.results}
        read = [v for v in dict.fromkeys(v for node in nodes for v in node.operands) if v not in inside]
        constants = [value for value in read if value.is_constant and bind_constants]
        inputs = sort_by_type([value for value in read if not (value.is_constant and bind_constants)], OPERAND_RUNS)
        outputs = sort_by_type(
            [v for node in nodes for v in node.results if any(not mask >> u.index & 1 for u in v.users)], RESULT_RUNS
        )
        location = ir.Location.fused([node.op.location for node in nodes])  # each once
        with location:
            function = self._function(name, nodes, constants, inputs, outputs)
            for key, attribute in attributes.items():
                function.operation.attributes[key] = attribute
            with ir.InsertionPoint(nodes[-1].op):
                callee = ir.FlatSymbolRefAttr.get(symbol_name(function))
                call = func.CallOp([v.mlir.type for v in outputs], callee, [v.mlir for v in inputs])
        for value, result in zip(outputs, call.operation.results, strict=True):
            value.mlir.replace_all_uses_with(result)
            value.mlir = result
        for node in reversed(nodes):
            node.op.erase()
        return call.operation

    def _function(
        self,
        name: str,
        nodes: list[BlockNode],
        constants: list[BlockValue],
        inputs: list[BlockValue],
        outputs: list[BlockValue],
    ) -> func.FuncOp:
        assert self.symbols is not None, "groups become functions of a module"
        kind = ir.FunctionType.get([v.mlir.type for v in inputs], [v.mlir.type for v in outputs])
        function = func.FuncOp(free_name(name, self.symbols), kind, visibility="private", ip=False)
        entry = function.add_entry_block()
        self.body.append(function.operation)
        self.symbols.insert(function.operation)
        env: dict[ir.Value, ir.Value] = dict(zip((v.mlir for v in inputs), entry.arguments, strict=True))
        with ir.InsertionPoint(entry):
            for value in constants:
                env[value.mlir] = copy_op(value.mlir.owner, env).results[0]
            for node in nodes:
                env.update(zip(node.op.results, copy_op(node.op, env).results, strict=True))
            func.ReturnOp([env[v.mlir] for v in outputs])
        return function


def sort_by_type(values: list[BlockValue], limit: int) -> list[BlockValue]:
    """Return the values, sorted by type if a call cannot encode this many runs of equal types."""
    types = [value.mlir.type for value in values]
    runs = 1 + sum(left != right for left, right in itertools.pairwise(types))
    return values if runs <= limit else sorted(values, key=lambda value: str(value.mlir.type))


def free_name(base: str, symbols: ir.SymbolTable) -> str:
    """Return `base_N` with the first free number."""
    return next(name for i in itertools.count() if (name := f"{base}_{i}") not in symbols)


def copy_op(op: ir.Operation, env: Mapping[ir.Value, ir.Value]) -> ir.Operation:
    """Copy an operation to the insertion point with other operands."""
    operation = op.operation
    if len(operation.regions):
        copied = operation.clone()

        def remap(inner: ir.Operation) -> ir.WalkResult:
            for i, value in enumerate(inner.operands):
                if value in env:
                    inner.operands[i] = env[value]
            return ir.WalkResult.ADVANCE

        walk(copied, remap, ir.WalkOrder.PRE_ORDER)
        return copied
    attributes = {operation.attributes[i].name: operation.attributes[i].attr for i in range(len(operation.attributes))}
    return ir.Operation.create(
        operation.name,
        results=[r.type for r in operation.results],
        operands=[env[v] for v in operation.operands],
        attributes=attributes,
        loc=operation.location,
    )


def inline_call(call: ir.Operation, function: ir.Operation | ir.OpView) -> list[ir.Operation]:
    """Inline a single-block function at a call; returns the new operations."""
    *body, returned = [op.operation for op in function.operation.regions[0].blocks[0].operations]
    env: dict[ir.Value, ir.Value] = dict(
        zip(function.operation.regions[0].blocks[0].arguments, call.operands, strict=True)
    )
    result = []
    with ir.InsertionPoint(call):
        for op in body:
            copy = copy_op(op, env)
            env.update(zip(op.results, copy.results, strict=True))
            result.append(copy)
    replace_op(call, [env[v] for v in returned.operands])
    return result


def require_target(module: ir.Operation, target: str) -> None:
    """Raise an error if a pass names a target that does not exist, and that nothing in the module is for."""
    if not target or is_target(target) or any(string_fact(op, EXTERNAL) == target for op in _marked(module)):
        return
    if any(string_fact(function, TARGET) == target for function in functions_of(module).values()):
        return
    raise PassError(unknown_target(target), module.location)


def _marked(module: ir.Operation) -> list[ir.Operation]:
    return [op.operation for op in module.regions[0].blocks[0].operations]


def string_fact(op: ir.Operation, name: str) -> str | None:
    """Return a string attribute of a function or module."""
    attributes = op.operation.attributes
    attribute = attributes.get(name)
    return attribute.value if isinstance(attribute, ir.StringAttr) else None


def callee_of(op: ir.Operation) -> str | None:
    """Return the function of this module that a `func.call` calls."""
    return ir.FlatSymbolRefAttr(op.attributes["callee"]).value if op.name == "func.call" else None


def functions_of(module: ir.Operation) -> dict[str, ir.Operation]:
    """Return the functions of a module that have a body, by name, without those of nested modules."""
    members = [op.operation for op in module.regions[0].blocks[0].operations]
    return {symbol_name(op): op for op in members if op.name == "func.func" and len(op.regions[0].blocks)}
