"""A complex tensor of an exported program, which is two real ones."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.tensor import Tensor

_COMPONENTS = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True, eq=False)
class ComplexTensor:
    """The real and the imaginary part, of one type."""

    re: Tensor
    im: Tensor

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the dims."""
        return self.re.shape

    @property
    def rank(self) -> int:
        """Return the number of dims."""
        return self.re.rank

    @property
    def dtype(self) -> DType:
        """Return the element type of the parts."""
        return self.re.dtype

    @property
    def type(self) -> str:
        """Return a text for messages."""
        return f"complex of {self.re.type}"


def is_complex(dtype: object) -> bool:
    """Return whether an element type of PyTorch is one of complex numbers that are computed."""
    return str(dtype).removeprefix("torch.") in _COMPONENTS


def component(dtype: object) -> object:
    """Return the element type of the parts of complex numbers; other types as they are."""
    return _COMPONENTS.get(str(dtype).removeprefix("torch."), dtype)


def has_complex(item: object) -> bool:
    """Return whether arguments or types of results have complex numbers among them."""
    if isinstance(item, (list, tuple)):
        return any(map(has_complex, item))
    return isinstance(item, (ComplexTensor, complex)) or is_complex(getattr(item, "dtype", None))
