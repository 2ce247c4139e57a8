"""The regions of a compiled model: the target that computes each, the loader of its code, and its requirements.

The compiler writes them to the metadata of the artifact, so that saved models have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mirlo.runtime.names import terminal
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.artifact import Artifact

METADATA = "regions"
MAIN = "main"
"""The name of what no code generator took."""


@dataclass(frozen=True)
class RegionDescription:
    """A part of a compiled model that one target computes."""

    name: str
    """Its function in the module of a code generator, or `MAIN`."""
    target: str
    """The target with its options, as users write it."""
    loader: str
    operators: int | None = None
    share: float | None = None
    """Of the operations of the model, 0 to 1; None if a dim is dynamic."""
    needs: tuple[str, ...] = ()
    """What must be there to run it: instructions, libraries, drivers, memory of a device."""

    def to_json(self) -> dict[str, object]:
        """Return the known fields for a file of JSON."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {**known, "needs": list(self.needs)}


def described_regions(artifact: Artifact) -> tuple[RegionDescription, ...]:
    """Return the regions of a compiled model, the largest share first; of older files without shares and needs."""
    rows: Sequence[Mapping[str, Any]] | None = artifact.metadata.get(METADATA)
    if rows is not None:
        return tuple(region_of_row(row) for row in rows)
    main = RegionDescription(MAIN, artifact.target, artifact.loader)
    others = [
        RegionDescription(function, external.target, external.format)
        for external in artifact.externals
        for function in external.functions
    ]
    return (*others, main)


def region_of_row(row: Mapping[str, Any]) -> RegionDescription:
    """Return the description that `to_json` wrote."""
    return RegionDescription(
        row["name"], row["target"], row["loader"], row.get("operators"), row.get("share"), tuple(row["needs"])
    )


def region_rows(regions: Sequence[RegionDescription]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table, the titles first."""
    yield "regions:", "target", "operators", "share", "loader", "needs"
    for region in regions:
        count = "?" if region.operators is None else str(region.operators)
        share = "?" if region.share is None else f"{100 * region.share:.1f} %"
        yield (
            f"  {terminal(region.name)}", terminal(region.target), count, share, terminal(region.loader) or "-",
            terminal("; ".join(region.needs)) or "-",
        )  # fmt: skip
