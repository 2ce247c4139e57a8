"""`mirlo explorer`: a page with a model at every stage of its compilation, and its graph for other viewers."""

from __future__ import annotations

import json
import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime.errors import MirloError
from mirlo.runtime.executable import Executable
from mirlo.runtime.files import write_regular
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.compile import compile_model
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.run_sizes import with_small_sizes
from mirlo.tools.explorer.collect import REPEATS, MeasuredModel, explore
from mirlo.tools.explorer.page import page
from mirlo.tools.explorer.viewers import model_explorer, netron
from mirlo.tools.tables import bytes_text

if TYPE_CHECKING:
    from mirlo.runtime.profile import Profile


def execute(arguments: Arguments) -> None:
    """Compile a model, measure it, and write the page."""
    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CompiledAlready(f"{arguments.model} is compiled already: explore the model that it was made from")
    output = Path(arguments.output or f"{Path(arguments.model).stem}-explorer.html")
    for path in (output, *(Path(name) for name in (arguments.model_explorer, arguments.netron) if name)):
        if not path.absolute().parent.is_dir():
            raise CommandError(f"cannot write '{path}': there is no folder '{path.parent}'")

    measured = None if arguments.no_times else _measured(arguments)
    options = arguments.options
    exploration = explore(
        arguments.model,
        f"{os.path.basename(arguments.model)} on {arguments.target or 'llvm'}",
        measured,
        target=arguments.target or "llvm",
        threads=arguments.threads or 1,
        shapes=arguments.shapes,
        strategies=options.get("strategies"),
        schedules=options.get("schedules"),
        tune=options.get("tune", True),
        precision=options.get("precision"),
    )
    _write(output, page(exploration))
    if arguments.model_explorer:
        _write(Path(arguments.model_explorer), json.dumps(model_explorer(exploration)))
    if arguments.netron:
        _write(Path(arguments.netron), json.dumps(netron(exploration)))
    if arguments.open:
        webbrowser.open(output.absolute().as_uri())


def _write(path: Path, text: str) -> None:
    try:
        write_regular(path, text)
    except OSError as error:
        raise CommandError(f"cannot write '{path}': {error.strerror or error}") from error
    print(f"wrote {path}: {bytes_text(len(text))}")


def _measured(arguments: Arguments) -> MeasuredModel | str:
    """Compile the model and time its kernels; or return why that is not possible here."""
    try:
        executable, _ = compile_model(arguments)
        if not isinstance(executable, Executable):
            return "the model is a program of several parts, each with a profile of its own"
        return MeasuredModel(executable.artifact.kernels, _profile(executable), str(executable.memory))
    except MirloError as error:
        return str(error)


def _profile(executable: object) -> Profile:
    """Time the kernels with random inputs, of small sizes where these are dynamic."""
    assert isinstance(executable, Executable)
    problem: MirloError | None = None
    for sizes, _ in with_small_sizes(executable.inputs, {}):
        try:
            return executable.profile(*executable.random_inputs(0, sizes).values(), repeats=REPEATS)
        except MirloError as error:  # such as an image smaller than a window
            problem = error
    raise MirloError(f"no small sizes fit the model ({problem}): give the sizes of its dynamic dims with --dim")
