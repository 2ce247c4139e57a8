"""The files of a model on several ranks, one per rank."""

from __future__ import annotations

import os
from pathlib import Path

from mirlo.extend.ranks import RankError, rank_place


def rank_file(path: str | os.PathLike[str], rank: int) -> Path:
    """Return the path of a rank's file of a model: `model.rank0.mirlo` for `model.mirlo`."""
    whole = Path(path)
    return whole.with_name(f"{whole.stem}.rank{rank}{whole.suffix}")


def own_file(path: str | os.PathLike[str]) -> Path | None:
    """Return the file of this process's rank if there are files for ranks, else None."""
    whole = Path(path)
    if not rank_file(whole, 0).exists():
        return None
    place = rank_place()
    if place is None:
        raise RankError(
            f"{whole}: there are files for ranks, such as {rank_file(whole, 0).name}: start one process for each with "
            "'mpirun' or 'torchrun', or name one file"
        )
    return rank_file(whole, place.rank)
