"""Regions of collectives as functions on numpy arrays, over a group of ranks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Protocol

import numpy as np

from mirlo.extend.ranks import RankError, RankPlace, require_place
from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, make_lock
from mirlo_ranks.collectives.program import RankExchange, RankProgram, read_programs


class RankGroup(Protocol):
    """The interface of transports: exchanges of tensors between ranks."""

    def exchange(self, number: int, exchange: RankExchange, x: np.ndarray, out: np.ndarray) -> None:
        """Write the result of this rank; all ranks make equal calls, with equal `number`, in the same order."""

    def close(self) -> None:
        """Leave the group: other ranks that wait for this one get an error."""


JoinGroup = Callable[[RankPlace, str], RankGroup]
"""Joins the group of ranks; ranks of one model have the same digest of exchanges."""


class RankFunctions:
    """The functions of a model's regions; the first call joins the group, so that loading needs no other rank."""

    def __init__(self, programs: dict[str, RankProgram], digest: str, join: JoinGroup) -> None:
        self._programs, self._digest, self._join = programs, digest, join
        self._group: RankGroup | None = None
        self._is_closed = False
        self._lock = make_lock()
        self._numbers: dict[str, int] = {}
        for name in programs:
            self._numbers[name] = sum(len(programs[other].exchanges) for other in self._numbers)

    def function(self, name: str) -> Callable[..., None]:
        """Return the function of a region: it takes the inputs, then the outputs, which it writes."""
        program, first = self._programs[name], self._numbers[name]

        def call(*tensors: np.ndarray) -> None:
            ranks = program.exchanges[0].ranks
            with self._lock:
                place = require_place(ranks)

                def exchange(number: int, step: RankExchange, x: np.ndarray, out: np.ndarray) -> None:
                    self._joined(place).exchange(first + number, step, x, out)

                program.run(tensors, place.rank, exchange)

        return call

    def close(self) -> None:
        """Leave the group."""
        self._is_closed = True
        if self._group is not None:
            self._group.close()

    def _joined(self, place: RankPlace) -> RankGroup:
        if self._is_closed:
            raise RankError("the model was released")
        if self._group is None:
            self._group = self._join(place, self._digest)
        return self._group


def rank_functions(artifact: ExternalArtifact, join: JoinGroup) -> ExternalFunctions:
    """Return the functions of an artifact over a transport."""
    programs = read_programs(artifact.metadata, artifact.functions)
    text = json.dumps({name: program.to_json() for name, program in programs.items()}, sort_keys=True)
    functions = RankFunctions(programs, hashlib.sha256(text.encode()).hexdigest(), join)
    by_name = {name: functions.function(name) for name in programs}
    return ExternalFunctions(by_name, keep=functions, release=functions.close)
