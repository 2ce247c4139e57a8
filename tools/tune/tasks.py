"""The kernels of a model, each as a module of its own that can be compiled and timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.schedule import SCHEDULES
from mirlo.passes.schedule.tuned import kernel_key, name_of
from mirlo.passes.targets import TargetError, find_target
from mirlo.tools.compile import CompileOptions
from mirlo.tools.cutout import again, is_constant
from mirlo.tools.models import open_model, require_sizes

POINT = "apply-tuning"
"""The pass before which the kernels of a model are what is tuned."""


@dataclass(frozen=True)
class Task:
    """A kernel to tune."""

    key: str
    function: str
    calls: int
    """How often a run of the model calls it."""
    module: str
    """A module whose `@main` calls it once, as text."""
    rest: str
    """The passes that are left for it."""
    choices: tuple[dict[str, int], ...]
    """What may be tried, the likeliest first."""


def tasks_of(
    model: Any, target: str, threads: int, shapes: Mapping[str, Sequence[int | str]] | None = None
) -> tuple[list[Task], int]:
    """The kernels of a model for which there is something to choose, and how many kernels it has in all."""
    chosen = find_target(target)
    if chosen.pipeline is None or chosen.space is None:
        raise TargetError(f"target '{target}' has nothing to tune: it offers no choices for its kernels")
    options = CompileOptions(target, threads)
    pipeline = Pipeline(chosen.pipeline(options))
    names = pipeline.names()
    if POINT not in names:
        raise TargetError(f"target '{target}' has nothing to tune: its pipeline has no pass '{POINT}'")
    steps = [str(step) for step in pipeline]
    at = names.index(POINT)
    opened = open_model(model, shapes)
    module, session = opened.module, opened.session
    require_sizes(module, target)
    with module.context, ir.Location.unknown():
        Pipeline(f"builtin.module({','.join(steps[:at])})").run(module, session)
        functions = [f for f in prim_functions(module.operation) if is_tensor_form(f)]
        calls = _calls(module)
        rest = f"builtin.module({','.join(steps[at + 1 :])})"
        tasks = []
        for function in functions:
            name = name_of(function)
            choices = chosen.space(function, options)
            if choices and calls[name] and name not in session.options.get(SCHEDULES, {}):
                alone = str(_alone(module, function, name))
                tasks.append(Task(kernel_key(function, target), name, calls[name], alone, rest, tuple(choices)))
    return tasks, len(functions)


def _calls(module: Any) -> Counter[str]:
    found: Counter[str] = Counter()

    def visit(op: Any) -> Any:
        if op.name == "relax.call_tir":
            found[ir.FlatSymbolRefAttr(op.attributes["callee"]).value] += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _alone(module: Any, function: Any, name: str) -> Any:
    """A module with the kernel and a graph that calls it as the model does: its weights are constants there too."""
    site = _first_call(module, name)
    made = ir.Module.create()
    variable = [value for value in site.operands if not is_constant(value)]
    with ir.InsertionPoint(made.body):
        kinds = ir.FunctionType.get([v.type for v in variable], [r.type for r in site.results])
        main = func.FuncOp("main", kinds)
        function.operation.clone()
    entry = main.add_entry_block()
    arguments = dict(zip(variable, entry.arguments, strict=False)) if len(set(variable)) == len(variable) else None
    given = iter(entry.arguments)
    with ir.InsertionPoint(entry):
        operands = []
        for value in site.operands:
            if is_constant(value):
                operands.append(_stand_in(value))
            else:
                operands.append(arguments[value] if arguments is not None else next(given))
        func.ReturnOp(list(again(site, operands).results))
    return made


def _first_call(module: Any, name: str) -> Any:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "relax.call_tir" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value == name:
            found.append(op)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found[0]


def _stand_in(value: Any) -> Any:
    """A constant of the same type: what is in it does not matter for the time, where it lies does."""
    parameter = {"param": ir.StringAttr.get("weight_" + str(abs(hash(str(value.type))) % 10**8))}
    return ir.Operation.create("relax.constant", [value.type], [], parameter).results[0]
