"""The option `invariant`: equal bits for a row of a batch, whatever the batch."""

from __future__ import annotations

from dataclasses import replace

from mirlo.driver.options import CompileOptionError
from mirlo.driver.request import CompileRequest
from mirlo.passes.byoc.target_list import Chosen, Targets
from mirlo.passes.targets import find_target

_CHOSEN_BY_TIME = "what is fastest for one size of a batch need not have the order of sums of another"


def with_invariant_target(request: CompileRequest) -> CompileRequest:
    """Return the request with the option of its target that keeps the order of sums, if it asks for that."""
    if not request.invariant:
        return request
    _refuse_others(request)
    targets = Targets.parse(request.target)
    if targets.generators:
        raise CompileOptionError(
            f"invariant: code generators do not promise equal bits in batches of any size, found "
            f"'{targets.generators[0].name}'; name the target 'llvm' alone"
        )
    assert targets.host is not None, "without code generators there is a host"
    name = targets.host.name
    options = find_target(name).invariant_options(targets.host.options)
    # Choices that were measured are for one size of a batch.
    return replace(request, target=str(Chosen(name, options)), tune=False)


def _refuse_others(request: CompileRequest) -> None:
    """Refuse options that choose the order of sums otherwise."""
    if request.strategies is not None:
        raise CompileOptionError(f"strategies: cannot be chosen with invariant: {_CHOSEN_BY_TIME}")
    if request.tune is not True and request.tune is not False:
        raise CompileOptionError(f"tune: cannot be used with invariant: {_CHOSEN_BY_TIME}")
    if request.ring_caches:
        raise CompileOptionError(
            "ring_caches: cannot be used with invariant: places in a ring depend on how many tokens calls have"
        )
    if request.schedules:
        raise CompileOptionError("schedules: cannot be given with invariant: a schedule has its own order of sums")
