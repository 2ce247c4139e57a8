"""A model compiled for several kinds of processor: the build for the best one that this machine is runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mirlo.runtime import artifact as artifacts
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.program_file import artifact_row
from mirlo.runtime.specialized import read_builds
from mirlo.runtime.unloaded import UnloadedModel

LOADER = "fat"


class FatExecutable(Executable):
    """An `Executable` of one of several builds; `save` writes all of them."""

    def __init__(
        self, chosen: Artifact, store: ParameterStore, builds: Sequence[Artifact], device: int | None = None
    ) -> None:
        super().__init__(chosen, store, device)
        self.builds = tuple(builds)
        """The artifacts of all builds, those for the best processors last."""
        self._all = store

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all builds with their weights to a `.mirlo` file."""
        save_fat(path, self.builds, self._all)


class UnloadedFat(UnloadedModel):
    """A model of several builds of which none runs on this machine."""

    def __init__(self, builds: Sequence[Artifact], store: ParameterStore, reason: str) -> None:
        super().__init__(builds[-1], store, reason)
        self.builds = tuple(builds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all builds with their weights to a `.mirlo` file."""
        save_fat(path, self.builds, self._store)


def choose(builds: Sequence[Artifact], store: ParameterStore, device: int | None = None) -> FatExecutable:
    """Load the last build that runs on this machine."""
    reasons: list[str] = []
    for build in reversed(builds):
        try:
            return FatExecutable(build, store, builds, device)
        except NotForThisMachine as problem:
            reasons.append(str(problem))
    raise NotForThisMachine(f"none of the model's {len(builds)} builds is for this machine: {reasons[-1]}")


def save_fat(path: str | os.PathLike[str], builds: Sequence[Artifact], store: ParameterStore) -> None:
    """Write builds of a model, and the weights of all of them, to one file."""
    rows, code = [], []
    for build in builds:
        row, own = artifact_row(build)
        rows.append(row)
        code.append(own)
    names = {spec.name: spec for build in builds for spec in build.params}
    last = builds[-1]
    whole = Artifact(
        target=last.target, loader=LOADER, code=b"".join(code), entry="", inputs=last.inputs, outputs=last.outputs,
        params=tuple(names.values()), arena_bytes=max(build.arena_bytes for build in builds), threads=last.threads,
        kernels=last.kernels, metadata={"parts": rows},
    )  # fmt: skip
    artifacts.save(path, whole, store)


def fat_of(
    path: str | os.PathLike[str], artifact: Artifact, store: ParameterStore, device: int | None = None
) -> FatExecutable:
    """Return the model in a file that was read."""
    return choose(read_builds(path, artifact, store), store, device)
