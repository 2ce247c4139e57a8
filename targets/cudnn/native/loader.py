"""The loader of artifacts with format `cudnn`: functions on tensors of the GPU."""

from __future__ import annotations

from typing import Any

from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.targets.cudnn.native.attention import AttentionCall
from mirlo.targets.cudnn.native.convolutions import ConvolutionCall
from mirlo.targets.cudnn.native.library import CUDNN
from mirlo.targets.cudnn.plan import Attention, Convolution
from mirlo.targets.nvvm.library_program import Call


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Load the functions of a plan."""
    tf32 = bool(artifact.metadata.get("tf32"))

    def call(step: Any) -> Call:
        return AttentionCall(step) if isinstance(step, Attention) else ConvolutionCall(step, tf32)

    return CUDNN.functions(artifact, context, (Attention, Convolution), call)
