"""The loader of artifacts with format `cudnn`: functions on tensors of the GPU."""

from __future__ import annotations

import ctypes
from typing import Any

from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.targets.cudnn.native.convolutions import ConvolutionCall
from mirlo.targets.cudnn.native.library import check, load_library
from mirlo.targets.cudnn.plan import Convolution
from mirlo.targets.nvvm.library_plan import read
from mirlo.targets.nvvm.library_program import Program


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """The functions of a plan."""
    tf32 = bool(artifact.metadata.get("tf32"))
    functions = read(artifact.data, Convolution)
    return Program(functions, context.params, lambda step: ConvolutionCall(step, tf32), _open, _close).functions()


def _open() -> Any:
    handle = ctypes.c_void_p()
    check(load_library().cudnnCreate(ctypes.byref(handle)), "starting cuDNN")
    return handle


def _close(handle: Any) -> None:
    load_library().cudnnDestroy(handle)
