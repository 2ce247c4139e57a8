"""Models on Ray clusters: `predict` for data sets, `mirlo.serve.deployment` for requests.

`mirlo.ray` is an alias of this package. Its modules are imported on first use, and Ray when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirlo_llm.serve.ray.batches import predict as predict
    from mirlo_llm.serve.ray.errors import RayError as RayError


def __getattr__(name: str) -> Any:
    if name == "predict":
        from mirlo_llm.serve.ray.batches import predict

        return predict
    if name == "RayError":
        from mirlo_llm.serve.ray.errors import RayError

        return RayError
    raise AttributeError(f"module 'mirlo.ray' has no attribute '{name}'")
