"""ONNX Runtime: sessions, providers, and the check whether a provider can run an operator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.codegen import Decline
from mirlo.extend.runtime import MirloError

if TYPE_CHECKING:
    from types import ModuleType

    from onnxruntime import InferenceSession, OrtValue, SessionOptions

SILENT = 4
"""ONNX Runtime's severity of fatal errors; other errors are raised and reported by Mirlo."""


class ProviderError(MirloError, RuntimeError):
    """ONNX Runtime, or the requested provider, is not installed."""


def onnxruntime() -> ModuleType:
    """Import ONNX Runtime, or raise an error that names the package to install."""
    try:
        import onnxruntime as module
    except ImportError as error:
        raise ProviderError(
            f"ONNX Runtime does not load ({error}): install it with pip install onnxruntime, or the package "
            "of the provider, such as onnxruntime-gpu or onnxruntime-openvino"
        ) from error
    result: ModuleType = module
    return result


def require_provider(provider: str) -> str:
    """Return the full name of a provider: `cuda` stands for `CUDAExecutionProvider`."""
    available = onnxruntime().get_available_providers()
    for name in available:
        if provider.lower() in (name.lower(), name.lower().removesuffix("executionprovider")):
            return str(name)
    raise ProviderError(
        f"ONNX Runtime has no execution provider '{provider}' here; it has: {', '.join(available)}. Install the "
        "package that brings it, such as onnxruntime-gpu, onnxruntime-openvino, onnxruntime-qnn"
    )


def session_options(threads: int, weights: Mapping[str, np.ndarray]) -> tuple[SessionOptions, list[OrtValue]]:
    """Return session options and the weights that must outlive the session because they are not copied."""
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    # Threads that spin after a call would take cores from the rest of the model.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    held: list[OrtValue] = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    if held:
        options.add_external_initializers(list(weights), held)
    return options, held


def open_session(
    model: bytes, options: SessionOptions, provider: str, provider_options: Mapping[str, str]
) -> InferenceSession:
    """Open a session on a provider; ONNX Runtime runs unsupported nodes on the CPU."""
    own = require_provider(provider)
    chosen: list[str | tuple[str, dict[str, str]]] = [(own, dict(provider_options))]
    if own != "CPUExecutionProvider":
        chosen.append("CPUExecutionProvider")
    return onnxruntime().InferenceSession(model, options, providers=chosen)


@lru_cache(maxsize=4096)
def try_model(model: bytes, provider: str, provider_options: tuple[tuple[str, str], ...]) -> Decline | None:
    """Decline a model of one operator that ONNX Runtime cannot run.

    A trial session finds out, as no table lists its kernels.
    """
    runtime = onnxruntime()
    options, _ = session_options(1, {})
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        open_session(model, options, provider, dict(provider_options))
    except ProviderError:
        raise
    except Exception as error:
        message = str(error).splitlines()[0].removeprefix("[ONNXRuntimeError] : ")
        return Decline(f"ONNX Runtime cannot run it: {message}")
    return None
