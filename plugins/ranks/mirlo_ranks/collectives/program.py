"""Exchanges of a region between named tensors, as an artifact stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from mirlo.extend.runtime import ArtifactError

AXES = {
    "all_reduce": 0,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 2,
    "collective_permute": 0,
    "rank_id": 0,
}
"""The kinds of exchanges, with their numbers of axes."""
COMBINATIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
"""Functions that combine two arrays, by `reduction`."""
_LIMIT = 1 << 16
"""Exclusive bound of ranks and axes in a file."""


@dataclass(frozen=True)
class RankExchange:
    """One collective."""

    kind: str
    x: str
    """The name of the operand; empty for the rank's own number."""
    y: str
    ranks: int
    axes: tuple[int, ...]
    dtype: str
    """The element type, the same on all ranks."""
    groups: tuple[tuple[int, ...], ...]
    """The ranks of each group; of `collective_permute`, each source and target."""
    reduction: str = "add"

    def result_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result."""
        result, size = list(shape), len(self.groups[0]) if self.groups else 1
        if self.kind == "all_gather":
            result[self.axes[0]] *= size
        elif self.kind in ("reduce_scatter", "all_to_all"):
            result[self.axes[0]] //= size
        if self.kind == "all_to_all":
            result[self.axes[1]] *= size
        return tuple(result)

    def combine(self, arrays: list[np.ndarray], rank: int, out: np.ndarray) -> None:
        """Write the result of a rank from the operands of its group, in order."""
        if self.kind == "collective_permute":
            source = next((source for source, target in self.groups if target == rank), None)
            out[...] = 0 if source is None else arrays[source]
            return
        group = next(group for group in self.groups if rank in group)
        own, place = [arrays[each] for each in group], group.index(rank)
        if self.kind == "all_gather":
            np.concatenate(own, self.axes[0], out=out)
        elif self.kind == "all_to_all":
            parts = [np.split(each, len(own), self.axes[0])[place] for each in own]
            np.concatenate(parts, self.axes[1], out=out)
        elif self.kind == "reduce_scatter":
            combine_ranks([np.split(each, len(own), self.axes[0])[place] for each in own], out, self.reduction)
        else:
            combine_ranks(own, out, self.reduction)


@dataclass(frozen=True)
class RankProgram:
    """The exchanges of a region, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    exchanges: tuple[RankExchange, ...]

    def run(
        self,
        tensors: Sequence[np.ndarray],
        rank: int,
        exchange: Callable[[int, RankExchange, np.ndarray, np.ndarray], None],
    ) -> None:
        """Write the outputs, which follow the inputs; `exchange` takes the number of a step, its operand and result."""
        values = dict(zip(self.inputs, tensors, strict=False))
        outputs = dict(zip(self.outputs, tensors[len(self.inputs) :], strict=True))
        for number, step in enumerate(self.exchanges):
            out = outputs.get(step.y)
            if step.kind == "rank_id":
                values[step.y] = np.empty((), np.uint32) if out is None else out
                values[step.y][...] = rank
                continue
            x = values[step.x]
            values[step.y] = np.empty(step.result_shape(x.shape), x.dtype) if out is None else out
            exchange(number, step, x, values[step.y])

    def to_json(self) -> dict[str, object]:
        """Return the program as JSON values."""
        steps = [
            [s.kind, s.x, s.y, s.ranks, list(s.axes), s.dtype, list(map(list, s.groups)), s.reduction]
            for s in self.exchanges
        ]
        return {"inputs": list(self.inputs), "outputs": list(self.outputs), "exchanges": steps}


def read_programs(metadata: Mapping[str, object], functions: tuple[str, ...]) -> dict[str, RankProgram]:
    """Return the programs in an artifact's metadata, after validating them."""
    programs = metadata.get("programs")
    if not isinstance(programs, dict):
        raise ArtifactError("the exchanges of the model are not listed: expected 'programs'; compile it again")
    return {name: _read_program(name, programs.get(name)) for name in functions}


def _read_program(name: str, content: object) -> RankProgram:
    values = [content.get(key) for key in ("inputs", "outputs", "exchanges")] if isinstance(content, dict) else []
    if len(values) == 3 and _is_texts(values[0]) and _is_texts(values[1]) and isinstance(values[2], list):
        exchanges = [_read_exchange(each) for each in values[2]]
        known = {*values[0], *(each.y for each in exchanges if each is not None)}
        steps = [each for each in exchanges if each is not None and (each.x in known or each.kind == "rank_id")]
        if steps and len(steps) == len(exchanges) and set(values[1]) <= known:
            return RankProgram(tuple(values[0]), tuple(values[1]), tuple(steps))
    raise ArtifactError(f"the exchanges of region {name!a:.60} are not those of Mirlo: compile the model again")


def _read_exchange(content: object) -> RankExchange | None:
    if not isinstance(content, list) or len(content) != 8:
        return None
    kind, x, y, ranks, axes, dtype, groups, reduction = content
    is_known = isinstance(kind, str) and isinstance(axes, list) and AXES.get(kind) == len(axes)
    if not is_known or not _is_texts([x, y, dtype, reduction]) or reduction not in COMBINATIONS:
        return None
    if not _are_numbers([ranks, *axes], _LIMIT) or not isinstance(groups, list):
        return None
    if not all(isinstance(group, list) and _are_numbers(group, ranks) for group in groups):
        return None
    rows = tuple(map(tuple, groups))
    if not _are_groups(kind, rows, ranks):
        return None
    return RankExchange(kind, x, y, ranks, tuple(axes), dtype, rows, reduction)


def _are_groups(kind: str, groups: tuple[tuple[int, ...], ...], ranks: int) -> bool:
    """Return whether each rank is in exactly one group, or each pair has a distinct target."""
    if kind == "collective_permute":
        return all(len(pair) == 2 for pair in groups) and len({pair[1] for pair in groups}) == len(groups)
    if kind == "rank_id":
        return not groups
    has_one_size = kind == "all_reduce" or len(set(map(len, groups))) == 1
    return has_one_size and sorted(rank for group in groups for rank in group) == list(range(ranks))


def _are_numbers(values: list[object], limit: int) -> bool:
    return all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < limit for each in values)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def combine_ranks(arrays: list[np.ndarray], out: np.ndarray, reduction: str) -> None:
    """Combine arrays in rank order, so that the result has the same bits on all ranks."""
    combination = COMBINATIONS[reduction]
    is_narrow = out.dtype.kind not in "biu" and out.dtype.itemsize < 4
    if not is_narrow:
        np.copyto(out, arrays[0])
        for each in arrays[1:]:
            combination(out, each, out=out)
        return
    total = arrays[0].astype(np.float32)
    for each in arrays[1:]:
        combination(total, each.astype(np.float32), out=total)
    out[...] = total.astype(out.dtype)
