"""The code of kernels as files: one for each kernel, with its name and its nodes as comments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import clone_module
from mirlo.passes.code_forms import CodeForm, KernelText, with_comments
from mirlo.passes.files import FileError
from mirlo.passes.locations import kernel_nodes
from mirlo.passes.targets import CompileOptions, Target, code_target
from mirlo.runtime.files import write_regular
from mirlo.runtime.names import file_name

CODE_FOLDER = "code"
"""The folder beside the stages of a compilation."""


def save_code(module: ir.Module, target: Target, options: CompileOptions, folder: Path) -> None:
    """Write the code of a planned module's kernels, in each form of the target that is text."""
    nodes = kernel_nodes(module)
    for form, texts in texts_by_form(module, target, options):
        files = [(text.symbol, with_comments(text, nodes.get(text.function, []), form)) for text in texts]
        write_code(folder / CODE_FOLDER, form, files)


def texts_by_form(
    module: ir.Module, target: Target, options: CompileOptions
) -> Iterator[tuple[CodeForm, Sequence[KernelText]]]:
    """Yield the code of a planned module's kernels in each form of the target that is text; the module stays."""
    source = code_target(target)
    if not source.has("code"):
        return
    for form in source.forms:
        if form.is_text:
            with module.context, ir.Location.unknown():
                texts = source.code(clone_module(module), replace(options, form=form.name))
            yield form, texts


def write_code(folder: Path, form: CodeForm, files: Iterable[tuple[str, bytes]]) -> list[Path]:
    """Write code to files that are called as their symbols, which may come from a model; return them."""
    written: dict[str, Path] = {}
    for symbol, content in files:
        stem, count = file_name(symbol.removeprefix("kernel.")), 1
        path = folder / f"{stem}{form.suffix}"
        while str(path).casefold() in written:  # parts of a program may have equal names
            count += 1
            path = folder / f"{stem}-{count}{form.suffix}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write to '{folder}': {error.strerror or error}") from error
        write_bytes(path, content)
        written[str(path).casefold()] = path
    return list(written.values())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file, or raise the error of a file that cannot be written."""
    try:
        write_regular(path, content)
    except OSError as error:
        raise FileError(f"cannot write '{path}': {error.strerror or error}") from error
