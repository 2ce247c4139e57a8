"""The tunable parts of a model: kernels, and operators that can be computed in several ways, each as a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.surgery import clone_module, clone_with
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry
from mirlo.dialects.tir.view import PrimView, is_tensor_form, prim_functions
from mirlo.driver.code import UnknownKernel
from mirlo.driver.models import open_model, require_sizes
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.locations import node_of
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.kernel import Kernel
from mirlo.passes.schedule.schedule import SCHEDULES, SchedulePrims, has_tuning_space
from mirlo.passes.schedule.tuned import (
    TUNING,
    ApplyTuning,
    Lookup,
    name_of,
    operations_named,
    tuning_key,
)
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions, Target, TargetError
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class TuningTask:
    """A kernel, or an operator, to tune."""

    key: str
    function: str
    """The name of the kernel, or of the operator's node."""
    calls: int
    """How often a run of the model calls it."""
    module: str
    """A module whose `@main` computes it once, as text."""
    rest: str
    """The passes that are left for it."""
    choices: tuple[dict[str, int], ...]
    """What may be tried, the likeliest first."""
    expected: tuple[float | None, ...] = ()
    """The part of the time that the target expects each of these to take; None where it does not know."""
    operator: str | None = None
    """The operation that gets the choice, where that is not a prim function."""


@dataclass(frozen=True)
class TuningPoint:
    """A position in a target's pipeline where choices are made."""

    at: int
    step: ApplyTuning

    @property
    def operators(self) -> list[str]:
        return self.step.operators.split()


def points_of(targets: Targets, options: CompileOptions) -> tuple[list[str], list[TuningPoint]]:
    """Return the steps of a pipeline as text, and the points among them at which choices are applied."""
    chosen = targets.host_target
    target = chosen.name
    if not chosen.has("space") and not has_tuning_space(target):
        raise TargetError(f"target '{target}' has nothing to tune: it offers no choices for its kernels")
    pipeline = Pipeline(targets.pipeline(options.threads))
    points = [TuningPoint(at, step) for at, step in enumerate(pipeline) if isinstance(step, ApplyTuning)]
    if not points:
        raise TargetError(f"target '{target}' has nothing to tune: its pipeline has no pass '{ApplyTuning.name}'")
    return [str(step) for step in pipeline], points


def tasks_of(
    model: onnx.ModelProto, target: str, threads: int, shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    *, database: Lookup | None = None, operators: bool = False, is_known: Callable[[str], bool] = lambda key: False,
    kernels: Collection[str] = (),
) -> tuple[list[TuningTask], int]:  # fmt: skip
    """Return the tunable kernels or operators of a model, and how many kernels there are in all.

    Entries of `database` for operators are applied before there are kernels. Known tasks have no prediction.
    Of `kernels`, which are names, only those that are named are returned; each must have choices.
    """
    targets = Targets.parse(target)
    chosen = targets.host_target
    assert targets.host is not None
    target = chosen.name
    options = CompileOptions(target, threads, target_options=targets.host.options)
    steps, points = points_of(targets, options)
    selected = [point for point in points if bool(point.operators) == operators]
    if not selected:
        return [], 0
    point = selected[0]
    opened = open_model(model, shapes)
    module, session = opened.module, opened.session
    require_sizes(module, target)
    session.options[TUNING] = database
    with module.context, ir.Location.unknown():
        Pipeline(f"builtin.module({','.join(steps[: point.at])})").run(module, session)
        subjects = _operators(module, point) if operators else _named(_kernels(module, session), kernels)
        rest = f"builtin.module({','.join(steps[point.at + 1 :])})"
        spaces = None if operators else KernelSpaces(steps[point.at + 1 :], module, session)
        tasks: dict[str, TuningTask] = {}
        for subject in subjects:
            key = tuning_key(subject.op, target, threads, point.step.target_options)
            if key in tasks or not subject.calls:
                continue
            assert subject.site is not None
            choices = chosen.space(subject.op, options)
            if spaces is not None:
                choices = spaces.points(subject, choices)
            if not choices:
                _require_no_name(subject.name, kernels)
                continue
            expected = () if is_known(key) else _expected(chosen, subject.op, choices, options)
            alone = str(_operation_module(subject.site, None if operators else subject.op))
            operator = subject.op.name if operators else None
            tasks[key] = TuningTask(key, subject.name, subject.calls, alone, rest, tuple(choices), expected, operator)
    return list(tasks.values()), len(subjects)


class KernelSpaces:
    """The tuning spaces of a module's kernels: those of the rules that take them."""

    def __init__(self, steps: Sequence[str], module: ir.Module, session: Session) -> None:
        passes = Pipeline(f"builtin.module({','.join(steps)})")
        self._schedule = next((step for step in passes if isinstance(step, SchedulePrims)), None)
        self._module, self._session = module, session
        self._copy = clone_module(module)
        self._functions = {name_of(f): f for f in prim_functions(self._copy.operation) if is_tensor_form(f)}

    def points(self, subject: Subject, otherwise: list[dict[str, int]]) -> list[dict[str, int]]:
        """Return the points to measure; `otherwise` are those of the target for rules that declare none."""
        if self._schedule is None:
            return otherwise
        kernel, duplicate = Kernel(PrimView(subject.op)), self._functions[subject.name]
        return self._schedule.tuning_points(kernel, duplicate, self._module, self._session, otherwise)


@dataclass(frozen=True)
class Subject:
    """A tunable kernel or operator, and how often the model computes it."""

    op: ir.OpView | ir.Operation
    name: str
    calls: int
    site: ir.OpView | ir.Operation | None
    """The operation that computes it: itself, or a call."""


def _kernels(module: ir.Module, session: Session) -> list[Subject]:
    functions = [f for f in prim_functions(module.operation) if is_tensor_form(f)]
    sites = _sites(module)
    schedules = session.options.get(SCHEDULES, {})
    kernels: list[Subject] = []
    for function in functions:
        name = name_of(function)
        called = [] if name in schedules else sites.get(name, [])
        kernels.append(Subject(function, name, len(called), called[0] if called else None))
    return kernels


def _named(subjects: list[Subject], names: Collection[str]) -> list[Subject]:
    """Return the kernels of these names, or all without names."""
    known = [subject.name for subject in subjects]
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UnknownKernel(f"the model has no kernel '{name}'{nearest(name, known)}; its kernels: {listed}")
    return [subject for subject in subjects if not names or subject.name in names]


def _require_no_name(kernel: str, names: Collection[str]) -> None:
    """Reject a kernel that is to be tuned by name, and has no choices."""
    if kernel in names:
        raise TargetError(f"kernel '{kernel}' has nothing to tune: the target offers no choices for it")


def _operators(module: ir.Module, point: TuningPoint) -> list[Subject]:
    ops = operations_named(module, point.operators)
    step = point.step
    keys = [tuning_key(op, step.target, step.threads, step.target_options) for op in ops]
    calls = Counter(keys)
    return [Subject(op, node_of(op.location) or op.name, calls[key], op) for op, key in zip(ops, keys, strict=True)]


def _expected(
    target: Target, subject: ir.OpView | ir.Operation, choices: Sequence[dict[str, int]], options: CompileOptions
) -> tuple[float | None, ...]:
    own = target.expected(subject, {}, options)
    if not own:
        return ()
    costs = [target.expected(subject, values, options) for values in choices]
    return tuple(None if cost is None else cost / own for cost in costs)


def _sites(module: ir.Module) -> dict[str, list[ir.Operation]]:
    sites: dict[str, list[ir.Operation]] = {}
    for site in operations_named(module, ["relax.call_tir"]):
        sites.setdefault(ir.FlatSymbolRefAttr(site.attributes["callee"]).value, []).append(site)
    return sites


def _operation_module(site: ir.OpView | ir.Operation, function: ir.OpView | ir.Operation | None = None) -> ir.Module:
    """Return a module whose graph computes an operation as the model does, with its weights as constants.

    If the operation is a call, `function` is the callee.
    """
    result = ir.Module.create()
    variable = [value for value in site.operands if not is_constant(value)]
    with ir.InsertionPoint(result.body):
        kinds = ir.FunctionType.get([v.type for v in variable], [r.type for r in site.results])
        main = func.FuncOp(ENTRY_NAME, kinds)
        mark_entry(main)
        if function is not None:
            function.operation.clone()
    entry = main.add_entry_block()
    arguments = dict(zip(variable, entry.arguments, strict=False)) if len(set(variable)) == len(variable) else None
    arrays = iter(entry.arguments)
    with ir.InsertionPoint(entry):
        operands = []
        for value in site.operands:
            if is_constant(value):
                operands.append(_stand_in(value))
            else:
                operands.append(arguments[value] if arguments is not None else next(arrays))
        func.ReturnOp(list(clone_with(site, operands).results))
    return result


def _stand_in(value: ir.Value) -> ir.Value:
    """Return a constant of the same type: its content does not matter for the time, its storage does."""
    parameter = {"param": ir.StringAttr.get("weight_" + str(abs(hash(str(value.type))) % 10**8))}
    return ir.Operation.create("relax.constant", [value.type], [], parameter).results[0]
