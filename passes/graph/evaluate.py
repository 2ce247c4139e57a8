"""Evaluation of an operator on arrays: by its meaning in numpy, or by its kernel, compiled for this machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import UndecidedDim
from mirlo.dialects.core.op import DialectOp, apply_meaning, class_of
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.meanings import widened
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import HOST, CompileOptions, find_target
from mirlo.runtime.errors import MirloError
from mirlo.runtime.executable import Executable

NOT_EVALUATED = frozenset({Trait.INTERFACE, Trait.COLLECTIVE})
"""Traits of operators that compute nothing by themselves, or only with other ranks."""


def is_evaluated(op: ir.Operation) -> bool:
    """Return whether an operation is a function of its operands alone."""
    view = op.opview
    if not isinstance(view, DialectOp) or not view.PURE or view.REGIONS or not op.results:
        return False
    return NOT_EVALUATED.isdisjoint(view.TRAITS)


def evaluate(op: ir.Operation, operands: Sequence[np.ndarray], kinds: Sequence[TensorType]) -> list[np.ndarray] | str:
    """Return the results of an operation, whose types are static, or why they cannot be computed.

    Numpy evaluates what it can, in microseconds. What the operator's class does not define in numpy is compiled, which
    takes a tenth of a second, so that each operator that has a kernel is evaluated.
    """
    results = _evaluate_in_numpy(op, operands, kinds)
    if results is None:
        return _run_kernel(op, operands)
    return [np.asarray(array, kind.dtype.to_numpy()) for array, kind in zip(results, kinds, strict=True)]


def _evaluate_in_numpy(
    op: ir.Operation, operands: Sequence[np.ndarray], kinds: Sequence[TensorType]
) -> Sequence[np.ndarray] | None:
    """Return the result in numpy, or None where the operator's class does not define it."""
    view, cls = op.opview, class_of(op)
    if cls.meaning is None:
        return None
    if Trait.ELEMENTWISE in cls.TRAITS and cls.IN_F32:
        operands = [widened(array) for array in operands]
    try:
        with np.errstate(all="ignore"):
            picked = [cls._operand_layout.pick(field, op, operands) for field in cls._operand_layout.fields]
            return apply_meaning(cls, picked, view.attribute_values(), [kind.static_shape for kind in kinds])
    except (TypeError, UndecidedDim):  # numpy has no such operator for this element type, or for symbolic dims
        return None


def _run_kernel(op: ir.Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray] | str:
    """Compile a module with the operation alone for this machine and run it."""
    if not all(isinstance(dim, int) for dim in op.opview.every_dim()):
        return "its sizes are dynamic"
    target, options, session = find_target(HOST), CompileOptions(target=HOST, jobs=1), Session()
    try:
        module = _module_of(op)
        Pipeline(target.pipeline(options)).run(module, session)
        results = Executable(target.emit(module, options), session.params)(*operands)
    except MirloError as error:
        return f"its kernel does not compile: {' '.join(str(error).split())}"
    return list(results) if isinstance(results, tuple) else [results]


def _module_of(op: ir.Operation) -> ir.Module:
    """Return a module whose entry computes the operation from arguments."""
    module = ir.Module.create(op.location)
    kind = ir.FunctionType.get([value.type for value in op.operands], [value.type for value in op.results])
    with ir.InsertionPoint(module.body), op.location:
        function = ir.Operation.create(
            "func.func",
            attributes={"sym_name": ir.StringAttr.get(ENTRY_NAME), "function_type": ir.TypeAttr.get(kind)},
            regions=1,
        )
        block = function.regions[0].blocks.append(*kind.inputs, arg_locs=[op.location] * len(kind.inputs))
        with ir.InsertionPoint(block):
            copy = op.clone()
            for position, argument in enumerate(block.arguments):
                copy.operation.operands[position] = argument
            ir.Operation.create("func.return", operands=list(copy.operation.results))
    mark_entry(function)
    return module
