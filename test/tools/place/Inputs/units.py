"""Two code generators for tests of placement: one with a layout of its own and limits, one with its own memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.extend.codegen import CodeGenerator, conv_bias_activation, is_op
from mirlo.extend.rules import decline
from mirlo.extend.target import Target, register_target


def small(match: Any) -> Any:
    """Decline: the unit has few accumulators."""
    channels = match["weight"].type.shape[0]
    return channels <= 4 or decline("the unit has 4 accumulators", channels=channels)


@dataclass(frozen=True)
class Unit(CodeGenerator):
    """Small convolutions, channels last."""

    name = "unit"
    format = "unit-loader"
    layouts = {"relax.conv": ("N*C", "O*I")}

    def requirements(self) -> Sequence[str]:
        return ["firmware <2> of the unit"]

    def codegen(self, module: Any) -> Any:
        """Refuse: placements make no code."""
        raise NotImplementedError

    def patterns(self) -> Sequence[Any]:
        return [
            ("conv_relu", conv_bias_activation(activation="relax.relu"), small),
            ("gate", is_op("relax.silu")),
        ]


@dataclass(frozen=True)
class Far(CodeGenerator):
    """Elementwise functions, in another memory."""

    name = "far"
    copies = True

    def patterns(self) -> Sequence[Any]:
        return [("each", is_op("relax.exp", "relax.relu", "relax.sigmoid"))]


register_target(Target("unit", "a convolution unit", codegen=Unit))
register_target(Target("far", "an elementwise unit", codegen=Far))
