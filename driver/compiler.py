"""The compiler: from a model to the artifact of a target by import, passes and emission.

Instruments of its passes report progress and write the IR of every stage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import recycle_context
from mirlo.dialects.core.surgery import blocks, clone_module
from mirlo.dialects.core.symbols import symbol_name
from mirlo.driver.compile_strategy import CompileStrategy, requested_strategies
from mirlo.driver.describe_regions import count_operators, describe_regions
from mirlo.driver.given import check_used, give, node_watch
from mirlo.driver.models import ModelError, OpenedModel, open_model, require_sizes
from mirlo.driver.options import FASTEST, CompileOptionError, Strategies
from mirlo.driver.programs import needs_program
from mirlo.driver.request import CompileFunction, CompileRequest, require_one_build
from mirlo.passes.byoc.artifacts import detach_artifacts
from mirlo.passes.byoc.outline import EXTERNAL, functions_of, string_fact
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.code_forms import KernelText
from mirlo.passes.entry import PLANNED, entry_or_none
from mirlo.passes.files import FileError, write_ir
from mirlo.passes.graph.inline_calls import inline_calls
from mirlo.passes.instrumentation import Instrument, Preparation
from mirlo.passes.layers.once_per_layer import divide_steps, run_once_per_layer
from mirlo.passes.locations import describe, kernel_nodes
from mirlo.passes.memory.plan import MemoryRecord
from mirlo.passes.memory.weights import RELEASE, release_unnamed
from mirlo.passes.options import quote
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.pipeline_parser import Leaf, Step
from mirlo.passes.schedule.tuned import TUNING
from mirlo.passes.session import REQUESTED_ACTIVATIONS, Approximation, RowType, Session
from mirlo.passes.targets import CompileOptions, Target, code_target
from mirlo.runtime import system
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import OutOfMemoryError, nearest
from mirlo.runtime.memory import require_available
from mirlo.runtime.names import AUTO
from mirlo.runtime.records import dataclass
from mirlo.runtime.regions import METADATA as REGIONS

if TYPE_CHECKING:
    from mirlo.passes.pipeline_parser import Step
    from mirlo.runtime.compiled_program import CompiledProgram


@dataclass
class PipelineProgress(Instrument):
    """Reports the progress of a pipeline."""

    progress: Callable[[str], None]

    def before_pass(self, step: Step, op: ir.OpView) -> None:
        self.progress(step.name)


RELEASING = ("simplify", "fold-constant", "convert-layout", "pack-weights")
"""Passes that put new constants in the place of others."""


@dataclass
class ReleaseWeights(Instrument):
    """Releases arrays without a constant that refers to them, after passes that create new ones."""

    session: Session

    def after_pass(self, step: Step, op: ir.OpView) -> None:
        if step.name in RELEASING:
            release_unnamed(op, self.session)


@dataclass
class SaveStages(Instrument):
    """Writes the module of every stage and the passes that it has before it: `00-import.mlir`, `01-legalize.mlir`..."""

    folder: Path
    session: Session
    count: int = field(default=0, init=False)
    last: str = field(default="import", init=False)

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        self._write(op, remaining)
        step = remaining[0]
        self.last = step.name

    def end_run(self, op: ir.OpView) -> None:
        self._write(op, ())

    def _write(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write IR to '{self.folder}': {error.strerror or error}") from error
        path = self.folder / f"{self.count:02}-{self.last}.mlir"
        from mirlo.passes.reproducer import configuration

        write_ir(op, path, self.session, enable_debug_info=True, header=configuration(remaining))
        self.count += 1


MIN_OPERATORS_FOR_WORKERS = 100
"""Operators, constants included, of a graph whose kernels are worth several processes."""


class Compiler:
    """One compilation of a request. `compile_request` compiles the alternatives that are measured on the way."""

    def __init__(self, request: CompileRequest, compile_request: CompileFunction) -> None:
        self.request = request
        self.compile_request = compile_request
        self.targets = Targets.parse(request.target)
        require_one_build(self.targets)
        self.target, self.options = _host_of(request, self.targets)
        self.saves_memory = self.target.saves_memory(self.options)
        if self.saves_memory and self.options.jobs is None:
            self.options = replace(self.options, jobs=1)
        self.model: OpenedModel
        self.is_program: bool
        """Whether the model works on objects, and is divided into parts."""
        self.kernel_names: set[str] = set()
        """The kernels that `list_kernels` met."""
        self.operators = 0
        """Operators of the module that is compiled."""
        self.first_note = 0
        """The first record of this module: those of the parts of a program are in one session."""
        self.is_settled = False
        """Whether the code of the passes was released, as their work is done."""
        self.is_loaded = True
        """Whether the model is called after it was compiled, so that its weights must be in memory."""
        self.tables: set[str] = set()
        """Parameters of which calls read some rows."""

    def run(self) -> tuple[Artifact | CompiledProgram, Session]:
        """Compile the model: its artifact, or those of a program of several parts."""
        try:
            return self._compile_model()
        except OutOfMemoryError:
            raise
        except MemoryError as error:
            raise self._lacks_memory(str(error) or "anywhere") from error
        finally:
            # The module is freed with this object then, and not when the collector finds both.
            self.options = replace(self.options, while_compiling=None)

    def _compile_model(self) -> tuple[Artifact | CompiledProgram, Session]:
        self._import()
        module, session = self.model.module, self.model.session
        folder = None if self.request.save_ir is None else Path(self.request.save_ir)
        if not self.is_program:
            artifact = self._compile(module, folder)
            check_used(session)
            if self.operators < MIN_OPERATORS_FOR_WORKERS:
                recycle_context(module.context)
            return artifact, session
        from mirlo.driver.programs.build import build_program

        def compile_part(part: ir.Module, number: int) -> Artifact:
            return self._compile(part, None if folder is None else folder / f"part{number}")

        program = build_program(module, session, self.target.name, compile_part)
        check_used(session)
        return program, session

    def compile_levels(self, levels: Sequence[int]) -> Iterator[Artifact | CompiledProgram]:
        """Run the passes once, and yield the code for each level of optimization in turn."""
        self._import()
        module = self.model.module
        if self.is_program:
            for level in levels:
                yield Compiler(replace(self.request, opt_level=level), self.compile_request).run()[0]
            return
        prepared = self._prepare(module)
        try:
            self._run_passes(module, None, prepared)
            self.options = replace(self.options, lowered={})
            for level in levels:
                self.options = replace(self.options, opt_level=level)
                yield self._emit(clone_module(module), prepared)
        finally:
            if prepared is not None:
                prepared.close()
        self.options = replace(self.options, while_compiling=None, lowered=None)
        recycle_context(module.context)

    def list_kernels(self) -> list[tuple[KernelText, list[str]]]:
        """Compile the model to the code of its kernels in the requested form; return each with its nodes."""
        listed: list[tuple[KernelText, list[str]]] = []
        code = code_target(self.target).code

        def list_module(module: ir.Module) -> None:
            with module.context, ir.Location.unknown():
                nodes = kernel_nodes(module)
                self.kernel_names |= nodes.keys()
                self.request.report("emit")
                listed.extend((text, nodes.get(text.function, [])) for text in code(module, self.options))

        def compile_part(part: ir.Module, number: int) -> Artifact:
            self._run_passes(part, None)
            list_module(clone_module(part))
            return self._emit(part)

        self._import()
        module, session = self.model.module, self.model.session
        if self.is_program:
            from mirlo.driver.programs.build import build_program

            build_program(module, session, self.target.name, compile_part)
            return listed
        self._run_passes(module, None)
        list_module(module)
        return listed

    def _import(self) -> None:
        """Open the model, and set the options of its session."""
        request = self.request
        request.report("import")
        if request.ring_caches:
            _require_in_place(self.target, self.options)
        self.model = open_model(request.model, request.shapes, request.params, request.trust_file, request.ring_caches)
        session = self.model.session
        self.is_program = needs_program(self.model.module)
        self.is_loaded = request.load or self._needs_loading()
        self.options = replace(self.options, while_compiling=self._settle_memory)
        # Parts of a program share the weights: what one of them does not name, another may.
        session.options[RELEASE] = not self.is_program
        give(
            self.model, request.model, request.shapes, legalize=request.legalize, intrinsics=request.intrinsics,
            schedules=request.schedules, pipeline=str(request.pipeline or ""),
        )  # fmt: skip
        session.options[TUNING] = request.database
        session.options[REQUESTED_ACTIVATIONS] = request.activations
        session.options["strategies"] = self._strategies(session)

    def _compile(self, module: ir.Module, folder: Path | None) -> Artifact:
        """Run the passes and the emitter on a module."""
        prepared = self._prepare(module)
        try:
            self._run_passes(module, folder, prepared)
            if folder is not None:
                from mirlo.driver.save_code import save_code

                save_code(module, self.target, self.options, folder)
            return self._emit(module, prepared)
        finally:
            if prepared is not None:
                prepared.close()

    def _prepare(self, module: ir.Module) -> Preparation | None:
        """Start the worker processes of the emitter early for a large model, whose similar kernels are merged."""
        is_large = self.request.merges or _operator_count(module) >= MIN_OPERATORS_FOR_WORKERS
        return self.target.prepare(self.options) if is_large else None

    def _run_passes(self, module: ir.Module, folder: Path | None, prepared: Preparation | None = None) -> None:
        session, target = self.model.session, self.target
        require_sizes(module, target.name)
        self.operators, self.first_note = count_operators(module), len(session.notes)
        pipeline = self._pipeline(module)
        with module.context, ir.Location.unknown():
            named = {name for step in pipeline for name in getattr(step, "functions", ())}
            inline_calls(module.operation, but=named)
            self.tables = find_tables(module)
            instruments = self._instruments(folder, prepared)
            # Whoever saves stages looks for the pass that did it.
            if folder is not None or self._needs_each_layer():
                pipeline.run(module, session, instruments, trusting=folder is None)
            else:
                _run_once_per_layer(pipeline, module, session, instruments)

    def _needs_each_layer(self) -> bool:
        """Return whether nodes are looked at one by one: by rules or strategies of users, and by code generators."""
        request = self.request
        own = request.legalize or request.intrinsics or request.schedules or request.pipeline is not None
        return bool(own or self.targets.generators or requested_strategies(request) or self.model.pipeline)

    def _emit(self, module: ir.Module, prepared: Preparation | None = None) -> Artifact:
        session, target = self.model.session, self.target
        with module.context, ir.Location.unknown():
            self.request.report("emit")
            externals = detach_artifacts(module)
            artifact = replace(target.emit(module, replace(self.options, prepared=prepared)), externals=externals)
        self._settle_memory(spec.name for spec in artifact.params)
        if self.is_loaded:  # in memory that is aligned
            session.params.align(spec.name for spec in artifact.params)
        tables = sorted(self.tables & {spec.name for spec in artifact.params})
        metadata = {**artifact.metadata, **({"tables": tables} if tables else {})}
        regions = describe_regions(
            self.targets, session.notes[self.first_note :], self.operators, artifact.loader, externals,
            artifact.arena_bytes if target.has("has_device") else 0,
        )  # fmt: skip
        for strategy in requested_strategies(self.request):
            metadata |= strategy.metadata()
        if self.request.precision == FASTEST:
            metadata["precision"] = chosen_precision(FASTEST, target, self.options) or "f32"
        if self.request.activations == AUTO:
            metadata["activations"] = _row_types(session.notes[self.first_note :])
        metadata[REGIONS] = [region.to_json() for region in regions]
        metadata |= _memory_plan(session) | _placement(session) | _approximations(session.notes[self.first_note :])
        return replace(artifact, metadata=metadata)

    def _needs_loading(self) -> bool:
        """Return whether a model that is only saved must be loaded: libraries and devices are found then."""
        has_device = self.target.has("has_device")
        return bool(self.targets.generators) or has_device or self.is_program

    def _settle_memory(self, names: Iterable[str]) -> None:
        """Release the code of the passes, and move weights that calls read to their final memory."""
        if not self.is_settled and self.operators >= MIN_OPERATORS_FOR_WORKERS:
            system.release_code()
        self.is_settled = True
        if self.is_loaded:
            self._hold_weights(names)

    def _hold_weights(self, names: Iterable[str]) -> None:
        """Move the weights to their final memory."""
        names, params = list(names), self.model.session.params
        cache = self.request.opened_cache
        folder = cache.folder if cache is not None and cache.folder.is_dir() else Path(gettempdir())
        try:
            if not self.saves_memory:
                require_available(params.pending_bytes(names))
            params.hold(names, folder=folder if self.saves_memory else None)
        except OutOfMemoryError as error:
            raise self._lacks_memory(f"for the weights: {error}") from None

    def _lacks_memory(self, why: str) -> OutOfMemoryError:
        """Return the error for a compilation that runs out of memory."""
        advice = "limit the memory of this process less, or use a machine with more"
        if self.target.has("saves_memory") and not self.saves_memory:
            advice = f"compile for '{self.target.name}{{memory=small}}', which has transformed weights in a file"
        return OutOfMemoryError(f"there is too little memory to compile the model, {why}; {advice}")

    def _require_generators(self, module: ir.Module) -> None:
        """Raise an error for functions that are marked for a code generator that is not among the targets."""
        known = [target.name for target in self.targets.generators]
        for name, function in functions_of(module.operation).items():
            wanted = string_fact(function, EXTERNAL)
            if wanted is not None and wanted not in known:
                raise ModelError(
                    f"{describe(function.location)}: function '@{name}' is for the code generator '{wanted}' "
                    f"('{EXTERNAL}'), which compiles no part of this model: compile for the targets "
                    f"'{wanted},{self.target.name}', or remove the attribute"
                )

    def _pipeline(self, module: ir.Module) -> Pipeline:
        """Return the requested passes, those that the file names, or the target's after the passes of options."""
        request, recorded = self.request, self.model.pipeline
        if request.pipeline is not None:
            return Pipeline(request.pipeline) if isinstance(request.pipeline, str) else request.pipeline
        first = ",".join(
            filter(
                None,
                [
                    _row_passes(request.last_rows, recorded),
                    *(_strategy_passes(strategy, recorded) for strategy in requested_strategies(request)),
                    _cache_passes(request.kv_cache_dtype, recorded),
                    precision_passes(request.precision, recorded, self.target, self.options),
                    self._activation_passes(),
                ],
            )
        )
        if recorded:
            return self._verified(Pipeline(recorded))
        _require_unplanned(module)
        self._require_generators(module)
        pipeline = Pipeline(self.target.pipeline(self.options))
        self.targets.placed(pipeline, self._placed_nodes(module, first)).prepend(first)
        return self._verified(pipeline)

    def _activation_passes(self) -> str:
        """Return the passes that round the rows of products with bf16 weights, unless others round all operands."""
        request = self.request
        if self.model.pipeline or request.precision is not None:
            return ""
        is_fast = request.activations == AUTO and self.target.fastest_precision(self.options) == "bf16"
        if not is_fast and request.activations != "bf16":
            return ""
        return "simplify,to-mixed-precision{dtype=bf16 operands=rows},fold-constant"

    def _verified(self, pipeline: Pipeline) -> Pipeline:
        """Add the comparison of kernels with their definitions, where it is requested."""
        if not self.request.verify:
            return pipeline
        from mirlo.passes.exact.pipeline import with_verification
        from mirlo.passes.exact.verdict_cache import VERDICTS

        self.model.session.options[VERDICTS] = self.request.opened_cache
        return with_verification(pipeline)

    def _placed_nodes(self, module: ir.Module, first: str) -> str | None:
        """Return the nodes that the requested placement assigns to code generators, as text, or None."""
        request, targets = self.request, self.targets
        if isinstance(request.placement, Mapping):
            generators = [target.name for target in targets.generators]
            for name in request.placement:
                if name not in generators:
                    listed = ", ".join(generators) or "none"
                    raise CompileOptionError(
                        f"placement: '{name}' is no code generator of target '{targets}'{nearest(name, generators)}: "
                        f"those are {listed}"
                    )
        if request.placement == "priority" or not targets.generators:
            return ""
        if targets.of_loops:
            raise CompileOptionError(
                f"placement: '{targets.of_loops[0].name}' matches prim functions, which are placed in the order of the "
                "targets: expected 'priority'"
            )
        from mirlo.passes.byoc.restrict import as_text

        if isinstance(request.placement, str):
            from mirlo.driver.place.compiling import decide

            session = self.model.session
            decision = decide(module, session, targets, request, self.compile_request, first)
            session.notes.append(decision)
            nodes: Mapping[str, Sequence[int]] = decision.nodes
        else:
            nodes = request.placement
        return as_text(nodes) if any(nodes.values()) else None

    def _strategies(self, session: Session) -> Strategies | Callable[..., str | None] | None:
        if not self.request.strategies:
            return None
        from mirlo.driver.bind_strategies import bind_strategies

        return bind_strategies(self.request.strategies, self.options, session, self.compile_request)

    def _instruments(self, folder: Path | None, prepared: Preparation | None) -> list[Instrument]:
        session = self.model.session
        instruments: list[Instrument] = [PipelineProgress(self.request.report), *node_watch(session)]
        if prepared is not None:
            instruments.append(prepared)
        if session.options[RELEASE]:
            instruments.append(ReleaseWeights(session))
        if folder is not None:
            instruments.append(SaveStages(folder, session))
        return instruments


def _host_of(request: CompileRequest, targets: Targets) -> tuple[Target, CompileOptions]:
    """Return the target that compiles the nodes without a code generator, with its options."""
    target = targets.host_target
    assert targets.host is not None
    return target, request.options(target.name, targets.host.options)


def _require_in_place(target: Target, options: CompileOptions) -> None:
    """Raise an error for ring buffers on a target that does not update caches in place."""
    if "plan-memory{aliases=true}" not in target.pipeline(options):
        raise CompileOptionError(
            f"ring_caches: target '{target.name}' does not update caches in place: use target 'llvm'"
        )


def chosen_precision(dtype: str | None, target: Target, options: CompileOptions) -> str | None:
    """Return the type that a precision names; for the fastest one None where no type is faster than f32."""
    if dtype != FASTEST:
        return dtype
    return target.fastest_precision(options)


def precision_passes(dtype: str | None, recorded: str | None, target: Target, options: CompileOptions) -> str:
    """Return the passes that run first: they match patterns, such as attention, before casts are inserted."""
    if dtype is None:
        return ""
    _require_first("precision", recorded)
    dtype = chosen_precision(dtype, target, options)
    if dtype is None:
        return ""
    others = f" {target.precision_options(dtype, options)}" if target.has("precision_options") else ""
    return f"simplify,fold-constant,to-mixed-precision{{dtype={dtype}{others}}},fold-constant"


def _cache_passes(dtype: str | None, recorded: str | None) -> str:
    """Return the pass that changes the types of caches."""
    if dtype is None:
        return ""
    _require_first("kv_cache_dtype", recorded)
    return f"narrow-caches{{dtype={dtype}}}"


def _require_unplanned(module: ir.Module) -> None:
    """Raise an error for a module that is already lowered but does not record its remaining passes."""
    entry = entry_or_none(module)
    if entry is not None and PLANNED in entry.attributes:
        raise ModelError(
            f"{describe(entry.location)}: the memory of '@{symbol_name(entry)}' is planned, so that the passes of the "
            "target have run: compile it with --pipeline '' (in Python pipeline='')"
        )


def _row_passes(output: str | None, recorded: str | None) -> str:
    """Return the pass that computes the last rows of an output only."""
    if output is None:
        return ""
    _require_first("last_rows", recorded)
    return f"keep-last-rows{{output={quote(output)}}}"


def _strategy_passes(strategy: CompileStrategy[Any], recorded: str | None) -> str:
    """Return the passes of an option of a package."""
    passes = strategy.first_passes()
    if passes:
        _require_first(strategy.option, recorded)
    return passes


def _require_first(option: str, recorded: str | None) -> None:
    """Refuse an option whose passes come first for IR that lists its remaining passes."""
    if recorded:
        raise CompileOptionError(f"{option}: the IR of a stage in between is past that: compile what it was made from")


def _memory_plan(session: Session) -> dict[str, dict[str, object]]:
    """Return the last memory plan, for reports."""
    records = [note for note in session.notes if isinstance(note, MemoryRecord)]
    if not records:
        return {}
    plan = records[-1]
    buffers = [asdict(buffer) for buffer in plan.buffers]
    return {"memory": {"bound": plan.bound, "in_place": plan.in_place, "buffers": buffers}}


def _placement(session: Session) -> dict[str, dict[str, str]]:
    """Return the decision of placement by cost, for reports."""
    if "mirlo.driver.place.decision" not in sys.modules:
        return {}
    from mirlo.driver.place.decision import Decision

    decisions = [note for note in session.notes if isinstance(note, Decision)]
    return {"placement": {"by": decisions[-1].how, "taken": decisions[-1].best}} if decisions else {}


def _row_types(notes: Iterable[object]) -> list[str]:
    """Return how rows of products are represented; exact where no product has another type."""
    return sorted({note.kind for note in notes if isinstance(note, RowType)} or {"exact"})


def _approximations(notes: Iterable[object]) -> dict[str, list[str]]:
    """Return the deviations of results from the model's definition, for reports."""
    texts = list(dict.fromkeys(str(note) for note in notes if isinstance(note, Approximation)))
    return {"approximations": texts} if texts else {}


def _operator_count(module: ir.Module) -> int:
    count = 0
    for function in module.body.operations:
        for region in function.operation.regions:
            count += sum(len(block.operations) for block in region.blocks)
    return count


def _run_once_per_layer(
    pipeline: Pipeline, module: ir.Module, session: Session, instruments: Sequence[Instrument]
) -> None:
    """Run a pipeline; passes that keep equal layers equal run on some of them, which stand for all."""
    has_layers, unverified = True, list[Leaf]()
    groups = divide_steps(pipeline.steps)
    for steps, keeps in groups:

        def run(added: Sequence[Instrument] = (), steps: Sequence[Step] = steps) -> None:
            is_last = steps is groups[-1][0]
            instrumentation = [*instruments, *added]
            Pipeline(steps).run(module, session, instrumentation, trusting=True, unverified=unverified, is_last=is_last)

        if keeps and has_layers:
            has_layers = run_once_per_layer(module, session, run) is None
        else:
            run()


CONSTANT, LOOKUP = "relax.constant", "relax.gather"


def find_tables(module: ir.Module) -> set[str]:
    """Return the names of parameters of which only rows are gathered, such as embeddings.

    A slice at one position is read as a whole, as the weights of an expert are.
    """
    tables: set[str] = set()
    read: set[str] = set()
    for function in module.body.operations:
        for block in blocks(function):
            for op in block.operations:
                if op.operation.name != CONSTANT or op.opview.param is None:
                    continue
                uses = list(op.operation.results[0].uses)
                is_table = all(use.operand_number == 0 and _gathers_rows(use.owner.operation) for use in uses)
                (tables if is_table else read).add(str(op.opview.param))
    return tables - read


def _gathers_rows(op: ir.Operation) -> bool:
    return op.name == LOOKUP and bool(op.opview.indices.type.shape)
