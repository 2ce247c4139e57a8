"""`mirlo bench`: models against other engines, and against the machine's limits."""

from __future__ import annotations

from pathlib import Path

from mirlo.driver.compiler import chosen_precision
from mirlo.driver.options import FASTEST
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.targets import CompileOptions, find_target
from mirlo.tools.bench.measure import measure
from mirlo.tools.bench.options import MeasurementOptions
from mirlo.tools.bench.report import check_path, write
from mirlo.tools.bench.results import Results, text_lines
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.options import given_options
from mirlo.tools.cli.progress import Progress
from mirlo.tools.cli.remote import board_options


def execute(arguments: Arguments) -> None:
    """Measure, print, and write the report."""
    for model in arguments.models:
        require_file(model)
        if is_compiled(model):
            raise CompiledAlready(f"{model} is compiled already: others cannot run it; name the model that it is from")
    if arguments.target is not None:
        Targets.parse(arguments.target)
    report = Path(arguments.report) if arguments.report else None
    if report is not None:
        check_path(report)
    results = run(arguments)
    arguments.show(*text_lines(results, arguments.kernels))
    written = [str(path) for path in write(results, report)] if report is not None else []
    arguments.result = {**results.as_json(), "files": written}
    arguments.show(*(f"wrote {path}" for path in written))


def run(arguments: Arguments) -> Results:
    """Measure what the command line requests."""
    settings = MeasurementOptions(
        **given_options(arguments, MeasurementOptions),
        shapes=dict(arguments.shape),
        dims=dict(arguments.dim),
        kernels=bool(arguments.kernels),
        code=str(arguments.report or "").endswith(".html"),
        target=arguments.target,
        board=board_options(arguments),
        compile_options={name: value for name, value in arguments.options.items() if name in ("schedules", "tune")},
    )
    machine = _board_machine(settings, arguments.report)
    rows = []
    with Progress("bench", arguments.verbose, arguments.quiet) as progress:
        for model in arguments.models:
            for threads in settings.threads:
                for each in filter(None, (settings, settings.in_fastest(_fastest_precision()))):
                    rows.extend(measure(Path(model), each, threads, progress))
    return Results(rows) if machine is None else Results(rows, machine=machine)


def _fastest_precision() -> str | None:
    """Return the type whose products this machine computes faster than those of f32, if there is one."""
    return chosen_precision(FASTEST, find_target("llvm"), CompileOptions("llvm"))


def _board_machine(settings: MeasurementOptions, report: str | None) -> str | None:
    """Describe the board on which models run, or return None for this machine; reject options that boards lack."""
    if settings.board is None:
        return None
    if settings.against or settings.spinner or settings.pressure:
        raise CommandError("other engines and loads run on this machine: leave out --against, --spinner and --pressure")
    if report is not None and (not report.endswith((".json", ".md")) or report.endswith(".trace.json")):
        raise CommandError(f"limits of a board are not measured, which '{report}' is to show: write .json or .md")
    with settings.board.connect() as board:
        facts = board.facts
    cores = f"{facts.cores} core{'s' if facts.cores > 1 else ''}"
    return f"{board.address}, {facts.arch}, {cores}, {facts.system.capitalize()}"
