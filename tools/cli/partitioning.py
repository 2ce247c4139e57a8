"""`mirlo partition`: the placement of a model's parts on targets, with the reasons."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.driver.models import open_model
from mirlo.driver.options import PLACEMENTS
from mirlo.driver.place.decide import decide_placement
from mirlo.driver.place.survey import divided, place_parts
from mirlo.driver.request import CompileRequest
from mirlo.passes.byoc.restrict import as_text
from mirlo.runtime.errors import nearest
from mirlo.runtime.files import write_regular
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready, PlacedOtherwise
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.progress import Progress
from mirlo.tools.place.as_json import as_json, dumped
from mirlo.tools.place.as_text import nodes, report, totals
from mirlo.tools.place.decision_text import decision_lines
from mirlo.tools.place.expect import differences, read_expected, shown
from mirlo.tools.place.page import page

if TYPE_CHECKING:
    from mirlo.driver.place.survey import Survey
    from mirlo.tools.place.as_json import PlacementReport

FORMS = (".html", ".json", ".txt")


def execute(arguments: Arguments) -> None:
    """Place the parts of a model, print or write the report, and compare it with an expected one."""
    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CompiledAlready(
            f"{arguments.model} is compiled already: place the parts of the model that it was made from"
        )
    for path in arguments.reports:
        if Path(path).suffix not in FORMS:
            raise CommandError(f"--report {path}: expected a file that ends in {', '.join(FORMS)}")
    # A file that cannot be read should be told before the work.
    expected = read_expected(arguments.expect) if arguments.expect else None
    survey = _survey(arguments)
    if arguments.json:
        arguments.result = {"model": arguments.model, **as_json(survey), "files": list(arguments.reports)}
    if arguments.node is not None:
        _print_node(arguments, survey, arguments.node)
        return
    _print(arguments, survey)
    for path in arguments.reports:
        _write(Path(path), survey, f"{os.path.basename(arguments.model)} on {survey.targets}")
        arguments.show(f"wrote {path}")
    if expected is not None:
        _compare(arguments, expected, survey)


def _survey(arguments: Arguments) -> Survey:
    targets, decision, nodes = divided(arguments.target or "llvm"), None, ""
    with Progress(
        f"placing {os.path.basename(arguments.model)}", arguments.verbose, is_quiet=arguments.quiet
    ) as progress:
        by_cost = arguments.options.get("placement", PLACEMENTS[0]) != PLACEMENTS[0]
        if by_cost and targets.of_loops:
            raise CommandError(
                f"'{targets.of_loops[0].name}' matches prim functions, which are placed in the order of the targets, "
                "not by cost"
            )
        if by_cost:
            request = CompileRequest(arguments.model, progress=progress, **arguments.options).with_fixed_dims()
            decision = decide_placement(request, targets)
            nodes = as_text(decision.nodes)
        progress("place")
        return replace(place_parts(open_model(arguments.model, arguments.shapes), targets, nodes), decision=decision)


def _print_node(arguments: Arguments, survey: Survey, name: str) -> None:
    lines = list(nodes(survey, attempts=True, name=name))
    if not lines:
        known = [text for node in survey.placement.nodes for text in (*node.names, node.operator)]
        raise CommandError(
            f"the model has no node '{name}' when it is placed: expected a name, an operator or a number"
            f"{nearest(name, known)}"
        )
    arguments.show(*lines)


def _print(arguments: Arguments, survey: Survey) -> None:
    brief = arguments.reports or arguments.expect
    arguments.show(*(totals(survey) if brief else report(survey, arguments.attempts)))
    if brief and survey.decision is not None:
        arguments.show(*decision_lines(survey.decision))


def _write(path: Path, survey: Survey, title: str) -> None:
    try:
        write_regular(path, _written(path.suffix, survey, title))
    except OSError as error:
        raise CommandError(f"cannot write '{path}': {error.strerror or error}") from error


def _written(form: str, survey: Survey, title: str) -> str:
    if form == ".html":
        return page(survey, title)
    if form == ".json":
        return dumped(as_json(survey))

    return "\n".join(report(survey, attempts=True)) + "\n"


def _compare(arguments: Arguments, expected: PlacementReport, survey: Survey) -> None:
    lines = differences(expected, as_json(survey))
    if lines:
        raise PlacedOtherwise(
            f"{arguments.model} is not placed as {arguments.expect} says:\n{shown(lines)}\n"
            f"If that is meant, write it again with --report {arguments.expect}"
        )
    arguments.show(f"as {arguments.expect} says")
