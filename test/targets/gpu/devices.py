"""Tests that need a GPU: a software Vulkan device will do for target spirv."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from mirlo.runtime.errors import MirloError


def _vulkan() -> Any:
    from mirlo.targets.spirv.vulkan import device

    return device()


def _cuda() -> Any:
    from mirlo.targets.nvvm.device import first_gpu

    return first_gpu()


@cache
def _missing(find: Callable[[], Any]) -> str:
    """Why there is no device; nothing if there is one."""
    try:
        find()
    except MirloError as error:
        return str(error)
    return ""


def needs_vulkan() -> pytest.MarkDecorator:
    """Skip tests, and say so, where there is no Vulkan device."""
    reason = _missing(_vulkan)
    return pytest.mark.skipif(bool(reason), reason=f"no Vulkan device: {reason}")


def needs_cuda() -> pytest.MarkDecorator:
    """Skip tests, and say so, where there is no NVIDIA GPU."""
    reason = _missing(_cuda)
    return pytest.mark.skipif(bool(reason), reason=f"no NVIDIA GPU: {reason}")


ON_DEVICES = pytest.mark.parametrize(
    "target", [pytest.param("spirv", marks=needs_vulkan()), pytest.param("nvvm", marks=needs_cuda())], scope="module"
)
"""Run a test for each target of which there is a device."""
