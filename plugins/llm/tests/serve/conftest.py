"""Keeps the garbage collector short for servers that unload models."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def lasting_objects() -> None:
    """Keep the garbage collector, which runs when a server unloads a model, from going through all that tests load.

    `mirlo serve` does the same when it starts.
    """
    gc.freeze()
