"""The pass `codegen-external`: compile external modules to artifacts and call them by name."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import walk
from mirlo.dialects.relax.calls import CallDpsPacked
from mirlo.dialects.tir.sizes import add_extents
from mirlo.passes.byoc.artifacts import artifacts_of, attach_artifact
from mirlo.passes.byoc.codegen import DeclinedRegions, generator_of
from mirlo.passes.byoc.inline import Inliner, drop_unused_composites
from mirlo.passes.byoc.outline import functions_of, require_target
from mirlo.passes.byoc.read_external import EXTERNAL, Constants, external_modules
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.run_generator import run_generator
from mirlo.passes.byoc.tuned_regions import attach_tuned
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.session import Session
from mirlo.passes.targets import TargetError
from mirlo.runtime.external import ExternalArtifact, packed_name
from mirlo.runtime.names import unused_name
from mirlo.runtime.native import is_native, native_code
from mirlo.runtime.records import dataclass


@register_pass
@dataclass(frozen=True)
class CodegenExternal(Pass):
    """Compile the external modules by their code generators.

    The code generator of the target that a nested module names (`relax.external`) turns it into an artifact, which is
    attached to the module as `relax.external_artifacts`; the nested module goes, calls of its functions become
    `relax.call_dps_packed "target.function"`. Modules of targets that leave code to Mirlo stay (`inline-external`);
    their driver becomes an artifact without functions. Where a code generator fails, the external module is written to
    a file which runs it again.
    """

    name = "codegen-external"
    target: str | None = option(None, "compile the external modules of this target only")
    options: str = option("", "options of its code generator, 'provider=cpu'; they need 'target'")
    times: bool = option(False, "record what code generators say that calls take, for placements and their reports")
    bundles: str | None = option(None, "the folder for what repeats a failure (default: a new one for temporary files)")

    def __post_init__(self) -> None:
        if self.options and self.target is None:
            raise ValueError("'options' belong to one code generator: name it with 'target'")

    def run(self, op: ir.OpView, session: Session) -> None:
        require_target(op.operation, self.target or "")
        for nested in external_modules(op):
            target = ir.StringAttr(nested.attributes[EXTERNAL]).value
            if self.target in (None, target):
                self._compile(op.operation, nested, target, session)

    def _compile(self, module: ir.Operation, nested: ir.Operation, target: str, session: Session) -> None:
        try:
            generator = generator_of(target, self.options)
        except TargetError as error:
            raise PassError(str(error), nested.location) from error
        if not generator.makes_artifacts:
            if generator.driver:
                attach_artifact(module, ExternalArtifact(generator.driver, (), target=target))
            return
        calls = _calls_into(module, nested)
        _rename_clashes(module, nested, calls, target, session)
        attach_tuned(nested, generator, session)
        artifact, constants = run_generator(generator, nested, self.options, session, self.bundles)
        while isinstance(artifact, DeclinedRegions):
            _return_to_graph(module, nested, calls, artifact, session)
            calls = _calls_into(module, nested)
            if not calls:
                nested.erase()
                return
            artifact, constants = run_generator(generator, nested, self.options, session, self.bundles)
        if generator.format and artifact.format != generator.format:
            raise PassError(
                f"code generator '{target}': expected an artifact of its format '{generator.format}', found "
                f"'{artifact.format}': declare that one, or none",
                nested.location,
            )
        _require_parameters(artifact, constants, session)
        for function, microseconds in generator.times(artifact).items() if self.times else ():
            for placement in _placements(session):
                placement.set_time(f"{_symbol(nested)}::{function}", microseconds)
        attach_artifact(module, artifact)
        workspaces = native_code(artifact).workspaces if is_native(artifact) else {}
        for function, ops in calls.items():
            products = _products_in(nested, function)
            name, workspace = packed_name(target, function), str(workspaces.get(function, 0))
            for call in ops:
                _call_by_name(call, name, products, _workspace(call, name, workspace))
        nested.erase()


def _return_to_graph(
    module: ir.Operation,
    nested: ir.Operation,
    calls: dict[str, list[ir.Operation]],
    declined: DeclinedRegions,
    session: Session,
) -> None:
    """Inline regions that a code generator declined, and record why."""
    inliner, functions = Inliner(module), functions_of(nested)
    owner = _symbol(nested)
    for name, reason in declined.reasons.items():
        for call in calls.get(name, ()):
            inliner.put_back(call, functions[name], nested)
        functions[name].erase()
        for placement in _placements(session):
            placement.drop(f"{owner}::{name}", str(reason))
    drop_unused_composites(nested)


def _placements(session: Session) -> list[Placement]:
    return [note for note in session.notes if isinstance(note, Placement)]


def _symbol(op: ir.Operation) -> str:
    if not symbol_name(op):
        raise PassError("an external module needs a name: 'builtin.module @name'", op.location)
    return symbol_name(op)


def _calls_into(module: ir.Operation, nested: ir.Operation) -> dict[str, list[ir.Operation]]:
    """Return the calls of the functions of a nested module, by function."""
    prefix = f"{_symbol(nested)}::"
    result: dict[str, list[ir.Operation]] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "relax.call_external" and op.opview.callee.startswith(prefix):
            result.setdefault(op.opview.callee[len(prefix) :], []).append(op)
        return ir.WalkResult.ADVANCE

    walk(module, visit, ir.WalkOrder.PRE_ORDER)
    return result


def _rename_clashes(
    module: ir.Operation, nested: ir.Operation, calls: dict[str, list[ir.Operation]], target: str, session: Session
) -> None:
    """Rename functions whose names clash with an earlier artifact of the target."""
    taken = {name for artifact in artifacts_of(module) if artifact.target == target for name in artifact.functions}
    functions = [op.operation for op in nested.regions[0].blocks[0].operations if op.operation.name == "func.func"]
    present = {_symbol(function) for function in functions}
    for function in functions:
        name = _symbol(function)
        if name not in taken or name not in calls:
            continue
        fresh = unused_name(name, taken | present)
        present.add(fresh)
        rename_symbol(function, fresh)
        calls[fresh] = calls.pop(name)
        owner = _symbol(nested)
        for placement in _placements(session):
            placement.rename(f"{owner}::{name}", f"{owner}::{fresh}")


def _require_parameters(artifact: ExternalArtifact, constants: Constants, session: Session) -> None:
    """Require constants that the artifact requests by name to be parameters."""
    for name in artifact.params:
        if name in constants.inline:
            session.params.add(name, constants.inline[name])


def _products_in(nested: ir.Operation, name: str) -> list[tuple[Dim, ...]]:
    """Return the byte size of each tensor in a function as a product of dims.

    They are checked before foreign code runs.
    """
    products: list[tuple[Dim, ...]] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        for tensor in map(TensorType.from_mlir, (value.type for value in op.results)):
            if tensor is not None and not any(dim is D.UNKNOWN for dim in tensor.shape):
                products.append((*tensor.shape, tensor.dtype.bytes))
        return ir.WalkResult.ADVANCE

    for op in nested.regions[0].blocks[0].operations:
        if op.operation.name == "func.func" and _symbol(op.operation) == name:
            walk(op, visit, ir.WalkOrder.PRE_ORDER)
    return products


def _workspace(call: ir.Operation, name: str, size: str) -> TensorType | None:
    """Return the type of the tensor with the workspace of a call, of bytes; None if its function asks for none."""
    try:
        dim = D.parse(size)
    except ValueError as error:
        raise PassError(f"the workspace of region '{name}' has no size: {error}", call.location) from error
    operands = [TensorType.from_mlir(value.type) for value in call.operands]
    known = {symbol for tensor in operands if tensor is not None for d in tensor.shape for symbol in D.symbols_of(d)}
    unknown = sorted(D.symbols_of(dim) - known)
    if unknown or not D.is_nonnegative(dim):
        why = f"no input has the dim '{unknown[0]}'" if unknown else "it may be negative"
        raise PassError(
            f"the workspace of region '{name}' has '{size}' bytes, and {why}: expected a number, or an expression of "
            f"{', '.join(sorted(known)) or 'numbers'}",
            call.location,
        )
    return None if dim == 0 else TensorType.of((dim,), "u8")


def _call_by_name(call: ir.Operation, name: str, products: list[tuple[Dim, ...]], workspace: TensorType | None) -> None:
    """Replace a call by one of a packed function; a workspace is its last result, which nothing uses."""
    types = [result.type for result in call.results]
    if workspace is not None:
        types.append(workspace.to_mlir())
        products = [*products, workspace.shape]
    with ir.InsertionPoint(call), call.location:
        result = CallDpsPacked.build(list(call.operands), function=name, result_types=types)
        add_extents(result.operation, products)
        replace_op(call, list(result.operation.results)[: len(call.results)])
