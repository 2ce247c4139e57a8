"""What a region of collectives does: exchanges between named tensors, as an artifact holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from mirlo.runtime.errors import ArtifactError

AXES = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 2}
"""The kinds of exchanges, and how many axes each has."""


@dataclass(frozen=True)
class RankExchange:
    """One collective operator."""

    kind: str
    x: str
    y: str
    ranks: int
    axes: tuple[int, ...]
    dtype: str
    """The element type, of which all ranks must have the same."""

    def result_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result."""
        result = list(shape)
        if self.kind == "all_gather":
            result[self.axes[0]] *= self.ranks
        elif self.kind != "all_reduce":
            result[self.axes[0]] //= self.ranks
        if self.kind == "all_to_all":
            result[self.axes[1]] *= self.ranks
        return tuple(result)

    def combine(self, arrays: list[np.ndarray], rank: int, out: np.ndarray) -> None:
        """Write the result of a rank from the operands of all ranks, in the order of the ranks."""
        if self.kind == "all_gather":
            np.concatenate(arrays, self.axes[0], out=out)
        elif self.kind == "all_to_all":
            parts = [np.split(each, self.ranks, self.axes[0])[rank] for each in arrays]
            np.concatenate(parts, self.axes[1], out=out)
        elif self.kind == "reduce_scatter":
            add_ranks([np.split(each, self.ranks, self.axes[0])[rank] for each in arrays], out)
        else:
            add_ranks(arrays, out)


@dataclass(frozen=True)
class RankProgram:
    """The exchanges of a region, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    exchanges: tuple[RankExchange, ...]

    def to_json(self) -> dict[str, object]:
        """Return JSON values."""
        steps = [[s.kind, s.x, s.y, s.ranks, list(s.axes), s.dtype] for s in self.exchanges]
        return {"inputs": list(self.inputs), "outputs": list(self.outputs), "exchanges": steps}


def read_programs(metadata: Mapping[str, object], functions: tuple[str, ...]) -> dict[str, RankProgram]:
    """Return the programs in an artifact's metadata, checked: they come from a file."""
    programs = metadata.get("programs")
    if not isinstance(programs, dict):
        raise ArtifactError("the exchanges of the model are not listed: expected 'programs'; compile it again")
    return {name: _read_program(name, programs.get(name)) for name in functions}


def _read_program(name: str, content: object) -> RankProgram:
    values = [content.get(key) for key in ("inputs", "outputs", "exchanges")] if isinstance(content, dict) else []
    if len(values) == 3 and _is_texts(values[0]) and _is_texts(values[1]) and isinstance(values[2], list):
        exchanges = [_read_exchange(each) for each in values[2]]
        known = {*values[0], *(each.y for each in exchanges if each is not None)}
        steps = [each for each in exchanges if each is not None and each.x in known]
        if steps and len(steps) == len(exchanges) and set(values[1]) <= known:
            return RankProgram(tuple(values[0]), tuple(values[1]), tuple(steps))
    raise ArtifactError(f"the exchanges of region {name!a:.60} are not those of Mirlo: compile the model again")


def _read_exchange(content: object) -> RankExchange | None:
    if not isinstance(content, list) or len(content) != 6:
        return None
    kind, x, y, ranks, axes, dtype = content
    is_known = isinstance(kind, str) and isinstance(axes, list) and AXES.get(kind) == len(axes)
    numbers = [ranks, *axes] if is_known else [None]
    if not _is_texts([x, y, dtype]) or not all(isinstance(each, int) and 0 <= each < 1 << 16 for each in numbers):
        return None
    return RankExchange(kind, x, y, ranks, tuple(axes), dtype)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def add_ranks(arrays: list[np.ndarray], out: np.ndarray) -> None:
    """Write a sum in the order of the arrays, so that it has the same bits on all ranks."""
    is_narrow = out.dtype.kind not in "biu" and out.dtype.itemsize < 4
    if not is_narrow:
        np.copyto(out, arrays[0])
        for each in arrays[1:]:
            np.add(out, each, out=out)
        return
    total = arrays[0].astype(np.float32)
    for each in arrays[1:]:
        total += each.astype(np.float32)
    out[...] = total.astype(out.dtype)
