"""`mirlo check`: the supported and unsupported nodes of an ONNX model, with reasons."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import diagnostics_to
from mirlo.driver.programs.partition import modules_on_tensors
from mirlo.frontends.onnx.check import STATES, check_model
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.legalize.conversion import LegalizationRecord
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready, NodesRefused
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.tables import columns

if TYPE_CHECKING:
    from mirlo.frontends.onnx.check import ModelCheck

SHOWN = 50


def execute(arguments: Arguments) -> None:
    """Check the import of each node, then its legalization on the target."""
    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CompiledAlready(f"{arguments.model} is compiled already: check the model that it was made from")
    check = check_model(arguments.model, shapes=arguments.shapes)
    refused = _refused(check, arguments.target or "llvm") if check.is_clean else []
    arguments.result = as_json(check, refused, arguments.target or "llvm")
    arguments.show(*text_lines(check, refused, arguments.target or "llvm", arguments.verbose))
    sys.stdout.flush()
    bad = len(check.bad()) + len(refused)
    if check.problem is not None:
        raise CommandError(check.problem)
    if bad:
        raise NodesRefused(f"{arguments.model}: {bad} {'node' if bad == 1 else 'nodes'} cannot be compiled")


def _refused(check: ModelCheck, target: str) -> list[LegalizationRecord]:
    """Return the operators that no legalization of the target takes."""
    targets = Targets.parse(target).or_host()
    host = targets.host_target.name
    divided = f"{targets.dividing()}," if targets.generators else ""
    session, module = Session(check.params), check.module
    assert module is not None
    with module.context as context, ir.Location.unknown():
        # The records contain all that the diagnostics would.
        pipeline = Pipeline(f"builtin.module({divided}simplify,remove-dead,legalize{{target={host}}})")
        try:
            with diagnostics_to(context, lambda diagnostic: True):
                for part in modules_on_tensors(module, session):
                    pipeline.run(part, session)
        except PassFailed as failure:
            records = [note for note in session.notes if isinstance(note, LegalizationRecord) and note.rule is None]
            if not records:
                raise CommandError(str(failure)) from failure
            return records
    return []


def text_lines(check: ModelCheck, refused: list[LegalizationRecord], target: str, every: bool = False) -> Iterator[str]:
    """Yield counts, and each unsupported node (every node, if requested) with the reason, as text."""
    counts = ", ".join(f"{count} {state}" for state, count in check.counts.most_common())
    yield f"{check.model}: {len(check.nodes)} nodes: {counts or 'none'}"
    shown = check.nodes if every else check.bad()
    for state in STATES:
        rows = [(f"  {n.name}", f"{n.domain}.{n.operator} {n.opset}", n.reason) for n in shown if n.state == state]
        if rows:
            yield f"{state} ({STATES[state]}):"
            yield from columns(rows if every else rows[:SHOWN])
        if len(rows) > SHOWN and not every:
            yield f"  and {len(rows) - SHOWN} more (-v lists all)"
    if refused:
        yield f"imported, but no rule of target '{target}' takes it:"
    for record in refused:
        yield f"  {record.location} ({record.operator})"
        yield from (f"    {attempt}" for attempt in record.attempts)
    if check.is_clean and not refused:
        yield f"every node can be compiled for target '{target}'"


def as_json(check: ModelCheck, refused: list[LegalizationRecord], target: str) -> dict[str, object]:
    """Return the result as JSON."""
    return {
        "model": check.model,
        "target": target,
        "problem": check.problem,
        "counts": dict(check.counts),
        "nodes": [vars(node) for node in check.nodes],
        "refused": [
            {"operator": r.operator, "node": r.location, "reasons": [str(attempt) for attempt in r.attempts]}
            for r in refused
        ],
    }
