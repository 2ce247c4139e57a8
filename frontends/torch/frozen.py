"""Weights that a compiled model holds as constants, and whether they have changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    import torch


class StaleWeightsError(MirloError, RuntimeError):
    """Weights that were changed after the model was compiled."""


@dataclass(frozen=True)
class FrozenWeights:
    """The tensors of a module, each with its version when they were compiled.

    PyTorch counts the writes to a tensor's memory, through any of its views.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]
    addresses: tuple[int, ...]

    @staticmethod
    def of(tensors: Mapping[str, torch.Tensor]) -> FrozenWeights:
        """Return the state of tensors now."""
        import torch

        held = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
        values = tuple(held.values())
        return FrozenWeights(
            tuple(held), values, tuple(t._version for t in values), tuple(t.data_ptr() for t in values)
        )

    def changed(self) -> str | None:
        """Return the name of a tensor that was written or replaced; None if all are as they were."""
        for index, tensor in enumerate(self.tensors):
            if tensor._version != self.versions[index] or tensor.data_ptr() != self.addresses[index]:
                return self.names[index]
        return None

    def require(self) -> None:
        """Raise an error if a tensor has changed."""
        name = self.changed()
        if name is not None:
            raise StaleWeightsError(
                f"the weight '{name}' was changed after the model was compiled, which holds its old values: call "
                "mirlo.compile again"
            )
