"""`mirlo link`, and the forms of code and libraries of `mirlo compile --emit`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mirlo.driver.code import compile_code, kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.driver.save_code import write_bytes, write_code
from mirlo.runtime.artifact import load
from mirlo.runtime.names import file_name
from mirlo.runtime.regions import described_regions
from mirlo.targets.llvm.library.build import link_model
from mirlo.targets.llvm.library.description import library_name
from mirlo.targets.llvm.library.link import library_file
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.compile_report import region_lines
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.files import require_file
from mirlo.tools.cli.options import given_flags
from mirlo.tools.cli.progress import Progress, compiled_result, linked_result
from mirlo.tools.library_forms import library_forms


def emit_library(arguments: Arguments) -> None:
    """Compile a model to a library, to object files, to source, or to a form of code."""
    for name in ("specialize", "save_ir"):
        if name in given_flags(arguments):
            flag, _ = given_flags(arguments)[name]
            raise CommandError(f"'--emit {arguments.emit}' makes one build of the model: leave out {flag}")

    form = library_forms().get(arguments.emit)
    if form is None:
        _emit_code(arguments)
        return
    if arguments.kernel is not None:
        raise CommandError(f"'--kernel' is for forms of code, such as asm, found '--emit {arguments.emit}'")

    options = dict(arguments.options)
    if form.target and not arguments.target:
        options["target"] = form.target
    with Progress(
        f"compiling {os.path.basename(arguments.model)}", arguments.verbose, is_quiet=arguments.quiet
    ) as progress:
        code = "" if form.as_loaded else "source" if form.source else "llvm-ir"
        request = CompileRequest(arguments.model, form=code, progress=progress, **options)
        artifact, params = compile_code(request)
    name = arguments.name or Path(arguments.model).stem
    _report(arguments, form.write(artifact, params, Path(arguments.output or name), name, arguments.weights), progress)
    arguments.show(*region_lines(described_regions(artifact)))


def _emit_code(arguments: Arguments) -> None:
    """Write the code of kernels: each to a file of a folder, or one to the file that the command line names."""
    with Progress(
        f"compiling {os.path.basename(arguments.model)}", arguments.verbose, is_quiet=arguments.quiet
    ) as progress:
        request = CompileRequest(arguments.model, progress=progress, **arguments.options).with_fixed_dims()
        listings = kernel_listings(request, arguments.emit, arguments.kernel)
    if not listings:
        raise CommandError(f"the model has no kernels: target '{arguments.target or 'llvm'}' computes nothing in it")
    form = listings[0].form
    if arguments.kernel is not None and len(listings) == 1:
        output = Path(arguments.output or f"{file_name(arguments.kernel)}{form.suffix}")
        write_bytes(output, listings[0].content)
        _report(arguments, [output], progress)
        return
    folder = Path(arguments.output or f"{Path(arguments.model).stem}-{form.name}")
    _report(arguments, write_code(folder, form, [(listing.symbol, listing.content) for listing in listings]), progress)


def execute(arguments: Arguments) -> None:
    """Link a compiled model to a shared library."""
    require_file(arguments.model)
    artifact, params = load(arguments.model)
    name = arguments.name or Path(arguments.model).stem
    default = library_file(library_name(name), str(artifact.metadata.get("triple", "")))
    _report(arguments, link_model(artifact, params, Path(arguments.output or default), name, arguments.weights))


def _report(arguments: Arguments, files: Iterable[Path], progress: Progress | None = None) -> None:
    files = list(files)
    if progress is None:
        arguments.result = linked_result(arguments, files)
    else:
        arguments.result = compiled_result(arguments, progress, files)
    arguments.show(*(f"wrote {path}: {path.stat().st_size} bytes" for path in files))
