"""An `ONNXProgram` as a model of the ONNX front end: its weights are views of the module's tensors, not copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.frontend import LoadedModel, load_shared

if TYPE_CHECKING:
    import onnx_ir
    import torch

LARGE = 1024
"""Fewest bytes of a weight that is shared."""


def shared_model(program: torch.onnx.ONNXProgram) -> LoadedModel:
    """Return the model of a program."""
    import onnx_ir

    model = program.model
    shared: dict[str, tuple[onnx_ir.TensorProtocol, np.ndarray]] = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes >= LARGE and tensor.dtype.bitwidth >= 8:
            shared[name] = tensor, np.ascontiguousarray(tensor.numpy())
    try:
        for name, (tensor, _) in shared.items():
            # Written as a reference, without its data.
            model.graph.initializers[name].const_value = onnx_ir.ExternalTensor(
                "weights", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name
            )
        proto = onnx_ir.to_proto(model)
    finally:
        for name, (tensor, _) in shared.items():
            model.graph.initializers[name].const_value = tensor
    return load_shared(proto, {name: array for name, (_, array) in shared.items()})
