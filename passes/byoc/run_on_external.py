"""The pass `run-on-external`: any pass or pipeline, on the external modules of one target and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.codegen import generator_of
from mirlo.passes.byoc.outline import EXTERNAL, require_target, string_fact
from mirlo.passes.byoc.outline_external import external_modules
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.targets import find_target, target_names
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class RunOnExternal(Pass):
    """Run passes on the nested modules that are for a target; the rest of the model stays as it is.

    `run-on-external{target=npu pipeline="convert-layout,fold-constant"}`. Without a pipeline, it is that of the
    target's code generator. The passes see the external module as their whole module: what they may do to any, they may
    do to it; but its public functions are called from outside, and keep their types.
    """

    name = "run-on-external"
    contained = True
    target: str = option("", "target whose modules the passes run on; all external ones when none is named")
    pipeline: str = option("", "the passes; the pipeline of the target's code generator when there are none")

    def __post_init__(self) -> None:
        Pipeline(self.pipeline)  # an error in it is reported at its position in the text

    def is_contained(self) -> bool:
        return all(step.is_contained() for step in Pipeline(self.pipeline))

    def run(self, op: ir.OpView, session: Session) -> None:
        require_target(op.operation, self.target)
        for module in external_modules(op.operation).values():
            target = string_fact(module, EXTERNAL) or ""
            if self.target in ("", target):
                Pipeline(self.pipeline or pipeline_of(target)).run(module.opview, session, session.watching)


def pipeline_of(target: str) -> str:
    """Return the pipeline that a target's code generator requests for its module."""
    if target not in target_names() or find_target(target).codegen is None:
        return ""
    return generator_of(target).pipeline
