"""Lets the tests of this folder import what they share, and servers that unload models find little to look at."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def lasting_objects() -> None:
    """Keep the garbage collector, which runs when a server unloads a model, from going through all that tests load.

    `mirlo serve` does the same when it starts.
    """
    gc.freeze()
