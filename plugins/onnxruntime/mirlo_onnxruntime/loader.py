"""The loader of ONNX regions: one session of ONNX Runtime each.

A call goes through Python: a ctypes callback, which holds the interpreter lock except while the session computes.
Tensors are passed without copies; a provider on another device copies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.runtime import ArtifactError, ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_onnxruntime.provider import open_session, session_options

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Open a session per region with the weights in Mirlo's memory."""
    models: dict[str, list[int]] = artifact.metadata["models"]
    weights: dict[str, dict[str, str]] = artifact.metadata["weights"]
    functions, keep = {}, []
    for name in artifact.functions:
        start, size = models[name]
        options, held = session_options(
            context.threads, {i: context.params[constant] for i, constant in weights[name].items()}
        )
        keep.append(held)
        provider = (artifact.metadata["provider"], artifact.metadata["provider_options"])
        try:
            session = open_session(artifact.data[start : start + size], options, *provider)
        except MemoryError:
            raise
        except Exception as error:
            raise ArtifactError(f"ONNX Runtime cannot load the region '{name}': {error}") from error
        functions[name] = _function(session)
    return ExternalFunctions(functions, keep=keep)


def _function(session: InferenceSession) -> Callable[[], None]:
    """Return the callback for generated code: inputs, then outputs, which are written in place."""
    inputs = [spec.name for spec in session.get_inputs()]
    outputs = [spec.name for spec in session.get_outputs()]

    def call(*arrays: np.ndarray) -> None:
        # Each call has a binding of its own: several threads may call at once.
        binding = session.io_binding()
        for name, array in zip(inputs, arrays, strict=False):
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in zip(outputs, arrays[len(inputs) :], strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)

    return call
