"""Loops found in a list of commands: program size that does not grow with the shape.

A planned list has its signals, and commands that a unit does not need are left out, so its loops are not those of a
schedule any more. `roll_commands` finds them again: consecutive groups of commands that are equal but for one number
each, which advances by the same step from group to group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from mirlo.runtime.callbacks import Expected, checked
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

Item = TypeVar("Item")
Key = tuple[Hashable, int | None]
_KEY = Expected(
    "a tuple of what is equal in each iteration, and the number that advances or None",
    lambda value: (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], Hashable)
        and (value[1] is None or (isinstance(value[1], int) and not isinstance(value[1], bool)))
    ),
)
PERIOD, WORK = 64, 500_000
"""The longest group that is looked for in any list, and for shorter lists how many comparisons a pass may take."""


@dataclass(frozen=True)
class RolledCommand(Generic[Item]):
    """A command of the first iteration of its loops, and by how much its number advances in each of them.

    The steps are those of the enclosing loops, the outermost first.
    """

    item: Item
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class RolledLoop(Generic[Item]):
    """A loop of commands and of other loops."""

    count: int
    body: tuple[RolledCommand[Item] | RolledLoop[Item], ...]


@dataclass(frozen=True)
class _Node(Generic[Item]):
    """A command, or a loop of nodes, in the list that is searched."""

    key: Hashable
    """What the node must have in common with that of another iteration."""
    numbers: tuple[int, ...]
    size: int
    """How many commands it is in the program."""
    item: Item | None = None
    count: int = 0
    body: tuple[_Node[Item], ...] = ()
    steps: tuple[int, ...] = ()
    """By how much each number of the body advances in an iteration."""
    depth: int = 0
    """How many loops are nested in it, with its own."""
    kinds: tuple[Hashable, ...] = ()
    """For each number the key of its command."""


def roll_commands(
    items: Iterable[Item],
    split: Callable[[Item], Key],
    least: int = 16,
    most_steps: int = 16,
    most_depth: int = 8,
) -> list[RolledCommand[Item] | RolledLoop[Item]]:
    """Return commands in program order with their loops.

    `split` returns what must be equal in each iteration, and the number that may advance, or None. A loop saves at
    least `least` commands of the program; the numbers in a nest of loops advance in at most `most_steps` different
    ways, as each takes a register; at most `most_depth` loops are nested.
    """
    split = checked(split, _KEY, "roll_commands", MirloError)

    def allows(loop: _Node[Item]) -> bool:
        saved = (loop.count - 1) * sum(node.size for node in loop.body)
        advancing = {steps for steps in _all_steps(loop) if any(steps)}
        # Any two groups advance by some steps: those of a loop do so alike.
        is_loop = loop.count > 2 or len({*loop.kinds}) == len({*zip(loop.kinds, loop.steps, strict=True)})
        return is_loop and saved >= least and loop.depth <= most_depth and len(advancing) <= most_steps

    nodes = [
        _Node((key, False), (), 1, item) if number is None else _Node((key, True), (number,), 1, item, kinds=(key,))
        for item, (key, number) in ((item, split(item)) for item in items)
    ]
    period = 1
    while period <= max(PERIOD, WORK // max(1, len(nodes))):  # inner loops first
        shorter = _pass(nodes, period, allows)
        period = 1 if len(shorter) < len(nodes) else 2 * period
        nodes = shorter
    return [_tree(node, [()] * len(node.numbers)) for node in nodes]


def _pass(nodes: Sequence[_Node[Item]], period: int, allows: Callable[[_Node[Item]], bool]) -> list[_Node[Item]]:
    """Return the list with loops in place of the groups of at most `period` nodes that repeat."""
    numbers: dict[Hashable, int] = {}
    keys = [numbers.setdefault(node.key, len(numbers)) for node in nodes]
    rolled, at = list[_Node[Item]](), 0
    while at < len(nodes):
        loop, length = None, 1
        for size in range(1, min(period, (len(nodes) - at) // 2) + 1):
            if keys[at] == keys[at + size] and keys[at : at + size] == keys[at + size : at + 2 * size]:
                candidate = _loop(nodes, keys, at, size)
                if allows(candidate):
                    loop, length = candidate, candidate.count * size
                    break
        rolled.append(loop or nodes[at])
        at += length
    return rolled


def _loop(nodes: Sequence[_Node[Item]], keys: Sequence[int], at: int, size: int) -> _Node[Item]:
    """Return the loop of the groups of a size from a position on."""

    def numbers(first: int) -> list[int]:
        return [number for node in nodes[first : first + size] for number in node.numbers]

    begin, second = numbers(at), numbers(at + size)
    steps, count = tuple(after - before for before, after in zip(begin, second, strict=True)), 2
    while keys[at : at + size] == keys[(first := at + count * size) : first + size]:
        if numbers(first) != [number + count * step for number, step in zip(begin, steps, strict=True)]:
            break
        count += 1
    body = tuple(nodes[at : at + size])
    key = ("loop", count, tuple(node.key for node in body), steps)
    depth = 1 + max(node.depth for node in body)
    kinds = tuple(kind for node in body for kind in node.kinds)
    return _Node(key, tuple(begin), sum(node.size for node in body), None, count, body, steps, depth, kinds)


def _all_steps(node: _Node[Item], outer: Sequence[tuple[int, ...]] | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the steps of each number in the loops around it."""
    around = outer or [()] * len(node.numbers)
    if not node.body:
        yield from around
        return
    inner, at = [(*each, step) for each, step in zip(around, node.steps, strict=True)], 0
    for each in node.body:
        yield from _all_steps(each, inner[at : at + len(each.numbers)])
        at += len(each.numbers)


def _tree(node: _Node[Item], outer: Sequence[tuple[int, ...]]) -> RolledCommand[Item] | RolledLoop[Item]:
    if not node.body:
        assert node.item is not None
        return RolledCommand(node.item, outer[0] if outer else ())
    inner, at, body = [(*each, step) for each, step in zip(outer, node.steps, strict=True)], 0, []
    for each in node.body:
        body.append(_tree(each, inner[at : at + len(each.numbers)]))
        at += len(each.numbers)
    return RolledLoop(node.count, tuple(body))
