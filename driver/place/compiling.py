"""Placement by cost of a module that is being compiled."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.driver.loaded import CallableModel, require_loaded
from mirlo.driver.model_cache import extended
from mirlo.driver.place.choose import Problem, choose
from mirlo.driver.place.decision import Decision, Nodes
from mirlo.driver.place.store import PlacementStore
from mirlo.driver.request import CompileFunction, CompileRequest
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target, plugin_of
from mirlo.runtime.params import ParameterStore

FILE = "placement.json"
"""The file of measurements, beside the cache."""


_IN_PROBLEM = ("target", "threads", "shapes", "placement", "params", "pipeline", "save_ir", "trust_file")
"""Options that a placement problem holds itself, and those that do not change times."""


def decide(
    module: ir.Module,
    session: Session,
    targets: Targets,
    request: CompileRequest,
    compile_request: CompileFunction,
    before: str = "",
) -> Decision:
    """Decide where the nodes of a module go by the cost that the request names; `before` are passes that come first.

    `compile_request` compiles the alternatives that are measured.
    """

    def compile_as(
        module: ir.Module, params: ParameterStore, target: str, nodes: Nodes | None, is_whole: bool
    ) -> CallableModel:
        executable = compile_request(
            request.of_module(
                module, params, is_part=not is_whole, target=target, placement="priority" if nodes is None else nodes
            )
        )
        return require_loaded(executable, "placements are measured")

    known = PlacementStore(request.opened_cache.folder / FILE) if request.opened_cache is not None else None
    settings = _settings(targets, request)
    problem = Problem(
        module, session.params, targets, request.threads, compile_as, before, settings, known, request.report
    )
    return choose(problem, str(request.placement))


def _settings(targets: Targets, request: CompileRequest) -> str | None:
    """Return the other options that times depend on as text; None if one has no text form."""
    assert targets.host is not None
    if any((request.legalize, request.intrinsics, request.strategies, request.schedules)):
        return None
    if extended(find_target(targets.host.name)) or any(plugin_of(target.name) for target in targets.generators):
        return None
    return " ".join(f"{name}={value}" for name, value in request.key_options().items() if name not in _IN_PROBLEM)
