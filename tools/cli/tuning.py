"""`mirlo tune`: search for faster schedules of a model's kernels; without a model, print the stored results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirlo.driver.request import default_database
from mirlo.driver.tune.database import Database
from mirlo.driver.tune.fleet import Fleet
from mirlo.driver.tune.ranking import PROMISING
from mirlo.driver.tune.search import tune
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.progress import Progress
from mirlo.tools.cli.remote import board_options
from mirlo.tools.remote import on_board
from mirlo.tools.tables import columns

if TYPE_CHECKING:
    from mirlo.driver.tune.search import Tuned, TuningReport


def execute(arguments: Arguments) -> None:
    """Tune, and print the result of each kernel."""
    if arguments.model is None:
        _list(Database(arguments.database or default_database()), arguments.json)
        return
    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CompiledAlready(f"{arguments.model} is compiled already: tune the model that it was made from")
    database = Database(arguments.database or default_database())
    board = board_options(arguments)
    if board is not None and arguments.ray is not None:
        raise CommandError("kernels are timed on a board or on a cluster: leave out --remote or --ray")
    measurer = None
    if arguments.ray is not None:
        measurer = Fleet(arguments.ray)
    with Progress(f"tuning {arguments.model}", arguments.verbose) as progress, on_board(board):
        report = tune(
            arguments.model, database, target=arguments.target or "llvm", threads=arguments.threads or 1,
            shapes=arguments.shapes, seconds=arguments.seconds, measurer=measurer, progress=progress,
            kernels=[name.removeprefix("@") for name in arguments.kernel_names],
        )  # fmt: skip
    if arguments.json:
        print(json.dumps(_summary(report, database), indent=2))
    else:
        _print_report(report, database)


def _summary(report: TuningReport, database: Database) -> dict[str, object]:
    return {
        "kernels": report.kernels, "left": report.left, "seconds": round(report.seconds, 1),
        "before_us": report.before, "after_us": report.after, "inside": report.inside,
        "forecast": report.forecast, "foreseen": report.foreseen, "database": str(database.path),
        "results": [vars(result) for result in report.results],
    }  # fmt: skip


def _print_report(report: TuningReport, database: Database) -> None:
    rows = [("kernel", "calls", "us", "ratio", "choices")]
    for result in sorted(report.results, key=lambda entry: -entry.microseconds * entry.calls):
        chosen = _choices(result.values)
        how = _how(result)
        times = f"{result.microseconds:.1f}", f"{result.ratio:.2f}"
        rows.append(
            (
                result.function if result.operator or result.region else f"@{result.function}",
                str(result.calls),
                *times,
                chosen + how,
            )
        )
    print("\n".join(columns(rows, numbers={1, 2, 3})))
    faster = sum(1 for result in report.results if result.values)
    print(
        f"{len(report.results) + report.left} kernels and operators with choices: {faster} are faster, "
        f"{len(report.results) - faster} are not, {report.left} were left for lack of time"
    )
    print(
        f"a run spends {report.before / 1000:.2f} ms in the kernels that were timed, now {report.after / 1000:.2f} ms; "
        f"{report.seconds:.0f} s"
    )
    if report.inside is not None:
        print(f"inside of the model all kernels together take {report.inside:.2f} of the time with what was found now")
    if report.forecast is not None:
        print(f"the cost model had expected {report.forecast:.2f} of the kernels' time with the best choices")
    if report.foreseen is not None:
        print(f"the model of the machine foresaw their order to {report.foreseen:.2f} (1 is perfectly, 0 not at all)")
    if database.path == default_database():
        print(f"kept in {database.path}; compilations use it from now on")
    else:
        print(f"kept in {database.path}; compilations use it with --database {database.path}")


def _how(result: Tuned) -> str:
    """Return how the choices of a kernel were found."""
    if result.known:
        return " (known)"
    if result.skipped and not result.trials:
        return f": the {result.skipped} others are expected to take more than {PROMISING} of the time"
    return f" of {result.trials} tried"


def _list(database: Database, as_json: bool) -> None:
    """Print the entries of the database."""
    entries = sorted(database.entries.items(), key=lambda entry: (entry[1].function, entry[0]))
    if as_json:
        print(json.dumps({key: vars(entry) for key, entry in entries}, indent=2))
        return
    rows = [("key", "kernel", "us", "ratio", "choices")]
    for key, entry in entries:
        chosen = _choices(entry.values)
        rows.append((key[:12], entry.function, f"{entry.microseconds:.1f}", f"{entry.ratio:.2f}", chosen))
    print("\n".join(columns(rows, numbers={2, 3})))
    print(f"{len(entries)} kernels and operators in {database.path}")


def _choices(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "its own"
