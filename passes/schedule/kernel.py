"""The arguments of a schedule rule: a prim function in tensor form, and the environment of the compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirlo.dialects.core.dtypes import dtype as dtype_named
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.targets import chain, find_target, is_partial
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.schedule.primitives.rule_parts import ScheduleParts


@dataclass(frozen=True)
class Kernel:
    """The argument of a schedule rule: a prim function in tensor form."""

    view: PrimView
    parts: ScheduleParts | None = None
    """The parts of the user's schedule, if primitives arrange the loops of some of them."""


@dataclass(frozen=True)
class ScheduleContext:
    """The environment of a schedule rule."""

    target: str
    """The target of the kernel."""
    options: dict[str, Any]
    """The options of the pass `schedule` (`threads`, and `machine` where one is named), and of the compilation."""

    def lanes(self, dtype: str) -> int:
        """Return how many elements of a type, such as "f32", a vector of the machine has; 1 where it has no vectors."""
        for name in chain(self.target)[:-1]:
            target = None if is_partial(name) else find_target(name)
            if target is not None and target.has("lanes"):
                return target.lanes(self.options.get("machine"), dtype_named(dtype).bytes)
        return 1
