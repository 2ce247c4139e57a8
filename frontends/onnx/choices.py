"""Branches of an If whose results differ in rank: the nodes that follow decide which of them can be meant.

Types of relax have a rank, and so an If has results of one rank. Where the branches differ, the import is tried with
each of them alone. If the rest of the model accepts one only, that one is imported, and the call checks the
condition. If it accepts both, the rest of the graph becomes part of both branches. So does the rest of the graphs
around it, where it is imported in place of a node (a branch that is known, the body of a function).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TypeVar

from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.graph import NodeDef
from mirlo.frontends.onnx.values import AnyValue, Scope
from mirlo.runtime.records import dataclass

T = TypeVar("T")

Choices = Mapping[str, "bool | None"]
"""Paths of If nodes to the branch that is imported; None for both."""

MAX_IMPORTS = 64
"""Most imports of a model to decide on branches: a decision takes two."""


class RanksDiffer(Exception):
    """Raised for an If whose branches differ in rank, and on which nothing is decided."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(text)
        self.place = place


@dataclass(eq=False)
class Frame:
    """Nodes that are being imported in order."""

    order: Sequence[NodeDef]
    wanted: Sequence[str]
    scope: Scope
    index: int = 0
    """The node that is being imported."""
    outputs: Callable[[Sequence[AnyValue]], Sequence[AnyValue | None]] | None = None
    """Returns the outputs of that node from the results of the next frame, if that is imported in its place."""


class Ended(Exception):
    """Raised once both branches of an If contain the rest of several frames; holds the results of the outermost one."""

    def __init__(self, frame: Frame, values: list[AnyValue]) -> None:
        super().__init__()
        self.frame = frame
        self.values = values


def frames_after(frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames that go on with the results of the last one, innermost first."""
    return list(takewhile(lambda frame: frame.outputs is not None, reversed(frames[:-1])))


class BranchSearch:
    """The search for choices with which a model can be imported."""

    def __init__(self) -> None:
        self._imports = 0

    def run(self, attempt: Callable[[Choices], T], choices: Choices) -> tuple[T, Choices]:
        """Return the result of the first attempt that succeeds, and its choices; raise the last attempt's error."""
        self._imports += 1
        try:
            return attempt(choices), choices
        except RanksDiffer as error:
            difference, text = error, str(error)
        if self._imports > MAX_IMPORTS:
            raise OnnxImportError(f"{text}; there are too many such nodes to try each branch of each")
        imported: list[tuple[T, Choices]] = []
        problems = []
        for flag in (True, False):
            try:
                imported.append(self.run(attempt, {**choices, difference.place: flag}))
            except OnnxImportError as problem:
                problems.append(problem)
        if len(imported) == 2:
            return self.run(attempt, {**choices, difference.place: None})
        if imported:
            return imported[0]
        raise OnnxImportError(
            f"{text}. With the results of 'then_branch': {problems[0]}. With those of 'else_branch': {problems[1]}"
        )
