"""The code generator: regions become a plan, which the loader turns into the library's primitives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.passes.byoc.codegen import Artifact, CodeGenerator, ExternalModule
from mirlo.targets.onednn.native.library import load_library
from mirlo.targets.onednn.plan import Plan, write
from mirlo.targets.onednn.translate import translate

FORMAT = "onednn"


@dataclass(frozen=True)
class OneDnn(CodeGenerator):
    """Convolutions, matrix products, pooling, normalizations, what is done to their results, and views between them."""

    name = "onednn"

    def patterns(self) -> Sequence[Any]:
        """In the order in which they are tried."""
        from mirlo.targets.onednn.patterns import patterns

        return patterns()

    def codegen(self, module: ExternalModule) -> Artifact:
        """A plan of all regions."""
        # Who compiles for the library should hear now that it is missing, not when the model is loaded.
        load_library()
        plan = Plan(tuple(translate(function) for function in module.functions))
        return Artifact(FORMAT, module.names, write(plan), plan.params)
