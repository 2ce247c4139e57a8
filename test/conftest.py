"""Tests import the checkout that they are in, whatever is installed, and the modules that they share by plain name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

if ROOT.name == "mirlo":
    sys.path.insert(0, str(ROOT.parent))

SHARED = {path.parent for path in TESTS.rglob("*.py") if not path.name.startswith(("test_", "conftest", "lit."))}
sys.path += sorted(str(folder) for folder in SHARED if folder.name != "Inputs")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="all of what tests take a sample of, as `make nightly` does")


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    """Return whether a test takes all of its cases, not a sample."""
    return bool(request.config.getoption("--whole"))


# What tests compile is kept apart from what the user compiles; the keys hold the sources, so nothing in it is stale.
os.environ["XDG_CACHE_HOME"] = str(ROOT / ".cache" / "tests")
