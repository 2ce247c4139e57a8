"""LoRA adapters of models of transformers: inputs of the program that are parameters while it is traced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from mirlo.extend.frontend import TensorType
from mirlo_llm.generate.adapted_modules import input_name
from mirlo_llm.generate.checkpoints.lora import RANK
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.traced.operators import low_rank
from mirlo_llm.generate.traced.weights import WRAPPER

Tensor = Any
TRACED_RANK = 3
"""The rank while the model is traced; the operator that reads it has any rank."""


class TracedAdapters:
    """The linear layers of a model that adapters change, with parameters for the adapters' matrices."""

    def __init__(self, model: Any, modules: Sequence[str], weights: Path) -> None:
        """Add parameters to the modules, and what they compute to the modules' results."""
        self._weights = weights
        self.inputs: dict[str, TensorType] = {}
        """The inputs of the program by name."""
        self.parameters: dict[str, TensorType] = {}
        """The same by the names of the parameters."""
        for name in modules:
            depth, columns = self._shape(model, name)
            module = model.get_submodule(name)
            for matrix, shape, kind in (
                ("A", (depth, TRACED_RANK), TensorType.of((depth, RANK), "f32")),
                ("B", (TRACED_RANK, columns), TensorType.of((RANK, columns), "f32")),
            ):
                holder = torch.nn.Module()
                blank = torch.zeros(()).expand(shape)
                holder.register_parameter("weight", torch.nn.Parameter(blank, requires_grad=False))
                module.add_module(f"lora_{matrix}", holder)
                self.inputs[input_name(name, matrix)] = kind
                self.parameters[f"{WRAPPER}{input_name(name, matrix)}"] = kind
            module.register_forward_hook(_add_low_rank)

    def _shape(self, model: Any, name: str) -> tuple[int, int]:
        """Return the depth and the columns of a linear layer."""
        try:
            module = model.get_submodule(name)
        except AttributeError:
            module = None
        if isinstance(module, torch.nn.Linear):
            return module.in_features, module.out_features
        if isinstance(module, Conv1D):
            depth, columns = module.weight.shape
            return int(depth), int(columns)
        what = "which is no product of the model with a matrix of its own"
        raise ModelFolderError(f"{self._weights}: an adapter changes '{name}', {what}")

    def require_used(self, program: Any) -> None:
        """Raise an error for layers whose products the model computes in another way."""
        nodes = program.graph.find_nodes(op="placeholder")
        pairs = zip(program.graph_signature.input_specs, nodes, strict=True)
        used = {spec.target for spec, node in pairs if node.users}
        for parameter in self.parameters:
            if parameter not in used:
                name = parameter.removeprefix(WRAPPER).rpartition(".lora_")[0]
                what = "which the model computes together with others"
                raise ModelFolderError(f"{self._weights}: an adapter changes '{name}', {what}")


def _add_low_rank(module: Any, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Add the product of an adapter to the result of a linear layer."""
    return output + low_rank(arguments[0], module.lora_A.weight, module.lora_B.weight)
