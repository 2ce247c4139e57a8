"""Pass `lower-to-nvvm`: the kernels of a model in the dialects of LLVM and of NVIDIA's instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.options import parse_options
from mirlo.targets.nvvm.ptx import lower_to_nvvm

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class LowerToNvvm(Pass):
    """Lower the kernels of a planned module to the LLVM and NVVM dialects; the host's code is dropped.

    The target's emitter does this too; its pipeline ends before.
    """

    name = "lower-to-nvvm"
    contained = True
    options: str = option("", "options of target nvvm, as in braces after its name: 'chip=sm_90a'")

    def run(self, op: ir.OpView, session: Session) -> None:
        lower_to_nvvm(op, parse_options(self.options).chip)
