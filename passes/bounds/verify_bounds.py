"""The pass `verify-bounds`: proves that kernels access memory within their buffers only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.buffers import workspace_of
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.bounds.kernel import KernelBounds, UnprovenAccess
from mirlo.passes.kernel_nodes import node_labels
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.session import Session


@dataclass(frozen=True)
class BoundsRecord:
    """The accesses of one kernel: how many there are, and those that are not proven to be within their buffers."""

    kernel: str
    nodes: tuple[str, ...]
    accesses: int
    unproven: tuple[UnprovenAccess, ...] = ()


@register_pass
@dataclass(frozen=True)
class VerifyBounds(Pass):
    """Prove that all accesses of kernels are within their buffers.

    For each load and store of a prim function in buffer form, the range of its indices follows from bounds of loops,
    guards, masks and clamps; the sizes of parameters are those of its calls, whose dims the caller checks. An access
    by a value that comes from data, which is neither clamped nor guarded, is an error. Others that are not proven are
    recorded with the reason, and are errors too with `strict`.
    """

    name = "verify-bounds"
    contained = True
    trusted = True
    strict: bool = option(False, "fail for every access that is not proven")
    remarks: bool = option(False, "report each access that is not proven as a remark")

    def run(self, op: ir.OpView, session: Session) -> None:
        calls = _calls_of(op.operation)
        for member in op.operation.regions[0].blocks[0].operations:
            function = member.operation
            if function.name != "func.func" or not is_prim_func(function) or not _is_scheduled(function):
                continue
            record = verify_kernel(function, calls.get(symbol_name(function), ()))
            session.notes.append(record)
            for access in record.unproven:
                self._report(record, access, session)

    def _report(self, record: BoundsRecord, access: UnprovenAccess, session: Session) -> None:
        of_nodes = f" ({', '.join(record.nodes)})" if record.nodes else ""
        text = f"kernel '@{record.kernel}'{of_nodes}: {access}"
        if access.from_data or self.strict:
            raise PassError(text, access.location)
        if self.remarks:
            session.remark(text, access.location)


@dataclass
class Calls:
    """The calls of one kernel: the nodes they compute, and the shapes of their operands and results."""

    nodes: list[str] = field(default_factory=list)
    shapes: list[tuple[tuple[Dim, ...], ...]] = field(default_factory=list)


def verify_kernel(function: ir.Operation, calls: Calls | tuple[()] = ()) -> BoundsRecord:
    """Return the record of a prim function in buffer form that is called so."""
    found = calls or Calls()
    sizes = _parameter_sizes(function, found.shapes)
    accesses = 0
    unproven: dict[UnprovenAccess, None] = {}
    for each, dims in sizes:
        kernel = KernelBounds(function, _symbol_parameters(function), each, dims)
        kernel.verify()
        accesses = max(accesses, kernel.accesses)
        unproven.update(dict.fromkeys(kernel.unproven))
    return BoundsRecord(symbol_name(function), tuple(dict.fromkeys(found.nodes)), accesses, tuple(unproven))


def _is_scheduled(function: ir.Operation) -> bool:
    """Return whether a prim function has a body in buffer form."""
    if not function.regions[0].blocks:
        return False
    kinds = ir.TypeAttr(function.attributes["function_type"]).value.inputs
    return not any(isinstance(kind, ir.RankedTensorType) for kind in kinds)


def _calls_of(module: ir.Operation) -> dict[str, Calls]:
    """Return the calls of prim functions in a module, by function."""
    found: dict[str, Calls] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.func" and is_prim_func(op):
            return ir.WalkResult.SKIP
        if op.name == "relax.call_tir":
            calls = found.setdefault(op.opview.callee, Calls())
            calls.nodes += node_labels(op.location)
            values = [*op.operands, *op.results]
            types = [TensorType.from_mlir(value.type) for value in values]
            shapes = tuple(() if each is None else each.shape for each in types)
            if shapes not in calls.shapes:
                calls.shapes.append(shapes)
        return ir.WalkResult.ADVANCE

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _symbol_parameters(function: ir.Operation) -> dict[int, Dim]:
    """Return the dims that a kernel takes as its last parameters, by position."""
    symbols = symbols_of_function(function.opview)
    first = len(function.regions[0].blocks[0].arguments) - len(symbols)
    return {first + i: symbol for i, symbol in enumerate(symbols)}


def _parameter_sizes(
    function: ir.Operation, shapes: Sequence[tuple[tuple[Dim, ...], ...]]
) -> Iterator[tuple[Mapping[int, Dim], Sequence[Dim]]]:
    """Yield the numbers of elements of parameters by position, and the dims they come from, for each way of calls."""
    workspace = workspace_of(function.opview)
    seen: set[tuple[tuple[int, Dim], ...]] = set()
    for each in shapes or [()]:
        sizes: dict[int, Dim] = {i: D.product(shape) for i, shape in enumerate(each)}
        if shapes and workspace != 0:
            sizes[len(each)] = workspace
        key = tuple(sizes.items())
        if key not in seen:
            seen.add(key)
            yield sizes, [dim for shape in each for dim in shape if not isinstance(dim, int)]
