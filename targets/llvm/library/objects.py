"""The object files of a library: the model with its descriptor, the thread pool, the weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime import archive
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.threads import pool_text
from mirlo.targets.llvm.cpus import CPUS, RISCV
from mirlo.targets.llvm.library.description import HEADER_BYTES, MAGIC, Description, padded
from mirlo.targets.llvm.library.descriptor import descriptor
from mirlo.targets.llvm.library.elf import write_data
from mirlo.targets.llvm.machine_code import OBJECT, CodeSettings, emit, llvmlite, optimized
from mirlo.targets.llvm.processor import Processor

if TYPE_CHECKING:
    from llvmlite.binding import ModuleRef


def processor_of(artifact: Artifact) -> Processor:
    """Return the processor that an artifact's code is for."""
    metadata = artifact.metadata
    return Processor(str(metadata["triple"]), "", tuple(metadata["features"]))


def is_ir(artifact: Artifact) -> bool:
    """Return whether the units of an artifact are LLVM IR, not object files."""
    return all(name.endswith(".ll") for name, _ in archive.unpack(artifact.code))


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
    found = [(f"unit{i}.o", content) for i, (_, content) in enumerate(members)]
    return [*found, ("descriptor.o", emit(optimized(text, settings), settings))]


def has_pool(triple: str) -> bool:
    """Return whether there is a thread pool for a system."""
    return "wasm" not in triple


def pool_object(processor: Processor) -> bytes:
    """Return the object file of the thread pool for every processor of a kind."""
    features = sorted(CPUS[processor.base].features) if processor.arch == RISCV else []  # atomics are a feature there
    settings = CodeSettings(Processor(processor.triple, processor.cpu, tuple(features)), form=OBJECT)
    return emit(optimized(pool_text(processor.arch, processor.triple), settings), settings)


def write_weights(path: Path, description: Description, arch: str) -> None:
    """Write the weights as an object file."""
    content = padded(description.weights, description.weights_bytes)
    write_data(path, arch, description.weights_symbol, content, description.weights_bytes)


def write_weights_file(path: Path, description: Description) -> None:
    """Write the weights as a file that programs map."""
    with path.open("wb") as file:
        file.write((MAGIC + description.digest).ljust(HEADER_BYTES, b"\0"))
        for part in padded(description.weights, description.weights_bytes):
            file.write(part)
