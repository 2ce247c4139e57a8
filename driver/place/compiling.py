"""Placement by cost on the way of `mirlo.compile`, and for reports about a model that is not compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirlo.driver.models import open_model
from mirlo.driver.place.choose import Problem, choose
from mirlo.driver.place.decision import Decision, Nodes
from mirlo.driver.place.known import Known
from mirlo.passes.byoc.way import Targets
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target, plugin_of

if TYPE_CHECKING:
    from mirlo.driver.compile import CompileOptions, Progress, Wishes

FILE = "placement.json"
"""Where measurements are kept, beside what the cache holds."""


def decide(
    module: Any,
    session: Session,
    targets: Targets,
    wishes: Wishes,
    options: CompileOptions,
    before: str,
    tell: Progress,
) -> Decision:
    """What placement by cost says of a module that is being compiled, as the wishes for that are."""
    from mirlo.driver.compile import compile as compile_model

    def compile_as(module: Any, params: Any, target: str, nodes: Nodes | None, is_whole: bool) -> Any:
        return compile_model(
            module, target, threads=options.threads, legalize=wishes.legalize, intrinsics=wishes.intrinsics,
            strategies=wishes.strategies, schedules=wishes.schedules, opt_level=options.opt_level,
            params=params, cache=options.cache or False, jobs=options.jobs, tune=wishes.tuning or False,
            precision=wishes.precision if is_whole else None, placement=nodes if nodes is not None else "priority",
        )  # fmt: skip

    known = Known(options.cache.folder / FILE) if options.cache is not None else None
    settings = _settings(targets, wishes, options)
    problem = Problem(module, session.params, targets, options.threads, compile_as, before, settings, known, tell)
    return choose(problem, str(wishes.placement))


def decide_alone(
    model: Any, targets: Targets, how: str, threads: int, shapes: Mapping[str, Sequence[int | str]] | None,
    cache: Any, jobs: int | None, tell: Progress,
) -> Decision:  # fmt: skip
    """The same for a model of which only the placement is wanted."""
    from mirlo.driver.compile import CompileOptions, Wishes, open_cache, open_database

    assert targets.host is not None
    opened = open_model(model, shapes)
    options = CompileOptions(targets.host.name, threads, jobs=jobs, cache=open_cache(cache))
    nothing = dict.fromkeys(("pipeline", "legalize", "intrinsics", "strategies", "schedules", "save_ir", "params"))
    wishes = Wishes(shapes=shapes, tuning=open_database(True), precision=None, placement=how, **nothing)  # type: ignore[arg-type]
    return decide(opened.module, opened.session, targets, wishes, options, "", tell)


def _settings(targets: Targets, wishes: Wishes, options: CompileOptions) -> str | None:
    """What times depend on beside the model, the targets and the machine; None where that cannot be written down."""
    from mirlo.driver.model_cache import extended

    assert targets.host is not None
    if any((wishes.legalize, wishes.intrinsics, wishes.strategies, wishes.schedules)):
        return None
    if extended(find_target(targets.host.name)) or any(plugin_of(target.name) for target in targets.generators):
        return None
    tuning = wishes.tuning.digest if wishes.tuning is not None else ""
    return f"opt_level={options.opt_level} precision={wishes.precision} tuning={tuning}"
