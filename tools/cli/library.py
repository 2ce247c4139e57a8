"""`mirlo link`, and the forms of code and libraries of `mirlo compile --emit`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.files import require_file
from mirlo.tools.cli.progress import Progress


def emit_library(arguments: Arguments) -> None:
    """Compile a model to a library, to object files, or to a form of code."""
    from mirlo.driver.code import compile_code

    if arguments.specialize or arguments.save_ir:
        option = "--specialize" if arguments.specialize else "--save-ir"
        raise CommandError(f"'--emit {arguments.emit}' makes one build of the model: leave out {option}")
    if arguments.kernel is not None and arguments.emit in ("library", "object"):
        raise CommandError(f"'--kernel' is for llvm-ir, asm and obj, found '--emit {arguments.emit}'")
    with Progress(f"compiling {os.path.basename(arguments.model)}", arguments.verbose) as progress:
        artifact, params = compile_code(
            arguments.model,
            arguments.target or "llvm",
            form="llvm-ir",
            threads=arguments.threads or 1,
            shapes=arguments.shapes,
            pipeline=arguments.pipeline,
            precision=arguments.precision,
            activations=arguments.activations,
            jobs=arguments.jobs,
            cache=arguments.cache,
            trust_file=arguments.trust_file,
            progress=progress,
        )
    name = arguments.name or Path(arguments.model).stem
    if arguments.emit in ("library", "object"):
        from mirlo.targets.llvm.library.build import write_library

        folder = Path(arguments.output or name)
        shared = arguments.emit == "library"
        _report(write_library(artifact, params, folder, name, shared=shared, weights=arguments.weights))
        return
    from mirlo.targets.llvm.library.objects import processor_of, whole_code
    from mirlo.targets.llvm.machine_code import SUFFIXES, CodeSettings

    output = Path(arguments.output or f"{arguments.kernel or name}{SUFFIXES[arguments.emit]}")
    output.write_bytes(
        whole_code(artifact, CodeSettings(processor_of(artifact), form=arguments.emit), arguments.kernel)
    )
    _report([output])


def execute(arguments: Arguments) -> None:
    """Link a compiled model to a shared library."""
    from mirlo.runtime.artifact import load
    from mirlo.targets.llvm.library.build import link_model
    from mirlo.targets.llvm.library.description import library_name
    from mirlo.targets.llvm.library.link import library_file

    require_file(arguments.model)
    artifact, params = load(arguments.model)
    name = arguments.name or Path(arguments.model).stem
    default = library_file(library_name(name), str(artifact.metadata.get("triple", "")))
    _report(link_model(artifact, params, Path(arguments.output or default), name, arguments.weights))


def _report(files: Iterable[Path]) -> None:
    for path in files:
        print(f"wrote {path}: {path.stat().st_size} bytes")
