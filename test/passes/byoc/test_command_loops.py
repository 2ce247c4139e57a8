"""Loops found in lists of commands: they are the list, and as long for large shapes as for small ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from mirlo.passes.byoc.command_loops import RolledCommand, RolledLoop, roll_commands

Command = tuple[str, int | None]
Tree = Sequence[RolledCommand[Command] | RolledLoop[Command]]


def unrolled(tree: Tree, turns: tuple[int, ...] = ()) -> list[Command]:
    """Return the commands that loops execute."""
    found = list[Command]()
    for each in tree:
        if isinstance(each, RolledLoop):
            for turn in range(each.count):
                found += unrolled(each.body, (*turns, turn))
        else:
            name, number = each.item
            moved = sum(turn * step for turn, step in zip(turns, each.steps, strict=number is not None))
            found.append((name, None if number is None else number + moved))
    return found


def size_of(tree: Tree) -> int:
    return sum(size_of(each.body) + 1 if isinstance(each, RolledLoop) else 1 for each in tree)


def depth_of(tree: Tree) -> int:
    return max((1 + depth_of(each.body) for each in tree if isinstance(each, RolledLoop)), default=0)


def products(m: int, n: int, k: int) -> list[Command]:
    """Return the commands of a product: first and last ones of each sum are others."""
    commands = list[Command]()
    for i, j in itertools.product(range(m), range(n)):
        commands.append(("clear", None))
        for z in range(k):
            commands += [("a", i * k + z), ("b", z * n + j), ("last" if z == k - 1 else "multiply", None)]
        commands.append(("pack", i * n + j))
    return commands


def test_a_list_has_as_many_loops_for_each_shape() -> None:
    small, large = roll_commands(products(6, 7, 8), lambda c: c), roll_commands(products(12, 14, 16), lambda c: c)
    assert size_of(small) == size_of(large) < 12
    assert unrolled(large) == products(12, 14, 16)


@pytest.mark.parametrize("seed", range(40))
def test_loops_execute_the_list(seed: int) -> None:
    draw = random.Random(seed)

    def drawn(depth: int) -> list[Command]:
        """Return commands, or groups of them that repeat with steps and an irregular one between."""
        if depth == 0:
            return [(draw.choice("abc"), draw.choice([None, draw.randrange(100)]))]
        group = [each for _ in range(draw.randint(1, 3)) for each in drawn(depth - 1)]
        steps, found = [draw.randint(-3, 3) for _ in group], list[Command]()
        for turn in range(draw.randint(1, 6)):
            moved = zip(group, steps, strict=True)
            found += [(name, None if number is None else number + turn * step) for (name, number), step in moved]
            found += drawn(0) if draw.random() < 0.1 else []
        return found

    commands = [each for _ in range(3) for each in drawn(draw.randint(0, 3))]
    for least, most_steps, most_depth in ((1, 16, 8), (4, 16, 8), (1, 2, 1)):
        tree = roll_commands(commands, lambda c: c, least, most_steps, most_depth)
        assert unrolled(tree) == commands
        assert size_of(tree) <= 2 * len(commands) and depth_of(tree) <= most_depth


@pytest.mark.parametrize("commands", [[], [("a", 1)], [("a", None), ("b", 2)]], ids=["none", "one", "two"])
def test_what_does_not_repeat_has_no_loop(commands: list[Command]) -> None:
    assert unrolled(tree := roll_commands(commands, lambda c: c)) == commands and depth_of(tree) == 0


def test_numbers_that_advance_in_more_ways_than_there_are_registers_stay_outside_of_loops() -> None:
    commands = [(name, turn * step) for turn in range(9) for step, name in enumerate("abcd", 1)]
    assert depth_of(roll_commands(commands, lambda c: c, most_steps=4)) == 1
    assert depth_of(roll_commands(commands, lambda c: c, most_steps=3)) == 0
