"""The core in numpy, in place of the simulator: the same bits, in a moment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mirlo_tensix import loader
from mirlo_tensix.kernels import VectorWork, kernel_bits
from mirlo_tensix.simulator import Cycles, Work, place
from mirlo_tensix.unit import Bits, from_tiles, product_bits, to_tiles


def execute_in_numpy(work: Work, *operands: Bits, **_: object) -> tuple[Bits, Cycles]:
    """Compute the tiles of the result of a piece of work."""
    code = work.threads(place(work).tensors)
    cycles = Cycles(work.limit, code.floor, code.busy)
    if isinstance(work, VectorWork):
        sizes = [(1 if is_row else work.m, work.n) for is_row in work.operands]
        matrices = [from_tiles(each, 32 * m, 32 * n) for each, (m, n) in zip(operands, sizes, strict=True)]
        found = kernel_bits(work, *matrices)
        result = np.zeros((32 * work.m, 32 * work.result_shape[1]), found.dtype)
        result[:, : found.shape[1]] = found
        return to_tiles(result), cycles
    return to_tiles(product_of(work, *operands)), cycles


def product_of(work: Work, left: Bits, right: Bits) -> Bits:
    """Compute a product, whose left operand may be planes of pixels."""
    windows, rows = work.windows, 32 * work.m
    if windows is None:
        matrix = from_tiles(left, rows, 32 * work.k)
    else:
        planes = [left[plane + i, shift : shift + rows] for plane, shift in windows.tiles for i in range(2)]
        matrix = np.concatenate(planes, 1)
    return product_bits(matrix, from_tiles(right, 32 * work.k, 32 * work.n), work.phases, work.activation)


@pytest.fixture
def unit_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "execute", execute_in_numpy)


@pytest.fixture(name="product_of")
def _product_of() -> Callable[..., Bits]:
    return product_of


@pytest.fixture
def in_numpy() -> Callable[..., Bits]:
    return lambda *each: execute_in_numpy(*each)[0]
