"""Complex tensors of exported programs, imported as pairs of real tensors."""

from __future__ import annotations

from mirlo.extend.library import Complex

_COMPONENTS = {"complex64": "float32", "complex128": "float64"}


def is_complex(dtype: object) -> bool:
    """Return whether an element type of PyTorch is a supported type of complex numbers."""
    return str(dtype).removeprefix("torch.") in _COMPONENTS


def component(dtype: object) -> object:
    """Return the element type of the parts of complex numbers; other types unchanged."""
    return _COMPONENTS.get(str(dtype).removeprefix("torch."), dtype)


def has_complex(item: object) -> bool:
    """Return whether arguments, or types of results, include complex numbers."""
    if isinstance(item, (list, tuple)):
        return any(map(has_complex, item))
    return isinstance(item, (Complex, complex)) or is_complex(getattr(item, "dtype", None))
