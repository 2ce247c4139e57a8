"""Comparison of a model's kernels with their definitions, for `mirlo verify`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import prim_functions
from mirlo.driver.bind_strategies import bind_strategies
from mirlo.driver.build import build
from mirlo.driver.compiler import precision_passes
from mirlo.driver.given import check_used, give, node_watch
from mirlo.driver.model_cache import open_cache
from mirlo.driver.models import open_model, require_sizes
from mirlo.driver.programs.partition import modules_on_tensors
from mirlo.driver.request import open_database, require_one_build
from mirlo.driver.tune.database import Database
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.exact.pipeline import can_be_verified, with_verification
from mirlo.passes.exact.verdict import KernelVerdict
from mirlo.passes.exact.verdict_cache import VERDICTS
from mirlo.passes.graph.inline_calls import inline_calls
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.tuned import TUNING
from mirlo.passes.targets import CompileOptions
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.driver.options import GivenSchedule, Strategies
    from mirlo.driver.strategies import Measured
    from mirlo.frontends.foreign import ImportedModule
    from mirlo.passes.session import Session
    from mirlo.runtime.cache import Cache
    from mirlo.runtime.params import ParameterStore


@dataclass(frozen=True)
class Verification:
    """The verdicts of all kernels of a model for a target."""

    target: str
    verdicts: tuple[KernelVerdict, ...]
    seconds: float
    """How long the comparison took, the passes before it aside."""

    def count(self, status: str) -> int:
        return sum(verdict.status == status for verdict in self.verdicts)


def verify_model(
    model: str | ir.Module | ImportedModule | object,
    target: str = "llvm",
    *,
    processor: str | None = None,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    strategies: Strategies | Measured | str | None = None,
    schedules: Mapping[str, GivenSchedule] | None = None,
    tune: Database | bool | str | os.PathLike[str] = True,
    kernel: str | None = None,
    precision: str | None = None,
    rounds: int = 2,
    casts: str = "identity",
    sizes: str = "",
    params: ParameterStore | None = None,
    cache: Cache | bool | str | os.PathLike[str] = True,
) -> Verification:
    """Compile a model up to its kernels, and compare each with its definition.

    Of a model that is compiled in parts, such as those around strings, the kernels of all parts are compared.
    `processor` is the one that kernels are scheduled for; it need not be this machine's. `sizes` are those of symbols,
    as in `batch=1,2;seq=1..64`; by default, sizes are added until no loop and no branch has a new case. `cache` is
    where verdicts of kernels that are equal are kept. Other options are those of `mirlo.compile`.
    """
    prepared = prepare_model(
        model, target, processor=processor, threads=threads, shapes=shapes, strategies=strategies, schedules=schedules,
        tune=tune, precision=precision, params=params, cache=cache,
    )  # fmt: skip
    module, session, pipeline, targets = prepared.module, prepared.session, prepared.pipeline, prepared.targets
    if not can_be_verified(pipeline):
        raise PassError(
            f"target '{targets}' schedules no kernels: those of 'llvm', 'c', 'spirv' and 'nvvm' are compared"
        )
    with_verification(pipeline, kernel=kernel or "", rounds=rounds, casts=casts, sizes=sizes, fail="never")
    steps = list(pipeline.steps)
    names = [step.name for step in steps]
    if "verify-schedule" not in names:
        raise PassError(f"target '{target}' schedules kernels in a nested pipeline, which is not compared")
    last = names.index("verify-schedule")
    parts = modules_on_tensors(module, session)
    seconds = 0.0
    with module.context, ir.Location.unknown():
        session.report = _no_report
        for part in parts:
            Pipeline(steps[:last]).run(part, session, node_watch(session))
            start = time.perf_counter()
            Pipeline(steps[last : last + 1]).run(part, session)
            seconds += time.perf_counter() - start
        check_used(session)
    verdicts = [note for note in session.notes if isinstance(note, KernelVerdict)]
    if kernel is not None and not verdicts:
        kernels = [name for part in parts for name in _kernels(part)]
        raise PassError(f"there is no kernel '{kernel}'{nearest(kernel, kernels)}")
    return Verification(str(targets), tuple(verdicts), seconds)


@dataclass(frozen=True)
class PreparedModel:
    """A model that is opened for a target, and the passes to come."""

    module: ir.Module
    session: Session
    pipeline: Pipeline
    targets: Targets


def prepare_model(
    model: str | ir.Module | ImportedModule | object,
    target: str,
    *,
    processor: str | None = None,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    strategies: Strategies | Measured | str | None = None,
    schedules: Mapping[str, GivenSchedule] | None = None,
    tune: Database | bool | str | os.PathLike[str] = True,
    precision: str | None = None,
    params: ParameterStore | None = None,
    cache: Cache | bool | str | os.PathLike[str] = True,
) -> PreparedModel:
    """Open a model, with the options of `mirlo.compile`; the passes of its pipeline have not run."""
    targets = Targets.parse(_for_processor(target, processor)).or_host()
    require_one_build(targets)
    host = targets.host_target
    assert targets.host is not None
    opened = open_model(model, shapes, params)
    module, session = opened.module, opened.session
    inline_calls(module.operation)
    require_sizes(module, host.name)
    give(opened, model, shapes, schedules=schedules)
    session.options[TUNING] = open_database(tune)
    session.options[VERDICTS] = open_cache(cache)
    options = CompileOptions(host.name, threads, target_options=targets.host.options)
    session.options["strategies"] = bind_strategies(strategies, options, session, build)
    pipeline = Pipeline(opened.pipeline or targets.pipeline(threads))
    pipeline.prepend(precision_passes(precision, opened.pipeline, host, options))
    return PreparedModel(module, session, pipeline, targets)


def can_verify(target: str) -> bool:
    """Return whether the kernels of a target are compared with their definitions."""
    return can_be_verified(Pipeline(Targets.parse(target).or_host().pipeline(1)))


def _for_processor(target: str, processor: str | None) -> str:
    """Return a target with a processor among its options."""
    if processor is None:
        return target
    head, _, last = target.rpartition(",")
    name, brace, options = last.partition("{")
    others = options.removesuffix("}").strip() if brace else ""
    described = f"{name}{{{' '.join(filter(None, (others, f'cpu={processor}')))}}}"
    return f"{head},{described}" if head else described


def _kernels(module: ir.Module) -> list[str]:
    return [symbol_name(function) for function in prim_functions(module.operation)]


def _no_report(severity: str, message: str, location: ir.Location | None) -> None:
    """Report nothing: verdicts are shown in a table."""
