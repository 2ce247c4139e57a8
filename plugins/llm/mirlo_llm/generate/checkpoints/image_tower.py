"""Options of the layers of an image encoder, read from `config.json`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TowerOptions:
    """The options of an image encoder: a transformer on patches."""

    hidden: int
    inner: int
    heads: int
    layers: int
    """Number of computed layers."""
    size: int
    """Pixels per side of an image; 0 for any size."""
    patch: int
    epsilon: float
    activation: str
    is_clip: bool
    """Whether there is a class token and a norm before the layers; otherwise the norm is after them."""

    @property
    def side(self) -> int:
        """Return the number of patches per side."""
        return self.size // self.patch
