"""Tests that need a Vulkan device: a software one will do."""

from __future__ import annotations

from functools import cache

import pytest

from mirlo.runtime.errors import MirloError


@cache
def _missing() -> str:
    """Why there is no device; nothing if there is one."""
    from mirlo.targets.spirv.vulkan import device

    try:
        device()
    except MirloError as error:
        return str(error)
    return ""


def needs_vulkan() -> pytest.MarkDecorator:
    """Skip the tests of a module, and say so, where there is no Vulkan device."""
    reason = _missing()
    return pytest.mark.skipif(bool(reason), reason=f"no Vulkan device: {reason}")
