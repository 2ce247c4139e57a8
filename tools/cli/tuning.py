"""`mirlo tune`: searches for faster kernels of a model, and keeps what it finds."""

from __future__ import annotations

import json

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.progress import Progress
from mirlo.tools.cli.tables import columns


def execute(arguments: Arguments) -> None:
    """Tune, print what was found for each kernel."""
    from mirlo.tools.tune.database import Database, default_database
    from mirlo.tools.tune.search import tune

    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CommandError(f"{arguments.model} is compiled already: tune the model that it was made from")
    database = Database(arguments.database or default_database())
    measurer = None
    if arguments.ray is not None:
        from mirlo.tools.tune.fleet import Fleet

        measurer = Fleet(arguments.ray)
    with Progress(f"tuning {arguments.model}", arguments.verbose) as progress:
        report = tune(
            arguments.model, database, target=arguments.target or "llvm", threads=arguments.threads or 1,
            shapes=arguments.shapes, seconds=arguments.seconds, measurer=measurer, tell=progress,
        )  # fmt: skip
    if arguments.json:
        found = {
            "kernels": report.kernels, "left": report.left, "seconds": round(report.seconds, 1),
            "before_us": report.before, "after_us": report.after, "database": str(database.path),
            "results": [vars(result) for result in report.results],
        }  # fmt: skip
        print(json.dumps(found, indent=2))
        return
    rows = [("kernel", "calls", "us", "ratio", "choices")]
    for result in sorted(report.results, key=lambda entry: -entry.microseconds * entry.calls):
        chosen = ", ".join(f"{name}={value}" for name, value in result.values.items()) or "its own"
        how = " (known)" if result.known else f" of {result.trials} tried"
        times = f"{result.microseconds:.1f}", f"{result.ratio:.2f}"
        rows.append((f"@{result.function}", str(result.calls), *times, chosen + how))
    print("\n".join(columns(rows, numbers={1, 2, 3})))
    faster = sum(1 for result in report.results if result.values)
    print(
        f"{faster} of {len(report.results)} kernels with choices are faster, {report.left} were left for lack of time; "
        f"all of them {report.before / 1000:.2f} ms, now {report.after / 1000:.2f} ms; {report.seconds:.0f} s"
    )
    print(f"kept in {database.path}; compilations use it from now on")
