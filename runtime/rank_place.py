"""The rank of this process among those that run a model together, as its launcher set it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mirlo.runtime.errors import MirloError
from mirlo.runtime.options import MOST_RANKS
from mirlo.runtime.records import dataclass

STARTERS = (
    ("MIRLO_RANK", "MIRLO_RANKS", "MIRLO_LOCAL_RANKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
)
"""Variables with the rank, the number of ranks, and those on this machine: by hand, of Open MPI, MPICH, torchrun."""
JOBS = ("MIRLO_JOB", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "TORCHELASTIC_RUN_ID", "MASTER_PORT")
"""Variables that distinguish runs of one user on a machine."""
TIMEOUT, HEARTBEAT = "MIRLO_RANKS_TIMEOUT", "MIRLO_RANKS_HEARTBEAT"
"""Variables: the most seconds that a rank waits for another, and those after which a process that shows no sign of life
is taken for stopped."""
TIMEOUT_SECONDS = 600.0
"""The first by default: as long as compiling a model may take."""
HEARTBEAT_SECONDS = 10.0
"""The second by default: a process counts four times a second while it runs, also on a machine with many others."""


class RankError(MirloError, RuntimeError):
    """Ranks that do not start, do not fit each other, or have ended."""

    error_code = "MIR0113"
    remedy = "Start as many ranks as the model was divided for, and see what the others report."


@dataclass(frozen=True)
class RankPlace:
    """The rank of this process."""

    rank: int
    ranks: int
    local_ranks: int
    """How many of the ranks are on this machine."""
    job: str
    """What all ranks of a run have in common."""


def rank_place(environment: Mapping[str, str] | None = None) -> RankPlace | None:
    """Return the rank of this process; None if it was started alone."""
    variables = os.environ if environment is None else environment
    for rank_name, ranks_name, local_name in STARTERS:
        if rank_name not in variables or ranks_name not in variables:
            continue
        ranks = _number(variables, ranks_name, 1, MOST_RANKS)
        rank = _number(variables, rank_name, 0, ranks - 1)
        local = _number(variables, local_name, 1, ranks) if local_name in variables else ranks
        job = "/".join(variables[name] for name in JOBS if name in variables)
        return RankPlace(rank, ranks, local, job)
    return None


def require_place(ranks: int, rank: int | None = None) -> RankPlace:
    """Return the rank of this process; raise an error unless it, and the number of ranks, are as expected."""
    place = rank_place()
    if place is None:
        raise RankError(
            f"the model is for {ranks} ranks: start one process for each, with 'mpirun -n {ranks}', 'torchrun "
            f"--nproc-per-node {ranks}', or RANK and WORLD_SIZE={ranks} in its environment"
        )
    if place.ranks != ranks:
        raise RankError(f"the model is for {ranks} ranks, but {place.ranks} were started: start {ranks}")
    if rank is not None and place.rank != rank:
        raise RankError(f"this part of the model is for rank {rank}, but the process is rank {place.rank}")
    return place


def timeout_seconds() -> float:
    """Return the most seconds that a rank waits for another."""
    return _seconds(TIMEOUT, TIMEOUT_SECONDS, 0.001)


def heartbeat_seconds() -> float:
    """Return the seconds without a heartbeat after which a rank's process counts as stopped."""
    return _seconds(HEARTBEAT, HEARTBEAT_SECONDS, 1.0)


def stopped_error(rank: int, seconds: float, consequence: str) -> RankError:
    """Return the error for a rank whose process has no heartbeat any more."""
    return RankError(
        f"rank {rank} has shown no sign of life for {seconds:g} s ({HEARTBEAT}), as its process is stopped by a signal "
        f"or a debugger: {consequence}"
    )


def _seconds(name: str, default: float, least: float) -> float:
    text = os.environ.get(name, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = 0.0
    if not least <= seconds < 1e9:
        raise RankError(f"{name}: expected a number of seconds from {least:g}, found {text!a:.40}")
    return seconds


def _number(variables: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = variables[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise RankError(f"{name}: expected a number from {least} to {most}, found {variables[name]!a:.40}")
    return int(text)
