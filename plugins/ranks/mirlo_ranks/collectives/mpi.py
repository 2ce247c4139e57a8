"""The transport `mpi`: ranks of one or several machines, started by `mpirun`."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.ranks import RankError, RankPlace
from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_ranks.collectives.calls import rank_functions
from mirlo_ranks.collectives.program import RankExchange

if TYPE_CHECKING:
    from types import ModuleType


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return the functions of a region; MPI is initialized in the first call."""
    return rank_functions(artifact, MpiGroup)


_FAILURES: list[BaseException] = []
"""The reason why this rank cannot continue, if any."""


@contextmanager
def _recorded() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _FAILURES.append(error)
        raise


@cache
def _mpi() -> ModuleType:
    """Return the initialized MPI module; an unhandled error aborts all ranks, which would wait forever."""
    is_of_program = "mpi4py.MPI" in sys.modules
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise RankError(
            f"the ranks of this model exchange tensors by MPI, which cannot be loaded ({error}): "
            "pip install 'mirlo[mpi]', and install an MPI such as Debian's openmpi-bin"
        ) from None
    module: ModuleType = MPI

    def end() -> None:
        if _FAILURES or getattr(sys, "last_value", None) is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            module.COMM_WORLD.Abort(1)
        if not is_of_program and not module.Is_finalized():
            module.Finalize()  # a command ends its process before Python would call this

    atexit.register(end)
    return module


class MpiGroup:
    """A communicator used by one model."""

    def __init__(self, place: RankPlace, digest: str) -> None:
        with _recorded():
            self._join(place, digest)

    def _join(self, place: RankPlace, digest: str) -> None:
        world = _mpi().COMM_WORLD
        if (world.Get_rank(), world.Get_size()) != (place.rank, place.ranks):
            raise RankError(
                f"MPI reports rank {world.Get_rank()} of {world.Get_size()}, the environment rank {place.rank} of "
                f"{place.ranks}: start the ranks with 'mpirun -n {place.ranks}'"
            )
        self._rank = place.rank
        self._communicator = world.Dup()
        if set(self._communicator.allgather(digest)) != {digest}:
            raise RankError("the ranks run several models, or versions of one: compile it for all ranks again")

    def exchange(self, number: int, exchange: RankExchange, x: np.ndarray, out: np.ndarray) -> None:
        """Write the result of an exchange with all other ranks, whose sizes are compared first."""
        with _recorded():
            self._compare(number, exchange, x)
            arrays = np.empty((exchange.ranks, *x.shape), x.dtype)
            self._communicator.Allgather(_bytes(x), _bytes(arrays))
        exchange.combine(list(arrays), self._rank, out)

    def _compare(self, number: int, exchange: RankExchange, x: np.ndarray) -> None:
        own = np.array([number, x.nbytes], np.int64)
        all_of = np.empty((exchange.ranks, 2), np.int64)
        self._communicator.Allgather(own, all_of)
        if (all_of != own).any():
            sizes = ", ".join(f"rank {rank}: {size} bytes in {at}" for rank, (at, size) in enumerate(all_of.tolist()))
            raise RankError(f"{exchange.kind} of different operands ({sizes}): all ranks need inputs of one shape")

    def close(self) -> None:
        """Leave the group; MPI frees the communicator at its end, since freeing it waits for all ranks."""


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
