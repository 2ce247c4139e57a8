"""Conversion of the requested strategies to the form that legalization reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mirlo.dialects.bindings import ir
from mirlo.driver.loaded import CallableModel, require_loaded
from mirlo.driver.options import Strategies
from mirlo.driver.request import CompileFunction, CompileRequest
from mirlo.driver.strategies import Measured
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions


def bind_strategies(
    strategies: Strategies | Measured | str | None,
    options: CompileOptions,
    session: Session,
    compile_request: CompileFunction,
) -> Strategies | Callable[..., str | None] | None:
    """Return the strategies for legalization: names, functions, or a function that measures for this compilation."""
    if not strategies:
        return None
    if strategies == "measure":
        strategies = Measured()
    assert not isinstance(strategies, str)  # the request is checked
    if not isinstance(strategies, Measured):
        return strategies

    def compile_alone(module: ir.Module, strategies: Mapping[str, str]) -> CallableModel:
        executable = compile_request(
            CompileRequest(
                module, options.target, threads=options.threads, strategies=strategies, opt_level=options.opt_level,
                params=session.params, cache=options.cache or False, jobs=options.jobs,
            )
        )  # fmt: skip
        return require_loaded(executable, "strategies are measured")

    settings = f"threads={options.threads} opt_level={options.opt_level}"
    return strategies.chooser(options.target, settings, session, compile_alone)
