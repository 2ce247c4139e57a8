"""Pass `lower-to-spirv`: the kernels of a model in the SPIR-V dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass
from mirlo.targets.spirv.binary import lower_to_spirv

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class LowerToSpirv(Pass):
    """Lower the kernels of a planned module to the SPIR-V dialect; the host's code is dropped.

    The target's emitter does this too; its pipeline ends before.
    """

    name = "lower-to-spirv"
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        lower_to_spirv(op)
        for other in [operation.operation for operation in op.body.operations][::-1]:
            if other.name != "spirv.module":
                other.erase()
