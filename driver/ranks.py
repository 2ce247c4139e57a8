"""A model on several ranks: one compilation for each, or for the rank that this process is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.driver.options import CompileOptionError
from mirlo.driver.request import CompileFunction, CompileRequest
from mirlo.passes.options import split_list
from mirlo.runtime.ranks import rank_file, rank_place
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.unloaded import UnloadedModel

TRANSPORT = "collectives"
"""The code generator of what ranks exchange."""


@dataclass(frozen=True)
class RankedModel:
    """A model that was compiled for all ranks, in a process that is none of them."""

    executables: tuple[Executable | UnloadedModel, ...]
    """What each rank runs."""

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write a file for each rank, `model.rank0.mirlo` and so on; return their paths.

        `mirlo.load(path)` in a process that is a rank loads the file of that rank.
        """
        paths = [rank_file(path, rank) for rank in range(len(self.executables))]
        for executable, each in zip(self.executables, paths, strict=True):
            executable.save(each)
        return paths


def compile_ranks(
    request: CompileRequest, compile_request: CompileFunction
) -> Executable | UnloadedModel | RankedModel:
    """Compile a model for the rank that is asked for, or that this process is; else for all of them."""
    from mirlo.runtime.program import Program

    rank = _own_rank(request)
    results = []
    for each in range(request.ranks) if rank is None else [rank]:
        folder = None if request.save_ir is None else Path(request.save_ir) / f"rank{each}"
        result = compile_request(replace(request, rank=each, target=with_transport(request.target), save_ir=folder))
        if isinstance(result, Program):
            raise CompileOptionError("ranks: a model on sequences or strings has one rank: export the tensors' part")
        results.append(result)
    return results[0] if rank is not None else RankedModel(tuple(results))


def with_transport(target: str | Sequence[str]) -> str:
    """Return a list of targets in which a code generator exchanges what ranks send."""
    named = split_list(target) if isinstance(target, str) else [part for text in target for part in split_list(text)]
    has_transport = any(each.partition("{")[0].strip() == TRANSPORT for each in named)
    return ",".join(named if has_transport else [TRANSPORT, *named])


def rank_passes(ranks: int, rank: int, plan: Sequence[str]) -> str:
    """Return the pass that makes a model the part of one rank."""
    if ranks == 1:
        return ""
    from mirlo.passes.shard.shard import Shard  # most models have one rank

    return str(Shard(ranks, rank, tuple(plan)))


def _own_rank(request: CompileRequest) -> int | None:
    """Return the rank to compile for, None for all."""
    if request.rank is not None:
        if request.rank >= request.ranks:
            raise CompileOptionError(f"rank: expected 0 to {request.ranks - 1}, found {request.rank}")
        return request.rank
    place = rank_place()
    if place is None:
        return None
    if place.ranks != request.ranks:
        raise CompileOptionError(f"ranks: {place.ranks} ranks were started, found {request.ranks}")
    return place.rank
