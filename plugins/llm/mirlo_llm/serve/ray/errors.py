"""Errors of models on Ray clusters."""

from __future__ import annotations

from mirlo.extend.runtime import MirloError


class RayError(MirloError, ValueError):
    """Ray is not installed, or a model, a column or an option is invalid."""


def require_ray(part: str) -> None:
    """Raise an error unless Ray is installed with its part `serve` or `data`."""
    try:
        __import__(f"ray.{part}")
    except ImportError as error:
        raise RayError(f"ray.{part} cannot be imported ({error}): pip install 'mirlo-llm[ray]'") from None
