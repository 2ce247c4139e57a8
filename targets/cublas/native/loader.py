"""The loader of artifacts with format `cublaslt`: functions on tensors of the GPU."""

from __future__ import annotations

import ctypes
from typing import Any

from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.targets.cublas.native.library import check, load_library
from mirlo.targets.cublas.native.products import ProductCall
from mirlo.targets.cublas.plan import Product
from mirlo.targets.nvvm.library_plan import read
from mirlo.targets.nvvm.library_program import Program


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """The functions of a plan."""
    tf32 = bool(artifact.metadata.get("tf32"))
    functions = read(artifact.data, Product)
    return Program(functions, context.params, lambda product: ProductCall(product, tf32), _open, _close).functions()


def _open() -> Any:
    handle = ctypes.c_void_p()
    check(load_library().cublasLtCreate(ctypes.byref(handle)), "starting cuBLASLt")
    return handle


def _close(handle: Any) -> None:
    load_library().cublasLtDestroy(handle)
