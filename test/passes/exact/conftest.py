"""What tests of the exact comparison share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirlo.passes.exact.memory import forget_inputs


@pytest.fixture(autouse=True)
def _inputs_of_its_own() -> Iterator[None]:
    """Discard inputs that kernels share: some tests write to them."""
    yield
    forget_inputs()
