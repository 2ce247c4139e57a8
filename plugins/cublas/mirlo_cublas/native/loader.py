"""The loader of artifacts with format `cublaslt`: functions on tensors of the GPU."""

from __future__ import annotations

from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_cublas.native.library import CUBLAS
from mirlo_cublas.native.products import ProductCall
from mirlo_cublas.plan import MatrixProduct


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return the functions of a plan."""
    tf32 = bool(artifact.metadata.get("tf32"))
    return CUBLAS.functions(artifact, context, (MatrixProduct,), lambda product: ProductCall(product, tf32))
