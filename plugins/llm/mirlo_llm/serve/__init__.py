"""A server for models: OpenAI's API for language models, the Open Inference Protocol for any compiled model.

`mirlo serve` runs it; `application` returns it as an ASGI application for your own server, and `deployment` as an
application of Ray Serve for a cluster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirlo_llm.serve.ray.deployment import deployment as deployment


def __getattr__(name: str) -> Any:
    if name == "ray":
        return importlib.import_module("mirlo_llm.serve.ray")
    if name != "deployment":
        raise AttributeError(f"module 'mirlo.serve' has no attribute '{name}'")
    from mirlo_llm.serve.ray.deployment import deployment

    return deployment
