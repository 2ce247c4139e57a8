"""`mirlo.compile`: from a model to an executable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.driver.garbage import FewerCollections
from mirlo.driver.model_cache import LEAST_SECONDS, Question, Unkept, ask
from mirlo.passes.targets import TargetError, declared_target, find_target

if TYPE_CHECKING:
    from mirlo.driver.strategies import Measured
    from mirlo.driver.tune.database import Database
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.session import Session
    from mirlo.runtime.artifact import Artifact
    from mirlo.runtime.cache import Cache
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore

Progress = Callable[[str], None]
"""Called with a name before each step of a compilation: `cache`, `import`, the passes, `emit`, `keep`, `load`."""
PRECISIONS = ("bf16", "f16")
"""Types of the numbers that products are computed from, where it is not f32."""
PLACEMENTS = ("priority", "estimated", "measured")
"""How several targets share a model."""
LARGE = 100
"""Operators, constants included, of a graph that is worth several processes."""
Strategies = Mapping[str, "str | Callable[[Any], str | None]"]
"""By operator, the name of the rule that is wanted, or a function of the operator that gives it."""


@dataclass(frozen=True)
class CompileOptions:
    """What a target's pipeline and code generator are told."""

    target: str = "llvm"
    threads: int = 1
    opt_level: int = 2
    target_options: str = ""
    """What the target was given in braces: `nvvm{chip=sm_90a}`."""
    jobs: int | None = None
    """Processes that compile kernels at the same time; None for as many as help."""
    cache: Cache | None = None
    """Where compiled kernels are kept, and looked for."""
    meanwhile: Callable[[Iterable[str]], None] | None = None
    """What may be done, with the names of the weights, while other processes compile; emitters need not call it."""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"jobs: expected 1 or more, found {self.jobs}")
        if self.threads < 1:
            raise ValueError(f"threads: expected 1 or more, found {self.threads}")
        if not 0 <= self.opt_level <= 3:
            raise ValueError(f"opt_level: expected 0 to 3, found {self.opt_level}")


@dataclass(frozen=True)
class Wishes:
    """What one compilation is asked for, as `compile` says."""

    shapes: Mapping[str, Sequence[int | str]] | None
    pipeline: Pipeline | str | None
    legalize: Mapping[str, Callable[..., Any]] | None
    intrinsics: Mapping[str, Callable[..., Any]] | None
    strategies: Strategies | Measured | str | None
    schedules: Mapping[str, Any] | None
    save_ir: str | Path | None
    params: ParameterStore | None
    tuning: Database | None
    precision: str | None
    placement: str | Mapping[str, Sequence[int]] = "priority"
    trust_file: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.placement, str) and self.placement not in PLACEMENTS:
            raise ValueError(f"placement: expected {', '.join(PLACEMENTS)}, found {self.placement!r}")
        if self.placement != "priority" and self.pipeline is not None:
            raise ValueError("placement: a pipeline of your own says so itself, with the pass partition")
        if self.precision not in (None, *PRECISIONS):
            raise ValueError(f"precision: expected {', '.join(PRECISIONS)} or None, found {self.precision!r}")
        if self.precision is not None and self.pipeline is not None:
            raise ValueError("precision: a pipeline of your own says so itself, with the pass to-mixed-precision")


@FewerCollections()
def compile(
    model: Any,
    target: str | Sequence[str] = "llvm",
    *,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int] | None = None,
    pipeline: Pipeline | str | None = None,
    legalize: Mapping[str, Callable[..., Any]] | None = None,
    intrinsics: Mapping[str, Callable[..., Any]] | None = None,
    strategies: Strategies | Measured | str | None = None,
    schedules: Mapping[str, Any] | None = None,
    opt_level: int = 2,
    save_ir: str | Path | None = None,
    progress: Progress | None = None,
    params: ParameterStore | None = None,
    cache: Cache | bool | str | os.PathLike[str] = True,
    jobs: int | None = None,
    tune: Database | bool | float | str | os.PathLike[str] = True,
    precision: str | None = None,
    placement: str | Mapping[str, Sequence[int]] = "priority",
    specialize: Sequence[Mapping[str, int]] | None = None,
    trust_file: bool = False,
) -> Any:
    """Compile a model: a path to an ONNX or IR file, an `onnx.ModelProto`, its bytes, or an MLIR module.

    The result is an `Executable`, or a `Program` where the model works on more than tensors of numbers.
    `target` names what makes the code, or several targets, `["onednn", "llvm"]` or `"onednn,llvm"`: the code generators
    of the first ones take the parts of the model that their patterns match, the last one compiles the rest.
    `shapes` fixes dynamic dims input by input, `dims` by name in all inputs: `{"batch": 1, "seq": 128}`. `pipeline`
    replaces the target's. `legalize` maps operators (`"relax.softmax"`), or nodes by their names in the model
    (`"node:/encoder/softmax"`), to rules that come before all registered ones, `intrinsics` does so with intrinsics
    (`"exp"`). `strategies` says by name which of several rules of an operator is wanted: `{"relax.conv": "im2col"}`,
    or a function of the operator in place of the name; "measure" compiles each of them for the shapes at hand and
    takes the fastest. `schedules` gives prim
    functions, by name, a schedule of their own: a `Schedule`, its trace, the file of one, or a function that takes a
    `Schedule`. `save_ir` names a folder for the IR of every stage; each file can be continued with
    `mirlo-opt --run-reproducer FILE`, or compiled. A module that the caller hands in is not changed; `params` holds the
    arrays that it names. What was compiled before comes from the cache on disk: False for none, or its folder. `jobs`
    limits the processes that compile at once. `tune` is the database of `mirlo tune` whose findings are used: True for
    the usual file, if it is there, False for none; a number searches for that many seconds before. `precision`, "bf16"
    or "f16", stores weights in half of the memory and computes products from such numbers, with sums in f32.
    `placement` says how several targets share the model: by "priority", the order of the list; by cost, "estimated"
    from their figures or "measured" here, when what is slower than one target alone is not taken; or the numbers of the
    nodes that each code generator may have. `specialize` lists sizes of symbolic dims, `[{"batch": 1}, {"batch": 8,
    "sequence": 128}]`: the result has builds for these beside the one for any, and counts the shapes of its calls.
    `trust_file` lets a file of IR name passes that reach outside of the module, and hold code of code generators.
    """
    from mirlo.runtime.artifact import Artifact
    from mirlo.runtime.executable import Executable

    if dims:
        from mirlo.driver.models import fix_dims

        shapes = fix_dims(model, shapes, dims)
    if specialize is not None:
        from mirlo.driver.specialize import specialized

        def build(shapes: Any, number: int | None = None) -> Any:
            folder = None if save_ir is None else Path(save_ir) / ("any" if number is None else f"specialized{number}")
            return compile(
                model, target, threads=threads, shapes=shapes, pipeline=pipeline, legalize=legalize,
                intrinsics=intrinsics, strategies=strategies, schedules=schedules, opt_level=opt_level, save_ir=folder,
                progress=progress, params=params, cache=cache, jobs=jobs, tune=tune, precision=precision,
                placement=placement, trust_file=trust_file,
            )  # fmt: skip

        return specialized(build(shapes), specialize, build)
    kept = open_cache(cache)
    options = CompileOptions("", threads, opt_level, jobs=jobs, cache=kept)
    tell = progress or _silent
    if kept is not None:
        tell("cache")
    tuning = open_database(tune)
    if not isinstance(tune, bool) and isinstance(tune, (int, float)):
        tuning = _tuned(model, target, threads, shapes, tune, tell)
    wishes = Wishes(
        shapes, pipeline, legalize, intrinsics, strategies, schedules, save_ir, params, tuning, precision, placement,
        trust_file,
    )  # fmt: skip
    # What a saved schedule says is in its file, which is no part of a key.
    once = {"save_ir": save_ir and object(), "schedules": schedules and object()}
    once["tuning"] = tuning.digest if tuning is not None else None
    changing = {**vars(wishes), **once, "threads": threads, "opt_level": opt_level}
    question = _question(kept, model, target, changing)
    known = question.answer() if isinstance(question, Question) else None
    if known is not None:
        return known
    start = time.perf_counter()
    made, session = _compile(model, target, wishes, options, tell)
    is_kept = isinstance(made, Artifact) and time.perf_counter() - start >= LEAST_SECONDS
    if isinstance(question, Question) and is_kept:
        tell("keep")
        question.keep(made, session.params, session.params.files)
    if kept is not None and kept.problem is not None:
        session.warning(f"nothing was kept in the cache: {kept.problem}")
    tell("load")
    if isinstance(made, Artifact):
        return Executable(made, session.params)
    from mirlo.runtime.program import Program

    return Program(made, session.params)


def _question(cache: Cache | None, model: Any, target: str | Sequence[str], changing: Mapping[str, Any]) -> Any:
    if not isinstance(target, str) or "," in target:
        return Unkept("models for several targets are not kept whole")
    name = target.partition("{")[0].strip()
    return ask(cache, model, declared_target(name), {**changing, "target": "" if name == target else target})


def _compile(
    model: Any,
    target: str | Sequence[str],
    wishes: Wishes,
    options: CompileOptions,
    tell: Progress,
) -> tuple[Any, Session]:
    """The artifact of a model, or its program of several."""
    # Imported here: a model that the cache has needs nothing of the compiler.
    from mirlo.dialects.bindings import ir
    from mirlo.driver.models import open_model, require_sizes
    from mirlo.driver.programs.detect import needs_program
    from mirlo.driver.stages import ReleaseWeights, SaveStages, Steps
    from mirlo.passes.byoc.artifacts import detach_artifacts
    from mirlo.passes.byoc.way import Targets
    from mirlo.passes.memory.weights import RELEASE
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.schedule.schedule import SCHEDULES
    from mirlo.passes.schedule.tuned import TUNING

    targets = Targets.parse(target)
    if targets.host is None:
        raise TargetError(
            f"target '{targets.names[-1]}' compiles parts of models: name what compiles the rest, '{targets},llvm'"
        )
    chosen = find_target(targets.host.name)
    make_pipeline, emit = chosen.pipeline, chosen.emit
    if make_pipeline is None or emit is None:
        raise TargetError(f"target '{chosen.name}' makes no code: it has no pipeline or no emitter")
    if targets.host.options and not chosen.takes_options:
        raise TargetError(f"target '{chosen.name}' takes no options, found '{targets.host}'")
    options = replace(options, target=chosen.name, target_options=targets.host.options)
    given = Pipeline(wishes.pipeline) if isinstance(wishes.pipeline, str) else wishes.pipeline
    tell("import")
    opened = open_model(model, wishes.shapes, wishes.params, wishes.trust_file)
    module, session = opened.module, opened.session
    # Parts of a program share the weights: what one of them does not name, another may.
    session.options[RELEASE] = not needs_program(module)
    options = replace(options, meanwhile=session.params.settle)
    session.options["legalize"] = dict(wishes.legalize or {})
    session.options["intrinsics"] = dict(wishes.intrinsics or {})
    session.options[SCHEDULES] = dict(wishes.schedules or {})
    session.options[TUNING] = wishes.tuning
    session.options["strategies"] = bound_strategies(wishes.strategies, options, session)

    def compiled(module: Any, folder: Path | None) -> Artifact:
        require_sizes(module, options.target)
        if chosen.prepare is not None and _is_large(module):
            chosen.prepare(options)
        steps = given if given is not None else Pipeline(opened.pipeline or make_pipeline(options))
        first = _precision_steps(wishes.precision, opened.pipeline)
        if given is None and not opened.pipeline:
            steps.prepend(_placing(module, session, targets, wishes, options, first, tell))
        steps.prepend(first)
        instruments: list[Any] = [Steps(tell)]
        if session.options[RELEASE]:
            instruments.append(ReleaseWeights(session))
        if folder is not None:
            instruments.append(SaveStages(folder, session))
        with module.context, ir.Location.unknown():
            # Whoever saves stages looks for the pass that did it.
            steps.run(module, session, instruments, trusting=folder is None)
            tell("emit")
            externals = detach_artifacts(module)
            artifact: Artifact = replace(emit(module, options), externals=externals)
        session.params.align(spec.name for spec in artifact.params)
        return replace(artifact, metadata={**artifact.metadata, **_memory_plan(session), **_decided(session)})

    folder = None if wishes.save_ir is None else Path(wishes.save_ir)
    if session.options[RELEASE]:
        return compiled(module, folder), session
    from mirlo.driver.programs.build import build_program

    def part(module: Any, number: int) -> Artifact:
        return compiled(module, None if folder is None else folder / f"part{number}")

    return build_program(module, session, chosen.name, part), session


def _placing(
    module: Any, session: Session, targets: Any, wishes: Wishes, options: CompileOptions, before: str, tell: Progress
) -> str:
    """The passes that give parts of a model to code generators, as far as the placement that is wished for does."""
    if wishes.placement == "priority" or not targets.generators:
        return str(targets.steps())
    from mirlo.passes.byoc.restrict import as_text

    if isinstance(wishes.placement, str):
        from mirlo.driver.place.compiling import decide

        decision = decide(module, session, targets, wishes, options, before, tell)
        session.notes.append(decision)
        nodes: Mapping[str, Sequence[int]] = decision.nodes
    else:
        nodes = wishes.placement
    return targets.steps(as_text(nodes)) if any(nodes.values()) else ""


def _precision_steps(dtype: str | None, recorded: str | None) -> str:
    """The passes that come first: what they recognize, attention say, they must see before casts are in it."""
    if dtype is None:
        return ""
    if recorded:
        raise ValueError("precision: the IR of a stage in between is past that: compile what it was made from")
    return f"simplify,fold-constant,to-mixed-precision{{dtype={dtype}}},fold-constant"


def _memory_plan(session: Session) -> dict[str, Any]:
    """What the last plan came to, for reports."""
    from mirlo.passes.memory.plan import MemoryRecord

    records = [note for note in session.notes if isinstance(note, MemoryRecord)]
    return {"memory": {"bound": records[-1].bound, "in_place": records[-1].in_place}} if records else {}


def _decided(session: Session) -> dict[str, Any]:
    """What placement by cost took, for reports."""
    if "mirlo.driver.place.decision" not in sys.modules:
        return {}
    from mirlo.driver.place.decision import Decision

    decisions = [note for note in session.notes if isinstance(note, Decision)]
    return {"placement": {"by": decisions[-1].how, "taken": decisions[-1].best}} if decisions else {}


def bound_strategies(strategies: Any, options: CompileOptions, session: Session) -> Any:
    """What legalization is told about strategies: names, functions, or one that measures for this compilation."""
    if not strategies:
        return strategies
    from mirlo.driver.strategies import Measured

    if strategies == "measure":
        strategies = Measured()
    if isinstance(strategies, str):
        raise ValueError(f"strategies: expected names by operator, or 'measure', found '{strategies}'")
    if not isinstance(strategies, Measured):
        return strategies

    def compile_alone(module: Any, strategies: Mapping[str, str]) -> Executable:
        return compile(
            module, options.target, threads=options.threads, opt_level=options.opt_level, strategies=strategies,
            params=session.params, cache=options.cache or False, jobs=options.jobs,
        )  # fmt: skip

    settings = f"threads={options.threads} opt_level={options.opt_level}"
    return strategies.chooser(options.target, settings, session, compile_alone)


def _tuned(
    model: Any, target: str | Sequence[str], threads: int, shapes: Any, seconds: float, tell: Progress
) -> Database:
    """The usual database, after a search for this model."""
    from mirlo.driver.tune.database import Database, default_database
    from mirlo.driver.tune.search import tune

    if not isinstance(target, str) or "," in target:
        raise TargetError("tune: a number of seconds is for one target; run 'mirlo tune' for that which makes kernels")
    database = Database(default_database())
    tune(model, database, target=target, threads=threads, shapes=shapes, seconds=seconds, tell=lambda _: tell("tune"))
    return database


def open_database(tune: Database | bool | float | str | os.PathLike[str]) -> Database | None:
    """The database that `compile(tune=...)` means; None where there is nothing in it."""
    from mirlo.driver.tune.database import Database, default_database

    if isinstance(tune, Database):
        return tune
    if isinstance(tune, (bool, int, float)):
        path = default_database()
        return Database(path) if tune and path.exists() else None
    return Database(tune)


def open_cache(cache: Cache | bool | str | os.PathLike[str]) -> Cache | None:
    """The cache that `compile(cache=...)` means."""
    from mirlo.runtime.cache import Cache, default_folder

    if isinstance(cache, Cache):
        return cache
    if isinstance(cache, bool):
        return Cache(default_folder()) if cache else None
    return Cache(Path(cache))


def _is_large(module: Any) -> bool:
    """Whether to make several kernels of the module will take longer than to start a process."""
    count = 0
    for function in module.body.operations:
        for region in function.operation.regions:
            count += sum(len(block.operations) for block in region.blocks)
    return count >= LARGE


def _silent(step: str) -> None:
    """No one wants to know."""
