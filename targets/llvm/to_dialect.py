"""Pass `lower-to-llvm`: the LLVM dialect of a whole model, for readers and for tools of LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.emit import prepare_module
from mirlo.targets.llvm.machine_code import DIALECT, CodeSettings
from mirlo.targets.llvm.object_code import lower_module
from mirlo.targets.llvm.options import parse_options
from mirlo.targets.llvm.units import split

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class LowerToLlvm(Pass):
    """Lower a planned module to the LLVM dialect, with the function that Mirlo's loader calls.

    The target's emitter does this kernel by kernel; its pipeline ends before. `mlir-translate --mlir-to-llvmir` reads
    the result.
    """

    name = "lower-to-llvm"
    contained = True
    options: str = option("", "options of target llvm, as in braces after its name: 'cpu=haswell'")

    def run(self, op: ir.OpView, session: Session) -> None:
        processor = parse_options(self.options).processor
        prepared = prepare_module(op)
        (unit,) = split(op, prepared.entry, CodeSettings(processor, form=DIALECT), apart=False)
        module = ir.Module.parse(unit.text)
        lower_module(module, processor, prepared.entry)
        for old in list(op.body.operations)[::-1]:
            old.operation.erase()
        for new in module.body.operations:
            new.operation.clone(ip=ir.InsertionPoint(op.body))
