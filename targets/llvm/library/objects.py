"""The object files of a library: the model with its descriptor, the thread pool, the weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime import archive, threads
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.files import replacing
from mirlo.runtime.records import dataclass
from mirlo.targets.host.llvm_ir import llvmlite
from mirlo.targets.llvm.cpus import BASE, CPUS, RISCV, WASM, WASM_THREADS, arch_of, system_of
from mirlo.targets.llvm.library import coff, elf, macho
from mirlo.targets.llvm.library.description import HEADER_BYTES, MAGIC, Description, LibraryError, padded
from mirlo.targets.llvm.library.descriptor import descriptor
from mirlo.targets.llvm.machine_code import OBJECT, CodeSettings, emit, optimized
from mirlo.targets.llvm.processor import Processor

if TYPE_CHECKING:
    from llvmlite.binding import ModuleRef


@dataclass(frozen=True)
class DataFormat:
    """A form of object files in which weights are written."""

    machines: Collection[str]
    """The kinds of processors that it is written for."""
    write: Callable[[Path, str, str, Iterable[bytes | memoryview], int], None]
    max_bytes: int
    """The most bytes that the code of a library reaches, or that its file may have."""


DATA_FORMATS = {
    # Images are below 2 GiB, and so is what is between code and its data; half of it is left for all else.
    "windows": DataFormat(coff.MACHINES, coff.write_data, 1 << 30),
    "darwin": DataFormat(macho.MACHINES, macho.write_data, 1 << 30),
}
"""Forms by systems; other systems have ELF files, whose code finds what is in sections of their own beyond 2 GiB."""
_ELF = DataFormat(elf.MACHINES, elf.write_data, 1 << 62)


def processor_of(artifact: Artifact) -> Processor:
    """Return the processor that an artifact's code is for."""
    metadata = artifact.metadata
    return Processor(str(metadata["triple"]), "", tuple(metadata["features"]))


def is_ir(artifact: Artifact) -> bool:
    """Return whether the units of an artifact are LLVM IR, not object files."""
    code = artifact.code
    return archive.is_archive(code) and all(name.endswith(".ll") for name, _ in archive.unpack(code))


def linked_units(artifact: Artifact, more: Sequence[str] = (), keep: Sequence[str] = ()) -> ModuleRef:
    """Return llvmlite's module of all units of LLVM IR and more texts; only the symbols in `keep` stay visible."""
    binding = llvmlite()
    context = binding.create_context()
    texts = [content.decode() for _, content in archive.unpack(artifact.code)]
    whole, *others = (binding.parse_assembly(text, context) for text in (*texts, *more))
    processor = processor_of(artifact)
    for other in others:
        other.triple, other.data_layout = whole.triple, whole.data_layout
        whole.link_in(other)
    whole.triple = processor.triple
    kept = set(keep)
    for value in (*whole.functions, *whole.global_variables):
        if not value.is_declaration and value.name not in kept:
            value.linkage = "internal"
    return whole


def model_object(description: Description, settings: CodeSettings) -> bytes:
    """Return an object file with the whole model, of units of LLVM IR; it defines the descriptor alone."""
    artifact = description.artifact
    text = descriptor(description, artifact.entry, is_hidden=False)
    return emit(linked_units(artifact, [text], [description.symbol]), settings)


def unit_objects(description: Description, settings: CodeSettings) -> list[tuple[str, bytes]]:
    """Return the object files of a loaded model, and one with its descriptor, which refers to them."""
    artifact = description.artifact
    text = descriptor(description, artifact.entry, is_hidden=True)
    members = archive.unpack(artifact.code) if archive.is_archive(artifact.code) else [("model.o", artifact.code)]
    objects = [(f"unit{i}.o", content) for i, (_, content) in enumerate(members)]
    return [*objects, ("descriptor.o", emit(optimized(text, settings), settings))]


def has_pool(processor: Processor) -> bool:
    """Return whether there is a thread pool for a system."""
    if processor.is_bare or not threads.has_pool(processor.arch, processor.triple):
        return False
    return processor.arch != WASM or set(WASM_THREADS) <= set(processor.features)


def pool_object(processor: Processor) -> bytes:
    """Return the object file of the thread pool for every processor of a kind."""
    of_arch = {RISCV: sorted(CPUS[BASE[RISCV]].features), WASM: WASM_THREADS}
    features = of_arch.get(processor.arch, ())  # atomics are features there
    settings = CodeSettings(Processor(processor.triple, processor.cpu, tuple(features)), form=OBJECT)
    return emit(optimized(threads.pool_text(processor.arch, processor.triple), settings), settings)


def data_format(triple: str) -> DataFormat | None:
    """Return the form of object files with weights for a system; None where there is none."""
    form = DATA_FORMATS.get(system_of(triple), _ELF)
    return form if arch_of(triple) in form.machines else None


def write_weights(path: Path, description: Description, processor: Processor) -> None:
    """Write the weights as an object file."""
    form = data_format(processor.triple)
    if form is None:
        raise LibraryError(f"object files with weights are not written for {processor.triple}: leave them beside")
    content = padded(description.weights, description.weights_bytes)
    form.write(path, processor.arch, description.weights_symbol, content, description.weights_bytes)


def write_weights_file(path: Path, description: Description) -> None:
    """Write the weights as a file that programs map."""
    with replacing(path) as file:
        file.write((MAGIC + description.digest).ljust(HEADER_BYTES, b"\0"))
        for part in padded(description.weights, description.weights_bytes):
            file.write(part)
