"""Tensors of PyTorch as numpy arrays over the same memory, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_CARRIERS = {1: "uint8", 2: "int16"}
"""Integer types by size that represent low-precision floats, which numpy lacks, in conversions."""


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements of a CPU tensor as an array over its memory."""
    import torch

    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    name = _ml_dtypes_name(tensor.dtype)
    if name is None:
        array: np.ndarray = tensor.numpy()
        return array
    import ml_dtypes

    carrier = getattr(torch, _CARRIERS[tensor.element_size()])
    carried: np.ndarray = tensor.view(carrier).numpy().view(getattr(ml_dtypes, name))
    return carried


def to_input(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements of a CPU tensor for a compiled model: complex elements are pairs in a last dim."""
    import torch

    if not tensor.dtype.is_complex:
        return to_array(tensor)
    return to_array(torch.view_as_real(tensor.detach().resolve_conj().resolve_neg()))


def to_complex(tensor: torch.Tensor) -> torch.Tensor:
    """Return the complex numbers whose parts are in the last dim."""
    import torch

    if not tensor.numel():  # has strides of any kind
        return torch.empty(tensor.shape[:-1], dtype=tensor.dtype.to_complex())
    return torch.view_as_complex(tensor)


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor over the memory of an array that Mirlo made."""
    import torch

    try:
        return torch.from_numpy(array)
    except TypeError:  # a type of ml_dtypes
        carrier = array.view(np.dtype(_CARRIERS[array.dtype.itemsize]))
        return torch.from_numpy(carrier).view(getattr(torch, array.dtype.name))


def _ml_dtypes_name(dtype: torch.dtype) -> str | None:
    """Return the name in ml_dtypes of an element type that numpy lacks."""
    name = str(dtype).removeprefix("torch.")
    return name if name == "bfloat16" or name.startswith("float8") else None
