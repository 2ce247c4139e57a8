"""The loader of artifacts with format `cudnn`: functions on tensors of the GPU."""

from __future__ import annotations

from mirlo.extend.nvidia import LibraryCall
from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_cudnn.native.attention import AttentionCall
from mirlo_cudnn.native.convolutions import ConvolutionCall
from mirlo_cudnn.native.library import CUDNN
from mirlo_cudnn.plan import AttentionStep, Convolution


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Load the functions of a plan."""
    tf32 = bool(artifact.metadata.get("tf32"))

    def call(step: AttentionStep | Convolution) -> LibraryCall:
        return AttentionCall(step) if isinstance(step, AttentionStep) else ConvolutionCall(step, tf32)

    steps: tuple[type[AttentionStep | Convolution], ...] = (AttentionStep, Convolution)
    return CUDNN.functions(artifact, context, steps, call)
