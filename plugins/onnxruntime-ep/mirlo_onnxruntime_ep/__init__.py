"""Mirlo as an execution provider of ONNX Runtime.

import mirlo_onnxruntime_ep
mirlo_onnxruntime_ep.register()
session = onnxruntime.InferenceSession(model, providers=["MirloExecutionProvider", "CPUExecutionProvider"])
"""

from __future__ import annotations

from pathlib import Path

NAME = "MirloExecutionProvider"


def library_path() -> Path:
    """Return the library of the provider, for programs that register it themselves."""
    from mirlo_onnxruntime_ep import build

    return build.library_path()


def register() -> None:
    """Register the provider with ONNX Runtime, if it is not yet."""
    import onnxruntime

    if not any(device.ep_name == NAME for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library(NAME, str(library_path()))
