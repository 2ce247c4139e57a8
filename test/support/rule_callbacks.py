"""Calls of functions of users in rules, passes, schedules and strategies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

from callback_values import MODEL

import mirlo
import mirlo.extend
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import Choice, intrinsic, legalize, schedule
from mirlo.extend.schedules import TileInstruction, command_intrin, part_rule, tensor_intrin
from mirlo.extend.target import Pass, register_pass
from mirlo.passes.rules import SCHEDULE
from mirlo.passes.schedule.schedule import points_of


def of_legalize(made: Callable[[], Any]) -> None:
    @legalize("relax.relu", target="llvm", priority=9)
    def rule(op: Any, b: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def of_intrinsic(made: Callable[[], Any]) -> None:
    @intrinsic("tanh", target="llvm", priority=9)
    def rule(op: Any, b: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def of_elements(made: Callable[[], Any]) -> None:
    @legalize("relax.relu", target="llvm", priority=9)
    def rule(op: Any, b: Any) -> Any:
        return elementwise(op, b, list(op.operation.operands), lambda x: made())

    mirlo.compile(MODEL, cache=False)


def of_schedule(made: Callable[[], Any]) -> None:
    @schedule(target="llvm", priority=1000)
    def rule(kernel: Any, context: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def of_tuning_space(made: Callable[[], Any]) -> None:
    @schedule(target="llvm", priority=1000, space=lambda kernel, context: made())
    def rule(kernel: Any, context: Any, size: Annotated[int, Choice((1, 2), "a size")] = 1) -> Any:
        raise AssertionError

    (registered,) = [each for each in SCHEDULE if each.function is rule]
    points_of(registered, None, None, ())  # type: ignore[arg-type] # the rule reads neither


def of_planner(made: Callable[[], Any]) -> None:
    @part_rule(priority=1000)
    def plan_callbacks(group: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def of_strategy(made: Callable[[], Any]) -> None:
    mirlo.compile(MODEL, strategies={"relax.tanh": lambda op: made()}, cache=False)


def of_pass(made: Callable[[], Any]) -> None:
    @register_pass
    @dataclasses.dataclass(frozen=True)
    class ReturnsSomething(Pass):
        """Return what a test says."""

        name = "returns-something"

        def run(self, op: Any, session: Any) -> Any:
            return made()

    mirlo.compile(MODEL, pipeline="returns-something", cache=False)


def of_tensor_intrin(made: Callable[[], Any]) -> None:
    tensor_intrin("callbacks", made(), made())


def of_command_intrin(made: Callable[[], Any]) -> None:
    command_intrin("callbacks", made())


def of_tile_instruction(made: Callable[[], Any]) -> None:
    emit = TileInstruction("callbacks", emit=lambda row, columns, total: made()).emit
    assert emit is not None
    emit(None, None, None)  # type: ignore[arg-type] # what is emitted reads nothing


KINDS: dict[Callable[..., None], set[str]] = {
    of_legalize: set(),
    of_intrinsic: set(),
    of_elements: {"int", "negative", "float", "nan", "True", "False", "scalar"},
    of_schedule: set(),
    of_tuning_space: {"list", "tuple"},
    of_planner: set(),
    of_strategy: {"None"},
    of_pass: {"None"},
    of_tensor_intrin: set(),
    of_command_intrin: set(),
    of_tile_instruction: set(),
}
"""The functions that call a callback, each with the names of values that are valid results or other errors."""
