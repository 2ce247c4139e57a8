"""Keeps what servers of tests change in the process from the tests after them."""

import gc
from collections.abc import Iterator

import pytest
from served import usual_interpreter


@pytest.fixture(scope="module", autouse=True)
def interpreter() -> Iterator[None]:
    """Keep the garbage collector, which runs when a server unloads a model, from going through all that tests load.

    `mirlo serve` does the same when it starts. After the tests of a module no server of theirs compiles any more.
    """
    gc.freeze()
    with usual_interpreter():
        yield
