"""Targets of packages that tests use where they are installed."""

from __future__ import annotations

import pytest

from mirlo.passes.targets import target_names
from mirlo.runtime.known_packages import install_command


def needs_target(name: str) -> pytest.MarkDecorator:
    """Return a mark for tests that are skipped where a target is not installed."""
    command = install_command("mirlo.targets", name)
    return pytest.mark.skipif(name not in target_names(), reason=f"needs a package: {command}")
