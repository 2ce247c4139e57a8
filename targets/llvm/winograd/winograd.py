"""Pass `winograd`: rewrite convolutions with 3x3 windows, and gradients of their weights, where that is faster.

They become transforms and matrix products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import replace_op
from mirlo.passes.graph.rewrite import Rewriter
from mirlo.passes.legalize.legalize import STRATEGIES
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rule_choices import bind_choices
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.tuned import operations_named, pop_choices
from mirlo.passes.session import decision_of_nodes
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import ConvolutionChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.winograd import TILES, ConvolutionView, declined

if TYPE_CHECKING:
    from mirlo.passes.session import Session
    from mirlo.targets.llvm.winograd.convert import TransformFunctions

WEIGHT_GRADIENT = "relax.conv_weight_gradient"


@register_pass
@dataclass(frozen=True)
class Winograd(Pass):
    """Rewrite 3x3 convolutions, and gradients of their weights, with Winograd's algorithm where it should be faster.

    Tiles of 2x2 results need 2.25 times fewer multiplications, and are as exact as direct convolution; those of 4x4
    need 4 times fewer, and their rounding errors are up to ten times as large. int8 has the same results in any
    tiles, where no instruction multiplies more of them than of 16-bit integers. `tile` is the largest permitted one.
    Measured choices, which `apply-tuning` attaches to a convolution, take precedence over the model.
    """

    name = "winograd"
    keeps_layers = True
    contained = True
    trusted = True
    tile: int = option(4, "largest tile of results: 4, 2, or 0 for none")
    machine: str = option("", "machine to choose for; default: the one that is scheduled for")
    explain: bool = option(False, "print the decision for each convolution")

    def run(self, op: ir.OpView, session: Session) -> None:
        if self.tile not in (0, *TILES):
            raise PassError(f"winograd: 'tile' must be one of 0, {', '.join(map(str, TILES))}; got {self.tile}")
        convs = operations_named(op, ["relax.conv"])
        measured = [bind_choices(ConvolutionChoices, pop_choices(conv)).winograd for conv in convs]
        rewriting = _Rewriting(op, find_machine(self.machine or session.options.get("machine")), session, self.tile)
        if not _is_requested("relax.conv", session):
            for conv, tile in zip(convs, measured, strict=True):
                self._convert(conv, rewriting, tile)
        if not _is_requested(WEIGHT_GRADIENT, session):
            for gradient in operations_named(op, [WEIGHT_GRADIENT]):
                self._convert(gradient, rewriting, None)

    def _convert(self, op: ir.Operation, rewriting: _Rewriting, measured: int | None) -> None:
        session, location, is_gradient = rewriting.session, op.location, op.name == WEIGHT_GRADIENT
        tile = rewriting.rewrite(op, measured)
        outcome = tile if isinstance(tile, Decline) else f"tiles of {tile}x{tile} results"
        session.notes.append(decision_of_nodes(self.name, outcome, location))
        if self.explain:
            text = f"stays direct: {tile}" if isinstance(tile, Decline) else f"is computed in tiles of {tile}"
            session.remark(f"the {'gradient' if is_gradient else 'convolution'} {text}", location)


class _Rewriting:
    """The convolutions of a module that are rewritten, and the transforms that they share."""

    def __init__(self, module: ir.OpView, machine: Machine, session: Session, largest: int):
        self.module, self.machine, self.session, self.largest = module, machine, session, largest
        self.functions: TransformFunctions | None = None

    def rewrite(self, op: ir.Operation, measured: int | None) -> int | Decline:
        """Replace a convolution, or the gradient of its weight; return the size of its tiles, or why it stays."""
        is_gradient = op.name == WEIGHT_GRADIENT
        view = ConvolutionView.of_gradient(op.opview) if is_gradient else ConvolutionView.of(op.opview)
        other = declined(view, self.largest)
        if other is not None:
            return other
        # Imported here: many models have no convolution of this kind.
        from mirlo.targets.llvm.winograd.convert import (
            TransformFunctions,
            choose,
            choose_of_gradient,
            rewritten_gradient,
        )
        from mirlo.targets.llvm.winograd.convert import rewritten as rewritten_convolution

        conv, b = op.opview, Rewriter(op, self.session)
        chosen = (
            choose_of_gradient(conv, self.machine, self.largest)
            if is_gradient
            else choose(conv, b, self.machine, self.largest, measured)
        )
        if isinstance(chosen, Decline):
            return chosen
        self.functions = self.functions or TransformFunctions(self.module)
        rewritten = rewritten_gradient if is_gradient else rewritten_convolution
        replace_op(op, [rewritten(conv, chosen, b, self.functions)])
        return chosen.m


def _is_requested(operator: str, session: Session) -> bool:
    """Return whether the user requests a strategy of an operator, which is applied instead."""
    wanted = session.options.get(STRATEGIES)
    return wanted is not None and (not isinstance(wanted, dict) or operator in wanted)
