"""The explanation of a compilation, from its records: nodes, their rules, and their kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.view import is_prim_func
from mirlo.driver.bind_strategies import bind_strategies
from mirlo.driver.build import build
from mirlo.driver.compile_strategy import CompileStrategy, strategies_for
from mirlo.driver.compiler import precision_passes
from mirlo.driver.describe_regions import count_operators, describe_regions
from mirlo.driver.given import check_used, give, node_watch
from mirlo.driver.models import open_model, require_sizes
from mirlo.driver.programs.partition import modules_on_tensors
from mirlo.driver.request import open_database, require_one_build
from mirlo.driver.strategies import Measured, StrategyRecord
from mirlo.driver.tune.database import Database
from mirlo.frontends.foreign import ImportedModule
from mirlo.passes.bounds.verify_bounds import BoundsRecord
from mirlo.passes.byoc.artifacts import detach_artifacts
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.exact.pipeline import with_verification
from mirlo.passes.exact.verdict import KernelVerdict
from mirlo.passes.figures import KernelExpectation
from mirlo.passes.graph.inline_calls import inline_calls
from mirlo.passes.instrumentation import Instrument, PassFailed
from mirlo.passes.legalize.conversion import LegalizationRecord
from mirlo.passes.locations import kernel_calls, node_labels
from mirlo.passes.lower.intrinsics import IntrinsicChoice
from mirlo.passes.lower.parallel import ParallelRecord
from mirlo.passes.memory.plan import MemoryRecord
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.pipeline_parser import Step
from mirlo.passes.registry import PassError
from mirlo.passes.report_section import ReportSection
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.passes.schedule.primitives.tree_passes import require_tree_pass
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.schedule.tuned import TUNING, TuningRecord
from mirlo.passes.session import Approximation, PassDecision, Session
from mirlo.passes.targets import CompileOptions, Target, thread_limits
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.records import dataclass
from mirlo.runtime.regions import RegionDescription
from mirlo.tools.explain.expectations import UnscheduledModule
from mirlo.tools.explain.kernel import FollowedKernels, KernelStage, require_kernel
from mirlo.tools.explain.loops import ScheduledFunction
from mirlo.tools.explain.operations import FollowedOperation

if TYPE_CHECKING:
    from mirlo.driver.options import GivenSchedule, RuleFunction, Strategies

VERIFY = "verify-bounds{fail=never steps=1500}"
"""Proves accesses of kernels for a second, or some where dims are dynamic; static kernels need a tenth of that."""


@dataclass
class ExplainedNode:
    """A node of the user's model, or a place in a file where there are no names."""

    name: str
    operators: list[LegalizationRecord] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    tuned: dict[str, int] = field(default_factory=dict)
    """What measurements chose for one of its operators."""
    given_to: list[str] = field(default_factory=list)
    """The patterns of code generators that took operators of it."""
    decisions: list[PassDecision] = field(default_factory=list)
    """What passes decided about its operators."""
    given_back: dict[str, str] = field(default_factory=dict)
    """Why code generators do not compute it that took it at first, by target."""


@dataclass
class ExplainedKernel:
    """A prim function that is called at the end, and the rules that made its code."""

    name: str
    calls: int = 0
    nodes: list[str] = field(default_factory=list)
    schedule: ScheduleRecord | None = None
    parallel: ParallelRecord | None = None
    intrinsics: list[IntrinsicChoice] = field(default_factory=list)
    tuned: dict[str, int] = field(default_factory=dict)
    """What measurements chose."""
    bounds: BoundsRecord | None = None
    verdict: KernelVerdict | None = None
    """Whether it is equal to its definition; only if the kernel was asked for by name."""
    expectation: KernelExpectation | None = None
    """What the target expects of it; only if the kernel was asked for by name."""
    decisions: list[PassDecision] = field(default_factory=list)

    def take(self, note: ScheduleRecord | ParallelRecord | TuningRecord | BoundsRecord | KernelVerdict) -> None:
        """Record the result."""
        if isinstance(note, ScheduleRecord):
            self.schedule = note
        elif isinstance(note, KernelVerdict):
            self.verdict = note
        elif isinstance(note, BoundsRecord):
            # The compilation proves and tests accesses by data; then all others are proven.
            if self.bounds is not None:
                others = tuple(access for access in note.unproven if not access.from_data)
                note = replace(self.bounds, unproven=(*self.bounds.unproven, *others))
            self.bounds = note
        elif isinstance(note, ParallelRecord):
            self.parallel = note
        else:
            self.tuned = note.values


@dataclass
class Explanation:
    """The whole explanation, until the compilation ended or failed."""

    target: str
    nodes: list[ExplainedNode]
    kernels: list[ExplainedKernel]
    memory: list[MemoryRecord]
    measured: list[StrategyRecord]
    failure: str | None = None
    regions: tuple[RegionDescription, ...] = ()
    sections: list[ReportSection] = field(default_factory=list)
    """What passes of packages report."""
    approximations: list[Approximation] = field(default_factory=list)
    """By what results differ from those that the model describes, as options permit."""
    stages: dict[str, list[KernelStage]] = field(default_factory=dict)
    """The stages of the kernels that were followed."""
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    """The kernels in the order in which they are called, each with the nodes of its call."""
    graph: list[KernelStage] = field(default_factory=list)
    """The stages of the graph, if all kernels were followed."""
    imported: list[FollowedOperation] = field(default_factory=list)
    called: list[FollowedOperation] = field(default_factory=list)
    """The operations of the graph as it was imported, and with calls of kernels."""


def explain_model(
    model: str | ir.Module | ImportedModule,
    target: str = "llvm",
    *,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    legalize: Mapping[str, RuleFunction] | None = None,
    intrinsics: Mapping[str, RuleFunction] | None = None,
    strategies: Strategies | Measured | str | None = None,
    schedules: Mapping[str, GivenSchedule] | None = None,
    tune: Database | bool | str | os.PathLike[str] = True,
    kernel: str | None = None,
    after: str | None = None,
    follow: bool = False,
    precision: str | None = None,
    **package_options: object,
) -> Explanation:
    """Compile a model up to its kernels and collect the reasons of each step.

    Rules, strategies, schedules, `precision`, `tune`, the database of measured choices, and options of packages are
    given as to `mirlo.compile`. With `kernel` the IR and the code of this kernel are kept at each stage, with `follow`
    of all. With `after`, a pass over loops, the loops of this kernel after it take the place of these stages.
    """
    if after is not None:
        require_tree_pass(after)
        if kernel is None:
            raise ScheduleError("`after` selects the loops of one kernel: name it by `kernel`")
    package_strategies = strategies_for(package_options)
    targets = Targets.parse(_target_of(target, package_strategies)).or_host()
    require_one_build(targets)
    host = targets.host_target
    assert targets.host is not None
    opened = open_model(model, shapes)
    module, session = opened.module, opened.session
    inline_calls(module.operation)
    require_sizes(module, host.name)
    give(opened, model, shapes, legalize=legalize, intrinsics=intrinsics, schedules=schedules)
    session.options[TUNING] = open_database(tune)
    options = CompileOptions(host.name, threads, target_options=targets.host.options)
    session.options["strategies"] = bind_strategies(strategies, options, session, build)
    pipeline = Pipeline(opened.pipeline or targets.pipeline(threads))
    pipeline.prepend(precision_passes(precision, opened.pipeline, host, options))
    for strategy in package_strategies:
        pipeline.prepend(strategy.first_passes())
    _verify_all(pipeline, host.name)
    if kernel is not None and after is None and "schedule" in pipeline and "lower-loops" in pipeline:
        with_verification(pipeline, kernel=kernel, fail="never")
    watch = _Watch()
    scheduled = ScheduledFunction(kernel) if kernel is not None and after is not None else None
    followed = FollowedKernels(kernel) if scheduled is None and (follow or kernel is not None) else None
    unscheduled = UnscheduledModule() if kernel is not None else None
    operators = count_operators(module)
    failure: str | None = None
    calls: list[tuple[str, list[str]]] = []
    externals: tuple[ExternalArtifact, ...] = ()
    with module.context, ir.Location.unknown():
        watch.note_nodes(module)
        parts = modules_on_tensors(module, session)
        for part in parts:
            failure = _run(pipeline, part, session, [watch, *filter(None, (followed, unscheduled, scheduled))])
            calls += kernel_calls(part)
            if failure is not None:
                break
            externals += tuple(detach_artifacts(part))
    explanation = _assemble(target, watch, session.notes, calls, failure)
    explanation.calls = calls
    if unscheduled is not None:
        with module.context, ir.Location.unknown():
            _expect(unscheduled, explanation.kernels, kernel, host, options)
    explanation.approximations = [note for note in session.notes if isinstance(note, Approximation)]
    explanation.sections = [note for note in session.notes if isinstance(note, ReportSection)]
    if failure is None:
        explanation.regions = describe_regions(targets, session.notes, operators, externals=externals)
    if followed is not None:
        explanation.graph, explanation.imported, explanation.called = followed.graph, followed.imported, followed.called
        explanation.stages = (
            followed.all_stages(explanation.kernels, parts, host, options)
            if failure is None
            else followed.stages_before_failure(explanation.kernels)
        )
    if scheduled is not None and after is not None:
        with module.context, ir.Location.unknown():
            explanation.stages = _loops_after(after, scheduled, explanation)
    return explanation


def _target_of(target: str, strategies: Sequence[CompileStrategy[Any]]) -> str:
    targets: str | Sequence[str] = target
    for strategy in strategies:
        targets = strategy.target(targets)
    return targets if isinstance(targets, str) else ",".join(targets)


def _loops_after(name: str, scheduled: ScheduledFunction, explanation: Explanation) -> dict[str, list[KernelStage]]:
    """Return the loops of a kernel after a pass over them; nothing if the compilation failed before its schedule."""
    records = {kernel.name: kernel.schedule for kernel in explanation.kernels}
    if explanation.failure is not None and records.get(scheduled.name) is None:
        return {}
    require_kernel(scheduled.name, records)
    return {scheduled.name: [KernelStage(f"loops after {name}", scheduled.loops_after(name, records))]}


def _verify_all(pipeline: Pipeline, host: str) -> None:
    """Request a record of the bounds of all accesses; a compilation proves only those that depend on data."""
    if thread_limits(host) is not None:
        return  # of kernels of GPUs, only accesses by data are proven
    if "verify-bounds" in pipeline:
        pipeline.insert_after("verify-bounds", VERIFY, 0)
    elif "lower-intrinsics" in pipeline:
        pipeline.insert_after("lower-intrinsics", VERIFY, 0)


def _run(pipeline: Pipeline, module: ir.Module, session: Session, instruments: Sequence[Instrument]) -> str | None:
    """Run the passes as far as they go; return the error of the one that fails."""
    try:
        pipeline.run(module, session, [*instruments, *node_watch(session)])
        check_used(session)
    except (PassFailed, PassError) as error:
        return str(error)
    return None


def _expect(
    unscheduled: UnscheduledModule,
    kernels: Sequence[ExplainedKernel],
    name: str | None,
    host: Target,
    options: CompileOptions,
) -> None:
    """Add what the target expects of the kernel of this name."""
    for kernel in kernels:
        if kernel.name == name and kernel.schedule is not None:
            kernel.expectation = unscheduled.expectation(name, kernel.schedule, kernel.tuned, host, options)


@dataclass
class _Watch(Instrument):
    """Records the nodes at the start, and the intrinsics of each kernel before they are lowered."""

    nodes: list[str] = field(default_factory=list)
    intrinsics: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def note_nodes(self, module: ir.Module) -> None:
        def visit(op: ir.Operation) -> ir.WalkResult:
            if is_prim_func(op):  # lines of a kernel are no nodes of the graph
                return ir.WalkResult.SKIP
            if op.name not in ("builtin.module", "func.func", "func.return", "relax.constant"):
                self.nodes += node_labels(op.location)
            return ir.WalkResult.ADVANCE

        walk(module, visit, ir.WalkOrder.PRE_ORDER)
        self.nodes = list(dict.fromkeys(self.nodes))

    def before_pass(self, step: Step, op: ir.OpView) -> None:
        if step.name != "lower-intrinsics" or op.operation.name != "builtin.module":
            return
        for function in op.operation.opview.body.operations:
            if is_prim_func(function):
                name = symbol_name(function)
                self.intrinsics[name] = _intrinsics(function.operation)


def _intrinsics(function: ir.Operation) -> list[tuple[str, str]]:
    intrinsics: dict[tuple[str, str], None] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name.startswith("tir.") and op.name[4:] in INTRINSICS:
            intrinsics[op.name[4:], str(op.operands[0].type)] = None
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    return list(intrinsics)


def _assemble(
    target: str, watch: _Watch, notes: Sequence[object], calls: Sequence[tuple[str, list[str]]], failure: str | None
) -> Explanation:
    nodes = {name: ExplainedNode(name) for name in watch.nodes}
    kernels: dict[str, ExplainedKernel] = {}
    for callee, names in calls:
        kernel = kernels.setdefault(callee, ExplainedKernel(callee))
        kernel.calls += 1
        for name in names:
            node = nodes.setdefault(name, ExplainedNode(name))
            kernel.nodes += [name] if name not in kernel.nodes else []
            node.kernels += [callee] if callee not in node.kernels else []
    choices = {(c.intrinsic, c.type): c for c in notes if isinstance(c, IntrinsicChoice)}
    for name, used in watch.intrinsics.items():
        if name in kernels:
            kernels[name].intrinsics = [choices[key] for key in used if key in choices]
    for note in notes:
        _take_note(note, nodes, kernels)
    memory = [note for note in notes if isinstance(note, MemoryRecord)]
    measured = [note for note in notes if isinstance(note, StrategyRecord)]
    return Explanation(target, list(nodes.values()), list(kernels.values()), memory, measured, failure)


def _take_note(note: object, nodes: dict[str, ExplainedNode], kernels: dict[str, ExplainedKernel]) -> None:
    """Add a record of the compilation to the nodes and the kernels that it is about."""
    of_kernels = ScheduleRecord, ParallelRecord, TuningRecord, BoundsRecord, KernelVerdict
    if isinstance(note, of_kernels) and note.function in kernels:
        kernels[note.function].take(note)
    elif isinstance(note, LegalizationRecord):
        for name in note.names or (note.location,):
            nodes.setdefault(name, ExplainedNode(name)).operators.append(note)
    elif isinstance(note, TuningRecord):
        for name in note.nodes:
            nodes.setdefault(name, ExplainedNode(name)).tuned |= note.values
    elif isinstance(note, PassDecision):
        for name in note.nodes:
            nodes.setdefault(name, ExplainedNode(name)).decisions.append(note)
        if note.function in kernels:
            kernels[note.function].decisions.append(note)
    elif isinstance(note, Placement):
        _note_taken(note, nodes)


def _note_taken(placement: Placement, nodes: dict[str, ExplainedNode]) -> None:
    """Note the patterns of code generators at the nodes that they took."""
    for taken in placement.taken:
        for at in taken.nodes:
            node = placement.nodes[at]
            for name in node.names or (node.place,):
                patterns = nodes.setdefault(name, ExplainedNode(name)).given_to
                patterns += [taken.pattern] if taken.pattern not in patterns else []
    for region in placement.regions:
        for at in region.nodes if region.reason else ():
            node = placement.nodes[at]
            for name in node.names or (node.place,):
                nodes.setdefault(name, ExplainedNode(name)).given_back[region.target] = region.reason
