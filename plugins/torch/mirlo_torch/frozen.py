"""Weights compiled as constants, and detection of their changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.extend.runtime import MirloError

if TYPE_CHECKING:
    import torch


class StaleWeightsError(MirloError, RuntimeError):
    """Weights that were changed after the model was compiled."""


SAMPLES = 64
"""Elements of a weight that are compared: a write of one element in ten is missed once in 800 times."""


@dataclass(frozen=True)
class WeightSamples:
    """Sampled elements of weights and their bits, since PyTorch does not count writes through `.data`."""

    views: tuple[torch.Tensor, ...]
    bits: torch.Tensor

    @staticmethod
    def of(tensors: Iterable[torch.Tensor]) -> tuple[WeightSamples, ...]:
        """Return samples of tensors, grouped by element size."""
        import torch

        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            view = _sampled(tensor)
            if view is not None:
                groups.setdefault(view.dtype, []).append(view)
        return tuple(WeightSamples(tuple(views), torch.cat(views)) for views in groups.values())

    @property
    def hold(self) -> bool:
        """Return whether all samples are unchanged."""
        import torch

        return bool(torch.equal(torch.cat(self.views), self.bits))


def _sampled(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return elements of a tensor as integers over its memory, evenly spaced; None if it is not dense, or empty."""
    import torch
    from torch._prims_common import is_non_overlapping_and_dense_or_false

    count = tensor.numel()
    if tensor.device.type != "cpu" or not count or not is_non_overlapping_and_dense_or_false(tensor):
        return None
    step = count // SAMPLES | 1  # no multiple of the length of a row
    view = tensor.detach().as_strided((-(-count // step),), (step,))
    if view.is_neg():
        view = torch._neg_view(view)
    if view.dtype.is_complex:
        view = torch.view_as_real(view.conj() if view.is_conj() else view)[:, 0]
    return view.view(getattr(torch, f"int{8 * view.element_size()}"))


@dataclass(frozen=True)
class FrozenWeights:
    """The tensors of a module with their versions at compilation.

    PyTorch counts the writes to a tensor's memory, through any of its views but those of `.data`.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]
    addresses: tuple[int, ...]
    samples: tuple[WeightSamples, ...]

    @staticmethod
    def of(tensors: Mapping[str, torch.Tensor]) -> FrozenWeights:
        """Return the current state of tensors."""
        import torch

        held = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
        values = tuple(held.values())
        return FrozenWeights(
            tuple(held), values, tuple(t._version for t in values), tuple(t.data_ptr() for t in values),
            WeightSamples.of(values),
        )  # fmt: skip

    def changed(self) -> str | None:
        """Return the name of a tensor that was written or replaced; None if all are unchanged."""
        for index, tensor in enumerate(self.tensors):
            if tensor._version != self.versions[index] or tensor.data_ptr() != self.addresses[index]:
                return self.names[index]
        return None if all(group.hold for group in self.samples) else self._written_unseen()

    def _written_unseen(self) -> str:
        """Return the name of a tensor whose samples changed by a write through `.data`."""
        for group in self.samples:
            begin = 0
            for view in group.views:
                if not view.equal(group.bits[begin : begin + len(view)]):
                    return next(
                        name for name, tensor in zip(self.names, self.tensors, strict=True)
                        if tensor.data_ptr() == view.data_ptr()
                    )  # fmt: skip
                begin += len(view)
        raise AssertionError("no sample has changed")

    def require(self) -> None:
        """Raise an error if a tensor was changed."""
        name = self.changed()
        if name is not None:
            raise StaleWeightsError(
                f"the weight '{name}' was changed after the model was compiled, which holds its old values: call "
                "mirlo.compile again"
            )
