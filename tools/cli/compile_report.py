"""`mirlo compile --report`: the resources of a compiled model and their lower bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mirlo.runtime import archive
from mirlo.runtime.errors import ArtifactError, MirloError
from mirlo.runtime.regions import described_regions, region_rows
from mirlo.runtime.system import own_memory, peak_memory
from mirlo.tools.cli.progress import Progress
from mirlo.tools.cli.run_sizes import with_small_sizes
from mirlo.tools.tables import approximation_lines, bytes_text, columns

if TYPE_CHECKING:
    from mirlo.driver.loaded import CallableModel
    from mirlo.runtime.artifact import Artifact
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.regions import RegionDescription


def report_lines(executable: Executable, progress: Progress) -> Iterator[str]:
    """Yield the memory of a call, weights, code, memory of the compilation, and time of each step."""
    # A program has several modules, compiled one by one.
    for part in executable.compiled.parts if hasattr(executable, "compiled") else [executable.artifact]:
        yield from _artifact_lines(part)
    yield f"weights: {bytes_text(executable.memory.weights_bytes)}"
    peak, own = peak_memory(), own_memory()
    if peak:
        text = f"; {bytes_text(own)} of its own now, beside pages of files" if own else ""
        yield f"most memory while compiling: {bytes_text(peak)} in this process{text}"
    yield "steps:"
    yield progress.table()


def _artifact_lines(artifact: Artifact) -> Iterator[str]:
    yield from region_lines(described_regions(artifact))
    yield from arena_lines(artifact)
    if "placement" in artifact.metadata:
        yield f"placed by {artifact.metadata['placement']['by']} cost: {artifact.metadata['placement']['taken']}"
    yield from precision_lines(artifact)
    yield from approximation_lines(artifact.metadata.get("approximations", ()))
    kinds = Counter(kernel.kind or "other" for kernel in artifact.kernels)
    yield f"kernel calls: {len(artifact.kernels)}"
    yield from columns([(f"  {kind}", str(count)) for kind, count in kinds.most_common()], numbers={1})
    objects = len(archive.unpack(artifact.code)) if archive.is_archive(artifact.code) else 1
    yield f"code: {bytes_text(len(artifact.code))} in {objects} object files: equal kernels are one"


def precision_lines(artifact: Artifact) -> Iterator[str]:
    """Yield the types that `fastest` and `auto` selected."""
    if "precision" in artifact.metadata:
        yield f"the fastest precision: {artifact.metadata['precision']}"
    if "activations" in artifact.metadata:
        yield f"the fastest activations: {', '.join(artifact.metadata['activations'])}"


def region_lines(regions: Sequence[RegionDescription]) -> Iterator[str]:
    """Yield a table of regions with their targets, loaders and requirements."""
    yield from columns(list(region_rows(regions)), numbers={2, 3})


def executable_regions(executable: CallableModel) -> Iterator[str]:
    """Yield the tables of regions of a model, or of each part of a program."""
    for part in executable.compiled.parts if hasattr(executable, "compiled") else [executable.artifact]:
        yield from region_lines(described_regions(part))


def arena_lines(artifact: Artifact) -> Iterator[str]:
    """Yield the size of the arena and of the values live at one time; for example sizes if it is dynamic."""
    plan, sizes = artifact.metadata.get("memory", {}), artifact.metadata.get("sizes")
    if not sizes:
        yield "memory of a call: " + _arena_text(artifact.arena_bytes, plan)
        return
    written = f"; {plan['in_place']} calls write over an input" if "in_place" in plan else ""
    yield f"memory of a call: by the sizes of its inputs{written}"
    extra = ", and results whose sizes depend on data" if artifact.metadata.get("allocates") else ""
    for example, arena in _arenas(artifact, sizes[0]):
        yield f"  {example}: {bytes_text(arena)}{extra}"


def _arenas(artifact: Artifact, arena: str) -> Iterator[tuple[str, int]]:
    """Yield sizes of the dynamic dims, and the size of the arena for them."""
    from mirlo.dialects.core import dims as D

    try:
        total, examples = D.parse(arena), list(with_small_sizes(artifact.inputs, {}))
    except MirloError:
        raise
    except ValueError as error:
        raise ArtifactError(f"the file is damaged: {error}; compile the model again") from None
    for sizes, names in examples:
        size = D.substitute(total, sizes)
        if isinstance(size, int):
            yield ", ".join(f"{name} = {sizes[name]}" for name in names if name in sizes), size


def _arena_text(arena: int, plan: dict[str, int]) -> str:
    """Format the size of the arena and of the values that are live at one time."""
    if "bound" not in plan:
        return bytes_text(arena)
    bound = plan["bound"]
    over = f", {arena / bound - 1:.1%} above it" if bound else ""
    return (
        f"{bytes_text(arena)}; at the worst moment {bytes_text(bound)} are alive, which no plan goes below{over}; "
        f"{plan['in_place']} calls write over an input"
    )
