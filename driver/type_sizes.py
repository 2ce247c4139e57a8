"""Sizes of the types in IR: those larger than any memory are refused where IR is read, before passes use them."""

from __future__ import annotations

from collections.abc import Iterable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.types import TensorType, require_memory
from mirlo.dialects.core.walk import walk
from mirlo.passes.files import FileError
from mirlo.passes.locations import describe


class TypeSizeError(FileError):
    """Raised for a type in IR that is larger than any memory, or whose dims contradict it."""

    error_code = "MIR0603"
    remedy = "Give the sizes with `--dim` or `--shape`."

    def __init__(self, problem: str, location: ir.Location) -> None:
        super().__init__(f"{describe(location)}: {problem}")
        self.problem, self.location = problem, location


def require_type_sizes(module: ir.Module) -> ir.Module:
    """Return the module; raise an error if a value in it has a type larger than any memory."""
    known = set[ir.Type]()

    def require(types: Iterable[ir.Type], location: ir.Location) -> None:
        for each in types:
            if each not in known:
                known.add(each)
                _require(each, location)

    problems: list[TypeSizeError] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        try:
            require((value.type for value in op.results), op.location)
            if "function_type" in op.attributes:  # of a declaration too, which has no arguments
                kind = ir.TypeAttr(op.attributes["function_type"]).value
                if isinstance(kind, ir.FunctionType):
                    require((*kind.inputs, *kind.results), op.location)
            for region in op.regions:
                for block in region.blocks:
                    require((value.type for value in block.arguments), op.location)
        except TypeSizeError as error:  # an exception does not pass through MLIR's walk
            problems.append(error)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    walk(module, visit, ir.WalkOrder.PRE_ORDER)
    if problems:
        raise problems[0]
    return module


def _require(kind: ir.Type, location: ir.Location) -> None:
    if not isinstance(kind, (ir.RankedTensorType, ir.MemRefType, ir.VectorType)):
        return
    try:
        if isinstance(kind, ir.RankedTensorType):
            TensorType.from_mlir(kind)
    except ValueError as error:
        raise TypeSizeError(str(error), location) from None
    try:
        require_memory([size for i, size in enumerate(kind.shape) if not kind.is_dynamic_dim(i)])
    except OpError as error:
        raise TypeSizeError(f"{kind}: {error}: use smaller dims", location) from None
