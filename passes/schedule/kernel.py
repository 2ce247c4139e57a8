"""What a schedule rule is called with: a prim function in tensor form, and the environment of the compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirlo.dialects.tir.view import PrimView
from mirlo.runtime.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from mirlo.passes.schedule.words.rule_parts import ScheduleParts


@dataclass(frozen=True)
class Kernel:
    """The argument of a schedule rule: a prim function in tensor form."""

    view: PrimView
    words: ScheduleParts | None = None
    """The parts of the user's schedule, if primitives arrange the loops of some of them."""


@dataclass(frozen=True)
class ScheduleContext:
    """The environment of a schedule rule."""

    target: str
    options: dict[str, Any]
