"""The fixture that checks a case of a table; the selected cases of a file are compiled together."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="module")
def tested(request: pytest.FixtureRequest) -> list[int]:
    """Return the cases of a file's table that are run."""
    own = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.module is request.module
    ]
    return [item.callspec.params["index"] for item in own if "index" in getattr(item, "fixturenames", ())]


@pytest.fixture
def check(request: pytest.FixtureRequest, tested: list[int]) -> Callable[[int], None]:
    return lambda index: request.module.RUNNER.check(index, tested)
