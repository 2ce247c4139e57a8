"""Writing of a library: the object files of a model, linked or not, and the files that programs need beside them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.files import write_regular
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.cpus import WASM
from mirlo.targets.llvm.library.description import EMBED_BYTES, Description, LibraryError, describe
from mirlo.targets.llvm.library.link import find_toolchain, library_file, link_shared
from mirlo.targets.llvm.library.native import write_native_objects
from mirlo.targets.llvm.library.objects import (
    data_format,
    has_pool,
    is_ir,
    model_object,
    pool_object,
    processor_of,
    unit_objects,
    write_weights,
    write_weights_file,
)
from mirlo.targets.llvm.library.sources import build_files, model_header, run_time_files
from mirlo.targets.llvm.machine_code import CodeSettings

WEIGHTS = ("auto", "embed", "beside")


def write_library(
    artifact: Artifact, store: ParameterStore, folder: Path, name: str, *, shared: bool, weights: str = "auto"
) -> list[Path]:
    """Write a model as a shared library, or as object files, with headers, run time and build files; return the files.

    `weights` is "embed" for an object file of them, "beside" for a file that programs map, "auto" for either by size.
    """
    description = _described(artifact, store, name, weights)
    folder.mkdir(parents=True, exist_ok=True)
    processor = processor_of(artifact)
    settings = CodeSettings(processor)
    if shared and processor.arch == WASM:
        raise LibraryError("WebAssembly has no shared libraries: write object files with '--emit object'")
    objects = _write_objects(folder, description, settings)
    written = list(objects)
    if shared:
        library = folder / library_file(description.name, processor.triple)
        link_shared(find_toolchain(processor.triple), objects, library, description.symbol)
        for each in objects:
            each.unlink()
        written, objects = [library], [library]
    if description.weights_bytes and not description.embedded:
        written.append(folder / description.weights_file)
        write_weights_file(written[-1], description)
    texts = {
        **build_files(description, [each.name for each in objects], has_pool(processor)),
        f"{description.name}.h": model_header(description),
    }
    contents = {name: text.encode() for name, text in texts.items()} | run_time_files()
    if has_pool(processor):
        contents["mirlo_pool.o"] = pool_object(processor)
    for file, content in contents.items():
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        write_regular(path, content)
        written.append(path)
    return written


def link_model(artifact: Artifact, store: ParameterStore, output: Path, name: str, weights: str = "auto") -> list[Path]:
    """Link a loaded model to a shared library; return it and the file of weights, if there is one."""
    description = _described(artifact, store, name, weights)
    processor = processor_of(artifact)
    written = [output]
    with tempfile.TemporaryDirectory(prefix="mirlo-link-") as folder:
        objects = _write_objects(Path(folder), description, CodeSettings(processor))
        link_shared(find_toolchain(processor.triple), objects, output, description.symbol)
    if description.weights_bytes and not description.embedded:
        written.append(output.with_name(description.weights_file))
        write_weights_file(written[-1], description)
    return written


def _described(artifact: Artifact, store: ParameterStore, name: str, weights: str) -> Description:
    """Describe a model; refuse to embed more weights than object files for its system may have."""
    if weights not in WEIGHTS:
        raise LibraryError(f"weights: expected {', '.join(WEIGHTS)}, found '{weights}'")
    triple = artifact.metadata.get("triple")
    form = data_format(str(triple)) if triple else None
    most = form.max_bytes if form is not None else 0
    description = describe(artifact, store, name, weights, min(most, EMBED_BYTES))
    if description.embedded and description.weights_bytes > most:
        raise LibraryError(
            f"'{description.name}' has {description.weights_bytes} bytes of weights, and at most {most} are embedded "
            f"in object files for {triple}: leave them beside"
        )
    return description


def _write_objects(folder: Path, description: Description, settings: CodeSettings) -> list[Path]:
    files = (
        [(f"{description.name}.o", model_object(description, settings))]
        if is_ir(description.artifact)
        else unit_objects(description, settings)
    )
    paths = []
    for file, content in files:
        paths.append(folder / file)
        write_regular(paths[-1], content)
    for linked in description.linked:
        paths += write_native_objects(folder, description, linked, settings.processor.triple)
    if description.embedded:
        paths.append(folder / f"{description.name}_weights.o")
        write_weights(paths[-1], description, settings.processor)
    return paths
