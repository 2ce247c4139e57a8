"""Requested layouts of operators: the input of the rules of `convert-layout`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.relax.infer_windows import DATA_LAYOUTS, KERNEL_LAYOUTS
from mirlo.passes.registry import PassError
from mirlo.passes.rules import Decline, decline, nearest

CALLBACK = "layouts"
"""The session option with a caller's own choice: `f(op)` returns `(data, kernel)`, or `decline('why')`."""

POOLS = ("relax.max_pool", "relax.avg_pool", "relax.lp_pool")
OPERATORS = ("relax.conv", "relax.conv_transpose", *POOLS)
"""Operators that have a layout."""


@dataclass(frozen=True)
class Layouts:
    """Layouts of one operator; None keeps the current one."""

    data: str | None = None
    kernel: str | None = None


@dataclass(frozen=True)
class RequestedLayouts:
    """Layouts by operator, or by a function of the operation. Without either, those that Mirlo's own kernels prefer."""

    layouts: Mapping[str, Layouts] = field(default_factory=dict)
    callback: Callable[[Any], Any] | None = None
    is_default: bool = False
    forces: bool = False
    """Whether a permute sinks through an operator even if another operand must then be permuted back."""

    def of(self, op: Any) -> Layouts | Decline:
        """Return the layouts requested for an operation."""
        name = op.operation.name
        if self.callback is not None:
            answer = self.callback(op)
            return answer if isinstance(answer, Decline) else layouts_of(name, answer)
        return self.layouts.get(name) or decline("no layout is requested for it")


CHANNELS_LAST = RequestedLayouts({"relax.conv": Layouts("N*C", "*IO")}, is_default=True)
NOTHING = RequestedLayouts()
"""Permutes move and cancel, no operator changes its layout."""
FORCED = RequestedLayouts(forces=True)
"""The same, with forced sinking, for trials."""


def layouts_of(operator: str, given: Sequence[str]) -> Layouts:
    """Return layouts as written by the user: `("N*C", "O*I")`, `"N*C"`."""
    if operator not in OPERATORS:
        raise PassError(f"a layout is wanted for '{operator}', which has none{nearest(operator, OPERATORS)}")
    parts = [given] if isinstance(given, str) else list(given)
    if not 1 <= len(parts) <= 2 or (len(parts) == 2 and operator != "relax.conv"):
        takes = "a data and a kernel layout" if operator == "relax.conv" else "a data layout"
        raise PassError(f"'{operator}' takes {takes}, got {given}")
    for part, known in zip(parts, (DATA_LAYOUTS, KERNEL_LAYOUTS), strict=False):
        if part is not None and part not in known:
            raise PassError(f"'{operator}' has no layout '{part}'; it has: {', '.join(known)}")
    return Layouts(*parts)


def parse_layouts(texts: Sequence[str]) -> RequestedLayouts:
    """Parse options such as `relax.conv=N*C:O*I`."""
    found = {}
    for text in texts:
        operator, equals, layouts = text.partition("=")
        if not equals:
            raise PassError(f"'{text}': expected an operator and its layouts, relax.conv=N*C:O*I")
        found[operator] = layouts_of(operator, layouts.split(":"))
    return RequestedLayouts(found)


def layouts_of_code_generator(target: str) -> RequestedLayouts | None:
    """Return the layouts that the code generator of a target requests, or None."""
    from mirlo.passes.targets import find_target, target_names

    if target not in target_names() or find_target(target).codegen is None:
        return None
    from mirlo.passes.byoc.codegen import generator_of

    wanted = generator_of(target).layouts
    return RequestedLayouts({name: layouts_of(name, given) for name, given in wanted.items()}) if wanted else None
