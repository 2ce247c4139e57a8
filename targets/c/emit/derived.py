"""Elementwise operators that no table names: their legalization on scalars, as a C function."""

from __future__ import annotations

import hashlib

from mirlo.dialects import relax
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import EXTRA_DIALECTS
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import c_identifier
from mirlo.targets.c.loops import CFunctionText, CLoopsError, c_function

_STEPS = "legalize{target=c},annotate-kinds,fuse-ops,fuse-tir"
_MADE: dict[str, CFunctionText | str] = {}
"""The C function of an operator with its types and attributes, or why there is none."""


def elementwise_operators() -> set[str]:
    """Return the elementwise operators of Mirlo and of plug-ins."""
    dialects = (relax.DIALECT, *EXTRA_DIALECTS)
    operators = {name: op for dialect in dialects for name, op in dialect.operations.items()}
    return {name for name, op in operators.items() if Trait.ELEMENTWISE in op.TRAITS}


def forget() -> None:
    """Forget what was derived: rules may be others now."""
    _MADE.clear()


def derive(operation: ir.Operation) -> CFunctionText | str:
    """Return the C function of an elementwise operation on pointers to scalars, or why there is none."""
    operation = operation.operation
    kinds = [TensorType.from_mlir(value.type) for value in (*operation.operands, *operation.results)]
    attributes = {operation.attributes[i].name: operation.attributes[i].attr for i in range(len(operation.attributes))}
    types = [TensorType((), kind.dtype) for kind in kinds if kind is not None]
    key = f"{operation.name} {[str(kind) for kind in types]} {sorted((n, str(a)) for n, a in attributes.items())}"
    if key not in _MADE:
        digest = hashlib.blake2b(key.encode(), digest_size=4).hexdigest()
        name = f"{c_identifier(operation.name.replace('.', '_'))}_{digest}"
        try:
            _MADE[key] = _function_of(operation, types, attributes, name)
        except (MirloError, ir.MLIRError) as error:
            _MADE[key] = str(error).splitlines()[0]
    return _MADE[key]


def _function_of(
    operation: ir.Operation, types: list[TensorType], attributes: dict[str, ir.Attribute], name: str
) -> CFunctionText:
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.session import Session

    with operation.context, ir.Location.unknown():
        module = ir.Module.create()
        count = len(operation.operands)
        inputs, outputs = [t.to_mlir() for t in types[:count]], [t.to_mlir() for t in types[count:]]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(inputs, outputs))
            entry = main.add_entry_block()
        with ir.InsertionPoint(entry):
            made = ir.Operation.create(
                operation.name, results=outputs, operands=list(entry.arguments), attributes=attributes
            )
            func.ReturnOp(list(made.results))
        Pipeline(_STEPS).run(module, Session())
        functions = {ir.StringAttr(op.attributes["sym_name"]).value: op.operation for op in module.body.operations}
        entry = functions["main"].regions[0].blocks[0]
        body = [op.operation for op in entry.operations][:-1]
        if [op.name for op in body] != ["relax.call_tir"] or list(body[0].operands) != list(entry.arguments):
            raise CLoopsError(f"{operation.name} does not become one prim function")
        text = c_function(functions[body[0].opview.callee], name)
    if text.externs or text.workspace != 0:
        raise CLoopsError(f"{operation.name} calls functions that C files do not have")
    return text
