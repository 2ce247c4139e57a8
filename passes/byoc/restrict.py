"""The nodes that each target may take, as text, which placement by cost decides before the partitioning.

partition{targets=onednn,onnx,llvm nodes={onednn=0-56+60,onnx=57-59}}

The numbers are the node ids in the records of the same pass without `nodes`: in program order, from 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mirlo.passes.byoc.search import Match
from mirlo.passes.byoc.select import Decide
from mirlo.passes.byoc.tables import PatternEntry
from mirlo.passes.registry import PassError
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.errors import nearest


def check_numbers(texts: Iterable[str], count: int) -> None:
    """Reject numbers of nodes that the model does not have."""
    for text in texts:
        target, _, numbers = text.partition("=")
        beyond = [number for number in _node_ids(numbers, text) if number >= count]
        if beyond:
            has = f"its nodes are 0 to {count - 1}" if count else "it has none"
            raise PassError(
                f"'partition': nodes: target '{target.strip()}' gets node {beyond[0]}, which there is not: {has}"
            )


def restriction(texts: Iterable[str], targets: Collection[str]) -> Decide:
    """Return a decision that rejects matches with nodes not listed for their target; unnamed targets get none."""
    allowed: dict[str, frozenset[int]] = {}
    for text in texts:
        target, equals, numbers = text.partition("=")
        if not equals:
            example = f"{next(iter(targets), 'mine')}=0-3+7"
            raise PassError(f"'partition': nodes: expected a target and its nodes such as '{example}', found '{text}'")
        if target.strip() not in targets:
            listed = ", ".join(targets) or "none"
            hint = nearest(target.strip(), targets)
            raise PassError(f"'partition': nodes: no code generator of the list is '{target.strip()}'{hint}: {listed}")
        allowed[target.strip()] = frozenset(_node_ids(numbers, text))

    def assigned(entry: PatternEntry, match: Match, nodes: tuple[int, ...]) -> bool | Decline:
        others = [node for node in nodes if node not in allowed.get(entry.target, ())]
        return decline("it costs less elsewhere", node=others[0]) if others else True

    return assigned


def _node_ids(text: str, whole: str) -> Iterable[int]:
    for part in filter(None, (part.strip() for part in text.split("+"))):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
            raise PassError(f"'partition': nodes: expected numbers such as '0-3+7', found '{part}' in '{whole}'")
        yield from range(int(first), int(last or first) + 1)


def as_text(nodes: Mapping[str, Iterable[int]]) -> str:
    """Return the option's text, as ranges of nodes by target.

    Targets without nodes are named too, as absence would allow all.
    """
    return ",".join(f"{target}={_runs(sorted(numbers))}" for target, numbers in nodes.items())


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "+".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
