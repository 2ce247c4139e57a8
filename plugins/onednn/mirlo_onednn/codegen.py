"""The code generator: regions become a plan, from which the loader makes the library's primitives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.extend.codegen import Artifact, CodeGenerator, ExternalModule, Figures
from mirlo.extend.codegen import codegen_option as option
from mirlo.extend.runtime import MirloError
from mirlo.extend.target import TargetError
from mirlo_onednn.native import api
from mirlo_onednn.native.library import NAME, OLDEST, load_library
from mirlo_onednn.plan import OneDnnPlan, PrimitiveRegion, write
from mirlo_onednn.sizes import undetermined
from mirlo_onednn.translate import translate

if TYPE_CHECKING:
    from mirlo.extend.codegen import PatternTuple

FORMAT = "onednn"


class UndeterminedDims(MirloError, ValueError):
    """A region whose tensors do not determine all of its sizes."""


@dataclass(frozen=True)
class OneDnn(CodeGenerator):
    """Convolutions, matrix products, pooling and normalizations, with their epilogues and the views between them."""

    name = "onednn"
    format = FORMAT
    guarded = False
    figures = Figures(gflops=100.0, gbytes=10.0, call_us=2.0)
    fpmath: str = option("strict", "how contractions may round their operands: strict, tf32, bf16, f16, any")

    def __post_init__(self) -> None:
        if self.fpmath not in api.FPMATH:
            raise TargetError(f"target 'onednn': fpmath is one of {', '.join(api.FPMATH)}, found '{self.fpmath}'")

    def patterns(self) -> Sequence[PatternTuple]:
        """Return the patterns in order of priority."""
        from mirlo_onednn.patterns import patterns

        return patterns()

    def requirements(self) -> Sequence[str]:
        return (f"oneDNN {'.'.join(map(str, OLDEST))} or later ({NAME})",)

    def fingerprint(self) -> str:
        """Return the version of the library."""
        return ".".join(map(str, load_library().version))

    def codegen(self, module: ExternalModule) -> Artifact:
        """Return the plan of all regions."""
        # Who compiles for the library should hear now that it is missing, not when the model is loaded.
        load_library()
        plan = OneDnnPlan(tuple(translate(function) for function in module.functions))
        for function in plan.functions:
            _require_sizes(function)
        return Artifact(FORMAT, module.names, write(plan), plan.params, {"fpmath": self.fpmath})


def _require_sizes(function: PrimitiveRegion) -> None:
    wanted = {dim for tensor in function.tensors.values() for dim in tensor.shape if isinstance(dim, str)}
    missing = sorted(undetermined([text for _, _, text in function.dynamic_dims], wanted))
    if missing:
        raise UndeterminedDims(
            f"region '{function.name}' has dims of the symbols {', '.join(missing)}, which none of its inputs "
            f"determines: give the model's shapes when compiling (shapes=), or compile it without target 'onednn'"
        )
