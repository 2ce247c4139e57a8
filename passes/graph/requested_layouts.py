"""Requested layouts of operators: the input of the rules of `convert-layout`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import graph_operations
from mirlo.passes.registry import PassError
from mirlo.passes.rules import Decline, decline
from mirlo.passes.targets import find_target, target_names
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

CALLBACK = "layouts"
"""The session option with a caller's own choice: `f(op)` returns `(data, kernel)`, or `decline('why')`."""


@dataclass(frozen=True)
class Layouts:
    """Layouts of one operator; None keeps the current one."""

    data: str | None = None
    kernel: str | None = None


@dataclass(frozen=True)
class RequestedLayouts:
    """Layouts by operator, or by a function of the operation. Without either, those that Mirlo's own kernels prefer."""

    layouts: Mapping[str, Layouts] = field(default_factory=dict)
    callback: Callable[[ir.OpView], Sequence[str] | Decline] | None = None
    is_default: bool = False
    forces: bool = False
    """Whether a permute sinks through an operator even if another operand must then be permuted back."""

    def of(self, op: ir.OpView) -> Layouts | Decline:
        """Return the layouts requested for an operation."""
        name = op.operation.name
        if self.callback is not None:
            answer = self.callback(op)
            return answer if isinstance(answer, Decline) else layouts_of(name, answer)
        return self.layouts.get(name) or decline("no layout is requested for it")


OF_KERNELS = Layouts("N*C", "*IO")
CHANNELS_LAST = RequestedLayouts({"relax.conv": OF_KERNELS, "relax.conv_weight_gradient": OF_KERNELS}, is_default=True)
NOTHING = RequestedLayouts()
"""Permutes move and cancel, no operator changes its layout."""
FORCED = RequestedLayouts(forces=True)
"""The same, with forced sinking, for trials."""


def layouts_of(operator: str, requested: Sequence[str]) -> Layouts:
    """Return layouts as written by the user: `("N*C", "O*I")`, `"N*C"`."""
    attributes = graph_operations()[operator]._attributes if operator in graph_operations() else {}
    if "data_layout" not in attributes:
        known = [name for name, op in graph_operations().items() if "data_layout" in op._attributes]
        raise PassError(f"a layout is wanted for '{operator}', which has none{nearest(operator, known)}")
    has_kernel = "kernel_layout" in attributes
    parts = [requested] if isinstance(requested, str) else list(requested)
    if not 1 <= len(parts) <= 2 or (len(parts) == 2 and not has_kernel):
        takes = "a data and a kernel layout" if has_kernel else "a data layout"
        raise PassError(f"'{operator}' takes {takes}, got {requested}")
    for part, attribute in zip(parts, ("data_layout", "kernel_layout"), strict=False):
        choices = attributes[attribute].choices or ()
        if part is not None and part not in choices:
            raise PassError(f"'{operator}' has no layout '{part}'; it has: {', '.join(map(str, choices))}")
    return Layouts(*parts)


def parse_layouts(texts: Sequence[str]) -> RequestedLayouts:
    """Parse options such as `relax.conv=N*C:O*I`."""
    by_operator = {}
    for text in texts:
        operator, equals, layouts = text.partition("=")
        if not equals:
            raise PassError(f"'{text}': expected an operator and its layouts, relax.conv=N*C:O*I")
        by_operator[operator] = layouts_of(operator, layouts.split(":"))
    return RequestedLayouts(by_operator)


def layouts_of_code_generator(target: str) -> RequestedLayouts | None:
    """Return the layouts that the code generator of a target requests, or None."""
    if target not in target_names() or find_target(target).codegen is None:
        return None
    from mirlo.passes.byoc.codegen import generator_of

    wanted = generator_of(target).layouts
    return RequestedLayouts({name: layouts_of(name, names) for name, names in wanted.items()}) if wanted else None
