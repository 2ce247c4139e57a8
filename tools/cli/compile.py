"""`mirlo compile`, and the compilation of `mirlo run`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime.files import resolved
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.progress import Progress, compiled_result

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable


def execute(arguments: Arguments) -> None:
    """Compile a model and save it."""
    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CompiledAlready(f"{arguments.model} is compiled already: 'mirlo run' runs it")
    if arguments.emit == "source":
        _emit_source(arguments)
        return
    if arguments.emit != "executable":
        from mirlo.tools.cli.library import emit_library

        emit_library(arguments)
        return
    output = Path(arguments.output or f"{Path(arguments.model).stem}.mirlo")
    if output.is_dir():
        raise CommandError(f"'{output}' is a folder: name a file with -o")
    if not output.absolute().parent.is_dir():
        raise CommandError(f"cannot write '{output}': there is no folder '{output.parent}'")
    if resolved(output) == resolved(arguments.model):
        raise CommandError(f"the compiled model would replace the model '{output}': name another file with -o")
    from mirlo.driver.compile_strategy import save_compiled

    executable, progress = compile_model(arguments, load=False)
    with progress:
        progress("save")
        saved = save_compiled(arguments.options, executable, output)
    arguments.result = compiled_result(arguments, progress, [path for path, _ in saved])
    for path, model in saved:
        size = f"{path.stat().st_size / 2**20:.1f} MiB"
        arguments.show(f"{path}: {size}, {model.memory}; {progress.how} in {progress.summary()}")
    if arguments.report:
        from mirlo.tools.cli.compile_report import report_lines

        arguments.show(*report_lines(executable, progress))
    elif arguments.timing:
        arguments.show(progress.table())


def _emit_source(arguments: Arguments) -> None:
    """Write a whole model as source, or the output of code generators, to a folder."""
    from mirlo.passes.byoc.target_list import Targets
    from mirlo.passes.targets import makes_source
    from mirlo.tools.emit_source import emit_source

    if arguments.target is None:
        raise CommandError("'--emit source' needs '--target': what writes it, such as 'c'")
    targets = Targets.parse(arguments.target)
    if targets.host is not None and makes_source(targets.host.name):
        from mirlo.tools.cli.library import emit_library

        emit_library(arguments)
        return
    folder = Path(arguments.output or Path(arguments.model).stem)
    files = list(emit_source(arguments.model, arguments.target, folder, arguments.shapes))
    arguments.result = compiled_result(arguments, None, files)
    arguments.show(*(f"wrote {path}: {path.stat().st_size} bytes" for path in files))


def compile_model(arguments: Arguments, load: bool = True) -> tuple[Executable, Progress]:
    """Compile as the command line requests, to call or only save the model, and report the time."""
    from mirlo.driver.compile import compile as compile_

    with Progress(
        f"compiling {os.path.basename(arguments.model)}", arguments.verbose, is_quiet=arguments.quiet
    ) as progress:
        executable = compile_(arguments.model, progress=progress, load=load, **arguments.options)
    return executable, progress
