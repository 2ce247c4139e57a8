"""LoRA adapters in graphs of checkpoints: the low-rank products are added to the results of linear layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import Tensor, TensorType
from mirlo.extend.frontend import dims as D
from mirlo_llm.generate.adapted_modules import input_name
from mirlo_llm.generate.errors import ModelFolderError

if TYPE_CHECKING:
    from mirlo_llm.generate.checkpoints.graph import CheckpointWeights

RANK = D.symbol("lora_r")
"""The dynamic dim of an adapter's rank; 0 means no adapter."""
Pair = tuple[Tensor, Tensor]
"""The matrices A and B of an adapter for a linear layer: [depth, rank] and [rank, columns]."""


class AdaptedProducts:
    """The linear layers of a graph that adapters change, by module name."""

    def __init__(self, weights: CheckpointWeights, modules: Sequence[str], is_transposed: bool = False) -> None:
        """Find the shapes of the modules; `is_transposed` matrices of the file are stored as [in, out]."""
        self.inputs: dict[str, TensorType] = {}
        for module in modules:
            shape = weights.shape_of(f"{module}.weight")
            if shape is None or len(shape) != 2:
                raise ModelFolderError(
                    f"{weights.path}: an adapter changes '{module}', which is no product of the model with a matrix of "
                    "its own"
                )
            is_in_blocks = weights.is_in_blocks(f"{module}.weight")
            columns, depth = shape[::-1] if is_transposed and not is_in_blocks else shape
            self.inputs[input_name(module, "A")] = TensorType.of((depth, RANK), "f32")
            self.inputs[input_name(module, "B")] = TensorType.of((RANK, columns), "f32")
        self._path, self._left = weights.path, dict.fromkeys(modules)
        self._pairs: dict[str, Pair] = {}

    def place(self, tensors: Sequence[Tensor]) -> None:
        """Store the tensors of the graph's inputs."""
        by_name = dict(zip(self.inputs, tensors, strict=True))
        self._pairs = {each: (by_name[input_name(each, "A")], by_name[input_name(each, "B")]) for each in self._left}

    def changes(self, *names: str) -> bool:
        """Return whether an adapter changes a linear layer, by one of its names."""
        return any(name in self._pairs for name in names)

    def take(self, *names: str) -> Pair | None:
        """Return the matrices for a linear layer by one of its names; None if no adapter changes it."""
        module = next((name for name in names if name in self._pairs), None)
        if module is None:
            return None
        self._left.pop(module, None)
        return self._pairs[module]

    def finish(self) -> None:
        """Raise an error for modules that the graph does not have."""
        for module in self._left:
            raise ModelFolderError(
                f"{self._path}: an adapter changes '{module}', which the model computes together with others"
            )
