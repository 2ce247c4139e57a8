"""Compilation of a model for several ranks: for each of them, or for the rank of this process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.extend.compilation import CompileFunction, CompileRequest, CompileStrategy, split_list
from mirlo.extend.options import CompileOptionError
from mirlo.extend.ranks import rank_place
from mirlo.extend.runtime import Program
from mirlo_ranks.files import rank_file
from mirlo_ranks.options import RankOptions
from mirlo_ranks.shard.shard import Shard

if TYPE_CHECKING:
    from mirlo.extend.runtime import Executable, UnloadedModel

TRANSPORT = "collectives"
"""The code generator for exchanges between ranks."""


@dataclass(frozen=True)
class RankedModel:
    """A model compiled for all ranks, in a process that belongs to none of them."""

    executables: tuple[Executable | UnloadedModel, ...]
    """The compiled model of each rank."""

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write a file for each rank, `model.rank0.mirlo` and so on; return their paths.

        `mirlo.load(path)` in a rank's process loads the file of that rank.
        """
        paths = [rank_file(path, rank) for rank in range(len(self.executables))]
        for executable, each in zip(self.executables, paths, strict=True):
            executable.save(each)
        return paths


class RankStrategy(CompileStrategy[RankOptions]):
    """Compiles a model for the requested rank, or for this process's; without one, for all ranks."""

    options_type = RankOptions

    def target(self, target: str | Sequence[str]) -> str:
        """Return a list of targets with a code generator that exchanges tensors between ranks."""
        return with_transport(target)

    def compile(
        self, request: CompileRequest, compile_request: CompileFunction
    ) -> Executable | UnloadedModel | RankedModel:
        """Compile the model for one rank, or for all."""
        rank = self._own_rank()
        results = []
        for each in range(self.options.ranks) if rank is None else [rank]:
            folder = None if request.save_ir is None else Path(request.save_ir) / f"rank{each}"
            of_rank: dict[str, Any] = {"rank": each}
            result = compile_request(replace(request, save_ir=folder, **of_rank))
            if isinstance(result, Program):
                raise CompileOptionError(
                    "ranks: a model on sequences or strings has one rank: export the tensors' part"
                )
            results.append(result)
        return results[0] if rank is not None else RankedModel(tuple(results))

    def first_passes(self) -> str:
        """Return the passes that run first by default: `shard` divides experts one by one, without a loop."""
        return f"unroll-loops,{Shard(self.options.ranks, self.options.rank or 0, tuple(self.options.rank_plan))}"

    def metadata(self) -> Mapping[str, object]:
        """Return the rank and the number of ranks."""
        return {"ranks": self.options.ranks, "rank": self.options.rank or 0}

    def save(
        self, compiled: Executable | UnloadedModel | RankedModel, path: Path
    ) -> list[tuple[Path, Executable | UnloadedModel]]:
        """Write a file for each rank, or that of the rank that was compiled."""
        if isinstance(compiled, RankedModel):
            return list(zip(compiled.save(path), compiled.executables, strict=True))
        own = rank_file(path, compiled.artifact.metadata["rank"])
        compiled.save(own)
        return [(own, compiled)]

    def _own_rank(self) -> int | None:
        """Return the rank to compile for, None for all."""
        ranks, rank = self.options.ranks, self.options.rank
        if rank is not None:
            if rank >= ranks:
                raise CompileOptionError(f"rank: expected 0 to {ranks - 1}, found {rank}")
            return rank
        place = rank_place()
        if place is None:
            return None
        if place.ranks != ranks:
            raise CompileOptionError(f"ranks: {place.ranks} ranks were started, found {ranks}")
        return place.rank


def with_transport(target: str | Sequence[str]) -> str:
    """Return a list of targets with a code generator that exchanges tensors between ranks."""
    named = split_list(target) if isinstance(target, str) else [part for text in target for part in split_list(text)]
    has_transport = any(each.partition("{")[0].strip() == TRANSPORT for each in named)
    return ",".join(named if has_transport else [TRANSPORT, *named])
