"""The device in numpy, in place of the simulator: the same bits, in a moment."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest
from mirlo_tensix import loader
from mirlo_tensix.cores import SharedProduct
from mirlo_tensix.simulator import PROGRAMS, Cycles, places_of
from mirlo_tensix.unit import DTYPES, Bits
from mirlo_tensix.work import Work
from model import bits_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="tests that simulate many cycles, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("nightly") and not config.getoption("--nightly"):
            item.add_marker(pytest.mark.skip(reason="simulates many cycles: --nightly"))


@functools.lru_cache(maxsize=2048)
def _result_of(work: Work, *operands: bytes) -> Bits:
    """Return the result of work: check-target calls a region ten times with two sets of operands."""
    return bits_of(work, *(np.frombuffer(content, DTYPES[work.format]) for content in operands))


class NumpyMachine:
    """A device in numpy: L1 as bytes, to which work writes what the units compute."""

    def __init__(self, *options: object) -> None:
        self.l1 = bytearray(PROGRAMS)

    def __enter__(self) -> NumpyMachine:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def write(self, at: int, bits: Bits) -> None:
        content = bits.tobytes()
        assert at + len(content) <= PROGRAMS
        self.l1[at : at + len(content)] = content

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.l1[at : at + size])

    def run(self, work: Work, places: Sequence[int]) -> Cycles:
        assert all(at + size <= PROGRAMS for at, size in zip(places, work.tensor_bytes, strict=True))
        operands = (self.read(*each) for each in zip(places[:-1], work.tensor_bytes[:-1], strict=True))
        self.write(places[-1], _result_of(work, *operands))
        code = work.threads(places)
        return Cycles(code.estimated, code.floor, code.busy)

    def run_shared(self, work: SharedProduct, left: Bits, right: Bits, ones: Bits | None) -> tuple[bytes, Cycles]:
        part = work.part
        size = left.size // work.cores
        results = [bits_of(part, left[i * size : (i + 1) * size], right.reshape(-1), ones) for i in range(work.cores)]
        code = part.threads(places_of(part))
        return b"".join(each.tobytes() for each in results), Cycles(code.estimated, code.floor, code.busy)


@pytest.fixture
def unit_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "Machine", NumpyMachine)


@pytest.fixture
def numpy_machine() -> type[NumpyMachine]:
    return NumpyMachine
