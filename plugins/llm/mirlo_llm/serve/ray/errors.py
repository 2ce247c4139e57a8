"""Errors of what runs on a cluster of Ray."""

from __future__ import annotations

from mirlo.extend.runtime import MirloError


class RayError(MirloError, ValueError):
    """Ray is not installed, or a model, a column or an option does not fit."""


def require_ray(part: str) -> None:
    """Raise an error unless Ray is installed with a part of it, `serve` or `data`."""
    try:
        __import__(f"ray.{part}")
    except ImportError as error:
        raise RayError(f"ray.{part} cannot be imported ({error}): pip install 'mirlo-llm[ray]'") from None
