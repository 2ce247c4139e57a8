"""Decoding of a host program's commands to steps with concrete numbers, which loaders execute.

Imports nothing of the compiler. Each site of a program gives one kind of step:

| site | words | step |
| --- | --- | --- |
| `kernel`, `block`, `arguments`, `writes`, `row` | grid; offset and size of ranges and maps, scalars | with `grid` |
| `copy`, `row` | offset and size of both ranges | `copy`: source and target |
| `read`, `bytes` | offset | `read`: a range, whose bytes are the answer |
| `write`, `bytes` | offset, value | `write`: a range, `value`: bytes |
| `allocate` | number, bytes | memory of the space `late`; `number` is that of an output, or -1 |
| `grow` | bytes | the same, only if there are fewer bytes than that |
| `call`, `types`, `arguments`, `outputs`, `row` | offset and size of each range, all dims | `types` with shapes |

`call` calls a packed function. A range is `[space, index, offset, size]`; a size of -1 extends to the end of its space.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypedDict

from mirlo.runtime.errors import ArtifactError

RangeHome = tuple[str, int]
"""The space of a range, and the number in it: a list in an artifact, as all tuples of a site are."""
StepRange = tuple[str, int, int, int]
"""A range with its offset and size."""


class MapSite(TypedDict):
    """A tensor map of a site, without its place in memory."""

    map: RangeHome
    dims: list[int]
    strides: list[int]
    box: list[int]
    format: str


class MapArgument(TypedDict):
    """A tensor map of a launch; its format is described in `targets/gpu/program.py`."""

    map: StepRange
    dims: list[int]
    strides: list[int]
    box: list[int]
    format: str


class Site(TypedDict, total=False):
    """A place of the host program that emits a command, as the table above describes."""

    kernel: str
    block: list[int]
    arguments: Sequence[RangeHome | MapSite | str]
    writes: list[int]
    row: int
    copy: tuple[RangeHome, RangeHome]
    read: RangeHome
    write: RangeHome
    bytes: int
    allocate: int
    grow: int
    call: str
    types: list[tuple[str, int]]
    outputs: int


Argument = StepRange | MapArgument | int


class Step(TypedDict, total=False):
    """A step with concrete numbers."""

    kernel: str
    block: list[int]
    grid: list[int]
    arguments: list[Argument]
    writes: list[int]
    row: int
    copy: tuple[StepRange, StepRange]
    read: StepRange
    write: StepRange
    value: bytes
    bytes: int
    allocate: int
    number: int
    grow: int
    call: str
    ranges: list[StepRange]
    types: list[tuple[str, list[int]]]
    outputs: int


def count_words(site: Site) -> int:
    """Return how many words a command of a site has, without the number of the site."""
    if "kernel" in site:
        return 3 + sum(1 if isinstance(argument, str) else 2 for argument in site["arguments"])
    if "copy" in site:
        return 4
    if "call" in site:
        return 2 * len(site["arguments"]) + sum(rank for _, rank in site["types"])
    if "write" in site or "allocate" in site:
        return 2
    if "read" in site or "grow" in site:
        return 1
    raise ArtifactError("the model's host program has a site of an unknown kind: compile it again")


def longest(sites: Sequence[Site]) -> int:
    """Return the words of the longest command."""
    return 1 + max(map(count_words, sites), default=0)


def is_straight(sites: Sequence[Site], on_device: Collection[str]) -> bool:
    """Return whether no step reads data back; functions in `on_device` take tensors in place."""
    return all("kernel" in site or "copy" in site or site.get("call") in on_device for site in sites)


def launch_sites(sites: Sequence[Site]) -> Iterator[Site]:
    """Yield all launches of a program."""
    return (site for site in sites if "kernel" in site)


class CommandReader:
    """Reads the commands of a program's sites."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = [(site, count_words(site)) for site in sites]

    def static_steps(self, commands: Sequence[Sequence[int]]) -> list[Step]:
        """Return the steps of commands that are part of an artifact."""
        for site, *words in commands:
            if not 0 <= site < len(self._sites) or len(words) != self._sites[site][1]:
                raise ArtifactError("the model's host program has a command that fits no site: compile it again")
        return self.steps([word for command in commands for word in command])

    def steps(self, words: Sequence[int]) -> list[Step]:
        """Return the steps that words encode, without those that do nothing."""
        decoded, at = [], 0
        while at < len(words):
            site, count = self._sites[words[at]]
            step = _step(site, words[at + 1 : at + 1 + count])
            if step is not None:
                decoded.append(step)
            at += 1 + count
        return decoded


def _step(site: Site, words: Sequence[int]) -> Step | None:
    if "kernel" in site:
        return _launch(site, words)
    if "copy" in site:
        (source, target), (at, size, to, room) = site["copy"], words
        return Step(row=site["row"], copy=((*source, at, size), (*target, to, room))) if size > 0 else None
    if "read" in site:
        return Step(read=(*site["read"], words[0], site["bytes"]))
    if "write" in site:
        data = (words[1] & (1 << 64) - 1).to_bytes(8, "little")[: site["bytes"]]
        return Step(write=(*site["write"], words[0], site["bytes"]), value=data)
    if "allocate" in site:
        return Step(allocate=site["allocate"], number=words[0], bytes=words[1])
    if "grow" in site:
        return Step(grow=site["grow"], bytes=words[0])
    return _call(site, words)


def _launch(site: Site, words: Sequence[int]) -> Step | None:
    grid = words[:3]
    if 0 in grid:
        return None  # nothing to compute
    at = 3
    arguments: list[Argument] = []
    for argument in site["arguments"]:
        if isinstance(argument, str):
            arguments.append(words[at])
            at += 1
            continue
        if isinstance(argument, dict):
            where = (*argument["map"], words[at], words[at + 1])
            arguments.append(MapArgument(
                map=where, dims=argument["dims"], strides=argument["strides"], box=argument["box"],
                format=argument["format"],
            ))  # fmt: skip
        else:
            arguments.append((*argument, words[at], words[at + 1]))
        at += 2
    return Step(
        kernel=site["kernel"], block=site["block"], writes=site["writes"], row=site["row"], grid=list(grid),
        arguments=arguments,
    )  # fmt: skip


def _call(site: Site, words: Sequence[int]) -> Step:
    homes = [argument for argument in site["arguments"] if isinstance(argument, (list, tuple))]
    ranges: list[StepRange] = [(*home, words[2 * i], words[2 * i + 1]) for i, home in enumerate(homes)]
    types, at = [], 2 * len(homes)
    for dtype, rank in site["types"]:
        types.append((dtype, list(words[at : at + rank])))
        at += rank
    return Step(call=site["call"], row=site["row"], outputs=site["outputs"], ranges=ranges, types=types)
