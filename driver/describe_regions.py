"""The description of a model's regions, from the records of a compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.passes.byoc.records import Placement, RegionRecord
from mirlo.passes.byoc.target_list import Chosen, Targets
from mirlo.passes.targets import find_target, loader_of
from mirlo.runtime.regions import MAIN, RegionDescription

if TYPE_CHECKING:
    from mirlo.runtime.external import ExternalArtifact


def describe_regions(
    targets: Targets,
    notes: Iterable[object],
    operators: int,
    loader: str = "",
    externals: Sequence[ExternalArtifact] = (),
    device_bytes: int = 0,
) -> tuple[RegionDescription, ...]:
    """Return the regions of each target, the largest first, then those of the host.

    `operators` are those of the model where nothing was placed. Without artifacts, loaders are those that the
    targets declare.
    """
    host = targets.or_host().host
    assert host is not None
    loader = loader or loader_of(host.name)
    placements = [note for note in notes if isinstance(note, Placement)]
    kept = [region for placement in placements for region in placement.regions if region.kept]
    whole = _sum(node.flops for node in placements[0].nodes) if placements else None
    chosen = {target.name: target for target in targets.generators}
    formats = {external.target: external.format for external in externals}
    described = [
        _region(record, chosen.get(record.target, Chosen(record.target)), formats, loader, whole) for record in kept
    ]
    described.sort(key=lambda region: -(region.share or 0.0))
    if placements:
        operators = len(placements[0].nodes) - sum(len(region.nodes) for region in placements[0].regions if region.kept)
    taken = _sum(region.flops for region in kept)
    share = 1.0 if not kept else None if whole is None or taken is None else _share(whole - taken, whole)
    needs = [*_needs_of_host(host), *([f"{_size(device_bytes)} of its memory for a call"] if device_bytes else [])]
    return (*described, RegionDescription(MAIN, str(host), loader, operators, share, tuple(needs)))


def count_operators(module: ir.Module) -> int:
    """Return the number of operators of a model, constants and views of values not included."""
    count = 0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal count
        count += op.name.startswith("relax.") and op.name != "relax.constant"
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    return count


def _region(
    record: RegionRecord, target: Chosen, formats: Mapping[str, str], host_loader: str, whole: int | None
) -> RegionDescription:
    generator = target.generator
    share = None if whole is None or record.flops is None else _share(record.flops, whole)
    # A generator without artifacts leaves its code to the host's loader, and names the one of the library it calls.
    declared = generator.format if generator.makes_artifacts else generator.driver or host_loader
    loader = formats.get(record.target, declared)
    needs = tuple(generator.requirements())
    return RegionDescription(record.function, str(target), loader, len(record.nodes), share, needs)


def _needs_of_host(host: Chosen) -> Sequence[str]:
    return find_target(host.name).requirements(host.options)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
