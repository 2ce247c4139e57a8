"""Mirlo as a backend of ONNX's standard interface: `prepare`, `run_model`, `run_node`, `supports_device`.

import mirlo.onnx_backend as backend

outputs = backend.prepare(model).run([x])
"""

from mirlo.tools.onnx_backend import MirloBackend, MirloBackendRep, prepare, run_model, run_node, supports_device

__all__ = ["MirloBackend", "MirloBackendRep", "prepare", "run_model", "run_node", "supports_device"]
