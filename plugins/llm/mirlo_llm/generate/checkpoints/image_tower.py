"""Encoders of images: what a `config.json` says of the layers that read patches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TowerOptions:
    """An encoder of images: patches as the tokens of an encoder."""

    hidden: int
    inner: int
    heads: int
    layers: int
    """How many layers are computed."""
    size: int
    """Pixels of a side of the image; 0 if images have any size."""
    patch: int
    epsilon: float
    activation: str
    is_clip: bool
    """Whether there is a token of the whole image, and a norm before the layers; else there is one behind them."""

    @property
    def side(self) -> int:
        """Return the patches of a side."""
        return self.size // self.patch
