"""The pass `verify-calls`: checks across calls and functions, which verifiers of single operations cannot do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.buffers import UNBOUNDED, WORKSPACE
from mirlo.dialects.tir.sizes import SYMBOLS
from mirlo.dialects.tir.view import PRIM_FUNC, is_prim_func
from mirlo.passes.facts import is_text, items, wrong_facts
from mirlo.passes.registry import Pass, PassError, register_pass
from mirlo.passes.session import Session
from mirlo.runtime.records import dataclass

STORAGE = {row.storage for row in DTYPES.values()}
"""Element types that the parameters of prim functions may have."""


@register_pass
@dataclass(frozen=True)
class VerifyCalls(Pass):
    """Check that calls match the functions that they name, and the attributes of functions.

    `relax.call_tir` must name a prim function whose parameters and results have the storage types of the call's;
    `relax.call_external` must name a function `@module::@function` of a nested module, of the call's types. Prim
    functions must have one form, tensors or buffers. The `relax.*` attributes of functions must be known and of the
    right type.
    """

    name = "verify-calls"
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        problems = list(_in_module(op.operation))
        for location, problem in problems[:-1]:
            location.emit_error(problem)
        for location, problem in problems[-1:]:
            raise PassError(problem, location)


Problem = tuple[ir.Location, str]


def _in_module(module: ir.Operation) -> Iterator[Problem]:
    for problem in wrong_facts(module.attributes, "module", _described("module", module)):
        yield module.location, problem
    symbols = _symbols(module)
    for member in module.regions[0].blocks[0].operations:
        op = member.operation
        if op.name == "builtin.module":
            yield from _in_module(op)
        elif op.name == "func.func":
            yield from ((op.location, problem) for problem in _in_function(op))
            yield from _in_body(op, symbols)


def _symbols(module: ir.Operation) -> dict[str, ir.Operation]:
    """Return the operations of a module that have a name."""
    members = [member.operation for member in module.regions[0].blocks[0].operations]
    return {symbol_name(op): op for op in members if symbol_name(op)}


def _described(kind: str, op: ir.Operation) -> str:
    return f"{kind} '@{symbol_name(op)}'" if symbol_name(op) else f"the {kind}"


# ---------------------------------------------------------------------------------------------------------- functions


def _in_function(function: ir.Operation) -> Iterator[str]:
    what = _described("function", function)
    yield from wrong_facts(function.attributes, "function", what)
    for owner, key in (("argument", "arg_attrs"), ("result", "res_attrs")):
        entries = list(function.attributes[key]) if key in function.attributes else []
        names: set[str] = set()
        for i, entry in enumerate(entries):
            yield from wrong_facts(entry, owner, f"{owner} #{i} of {what}")
            name = dict(items(entry)).get("relax.name")
            if name is not None and is_text(name):
                if name.value in names:
                    yield f"two {owner}s of {what} have the name '{name.value}'"
                names.add(name.value)
    if is_prim_func(function):
        yield from _in_prim_function(function, what)
    elif WORKSPACE in function.attributes:
        yield f"{what} has '{WORKSPACE}', but is not a prim function"


def _in_prim_function(function: ir.Operation, what: str) -> Iterator[str]:
    if not isinstance(function.attributes[PRIM_FUNC], ir.UnitAttr):
        yield f"attribute '{PRIM_FUNC}' of {what} must be a unit attribute, got {function.attributes[PRIM_FUNC]}"
    kind = ir.TypeAttr(function.attributes["function_type"]).value
    taken = list(kind.inputs)
    if SYMBOLS in function.attributes:
        sizes = function.attributes[SYMBOLS]
        if not isinstance(sizes, ir.ArrayAttr) or not all(isinstance(name, ir.StringAttr) for name in sizes):
            yield f"attribute '{SYMBOLS}' of {what} must be a list of strings, got {sizes}"
            return
        for each in map(ir.StringAttr, sizes):
            problem = _dim_problem(each.value)
            if problem is not None:
                yield f"attribute '{SYMBOLS}' of {what}: {problem}"
                return
        count = len(sizes)
        if len(taken) < count or any(str(each) != "index" for each in taken[len(taken) - count :]):
            yield f"the last {count} parameters of {what} must be the values of its symbols, of type index, got {kind}"
            return
        taken = taken[: len(taken) - count]
    types = [("parameter", i, t) for i, t in enumerate(taken)] + [("result", i, t) for i, t in enumerate(kind.results)]
    for side, i, mlir_type in types:
        if not isinstance(mlir_type, (ir.RankedTensorType, ir.MemRefType)):
            yield f"{side} #{i} of prim {what} must be a ranked tensor or a buffer (memref), got {mlir_type}"
            return
        if str(mlir_type.element_type) not in STORAGE:
            stored = ", ".join(sorted(STORAGE))
            yield f"{side} #{i} of prim {what} must have an element type that memory holds ({stored}), got {mlir_type}"
    buffers = [isinstance(type_, ir.MemRefType) for _, _, type_ in types]
    if any(buffers) and (not all(buffers) or len(kind.results)):
        yield f"prim {what} must take and return tensors, or take buffers and return nothing, got {kind}"
    yield from _workspace_problem(function, what, taken)


def _workspace_problem(function: ir.Operation, what: str, taken: list[ir.Type]) -> Iterator[str]:
    if WORKSPACE not in function.attributes:
        return
    size = function.attributes[WORKSPACE]
    last = taken[-1] if taken else None
    if isinstance(size, ir.StringAttr) and str(last) == f"memref<{UNBOUNDED}xi8>":
        return
    if not isinstance(size, ir.IntegerAttr) or size.value < 0:
        yield f"attribute '{WORKSPACE}' of {what} must be a number of bytes, got {size}"
    elif not isinstance(last, ir.MemRefType) or str(last) != f"memref<{size.value}xi8>":
        yield f"the last parameter of {what} must be its workspace, memref<{size.value}xi8>, got {last}"


# -------------------------------------------------------------------------------------------------------------- calls


def _in_body(function: ir.Operation, symbols: dict[str, ir.Operation]) -> Iterator[Problem]:
    problems: list[Problem] = []
    in_prim = is_prim_func(function)

    def visit(op: ir.Operation) -> ir.WalkResult:
        if in_prim and op.name.startswith("relax."):
            what = _described("function", function)
            problems.append((op.location, f"'{op.name}' is an operator of the graph and cannot be in prim {what}"))
        check = _CALLS.get(op.name)
        if check is not None:
            problem = check(op, symbols)
            if problem:
                problems.append((op.location, f"'{op.name}' op {problem}"))
        return ir.WalkResult.ADVANCE

    walk(function, visit, ir.WalkOrder.PRE_ORDER)
    return iter(problems)


def _dim_problem(text: str) -> str | None:
    """Return why a text is not a dim that has a value, or None."""
    try:
        dim = D.parse(text)
    except ValueError as error:
        return str(error)
    return None if isinstance(dim, D.SymbolicDim) and dim is not D.UNKNOWN else f"expected symbols, got '{text}'"


def _call_tir(op: ir.Operation, symbols: dict[str, ir.Operation]) -> str | None:
    name = op.opview.callee
    callee = symbols.get(name)
    if callee is None:
        return f"calls '@{name}', which does not exist{_hint(name, symbols, is_prim_func)}"
    if not is_prim_func(callee):
        return f"calls '@{name}', which is not a prim function: a 'func.func' with the attribute '{PRIM_FUNC}'"
    kind = ir.TypeAttr(callee.attributes["function_type"]).value
    inputs, results = list(kind.inputs), list(kind.results)
    if not results:
        # In buffer form the outputs are parameters after the inputs, followed by scratch memory and symbols.
        taken = len(inputs) - (WORKSPACE in callee.attributes) - len(callee.attributes.get(SYMBOLS, ()))
        count = max(0, taken - len(op.results))
        inputs, results = inputs[:count], inputs[count:taken]
    return _mismatch(name, op, inputs, results, _is_stored_as)


def _call_external(op: ir.Operation, symbols: dict[str, ir.Operation]) -> str | None:
    name = op.opview.callee
    module_name, _, function_name = name.partition("::")
    if not function_name or "::" in function_name:
        return f"calls '@{name}': expected a function of a module, '@module::@function'"
    module = symbols.get(module_name)
    if module is None or module.name != "builtin.module":
        hint = _hint(module_name, symbols, lambda member: member.name == "builtin.module")
        return f"calls a function of the module '@{module_name}', which does not exist{hint}"
    members = _symbols(module)
    function = members.get(function_name)
    if function is None or function.name != "func.func":
        hint = _hint(function_name, members, lambda member: member.name == "func.func")
        return f"calls '@{function_name}' of the module '@{module_name}', which does not exist{hint}"
    kind = ir.TypeAttr(function.attributes["function_type"]).value
    return _mismatch(
        function_name, op, list(kind.inputs), list(kind.results), lambda passed, declared: passed == declared
    )


_CALLS: dict[str, Callable[[ir.Operation, dict[str, ir.Operation]], str | None]] = {
    "relax.call_tir": _call_tir,
    "relax.call_external": _call_external,
}


def _hint(name: str, symbols: dict[str, ir.Operation], fits: Callable[[ir.Operation], bool]) -> str:
    candidates = [known for known, op in symbols.items() if fits(op)]
    near = difflib.get_close_matches(name, candidates, n=1)
    return f"; did you mean '@{near[0]}'?" if near else ""


def _mismatch(
    name: str, op: ir.Operation, inputs: list[ir.Type], results: list[ir.Type], fits: Callable[[ir.Type, ir.Type], bool]
) -> str | None:
    """Return how the operands and results of a call differ from those of its function, or None."""
    sides = (("operands", op.operands, inputs), ("results", op.results, results))
    for side, values, declared in sides:
        if len(values) != len(declared):
            return f"has {len(values)} {side}, but '@{name}' has {len(declared)}"
    for side, values, declared in sides:
        for i, (value, wanted) in enumerate(zip(values, declared, strict=True)):
            if not fits(value.type, wanted):
                return f"{side.removesuffix('s')} #{i} is {value.type}, but '@{name}' declares {wanted}"
    return None


def _is_stored_as(passed: ir.Type, declared: ir.Type) -> bool:
    """Return whether a relax tensor may be passed to a parameter of this type; an unknown dim there takes any size."""
    tensor = TensorType.from_mlir(passed)
    if tensor is None or not isinstance(declared, (ir.RankedTensorType, ir.MemRefType)):
        return False
    if isinstance(declared, ir.MemRefType) and list(declared.shape) == [UNBOUNDED]:
        return str(declared.element_type) == tensor.dtype.storage and not tensor.is_static
    if str(declared.element_type) != tensor.dtype.storage or declared.rank != tensor.rank:
        return False
    return all(declared.is_dynamic_dim(i) or declared.shape[i] == dim for i, dim in enumerate(tensor.shape))
