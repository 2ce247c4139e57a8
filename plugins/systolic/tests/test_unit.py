"""The RTL: layers as commands, compared with integers in numpy; errors; cycles."""

from __future__ import annotations

import numpy as np
import pytest
from mirlo_systolic import simulator
from mirlo_systolic.commands import SIZE, Memory, Mode, Program, Queue, Rows
from mirlo_systolic.layers import Block, Emitter, Image, Layer, Product, Tiling, parameters
from mirlo_systolic.regions import dense, depthwise

pytestmark = pytest.mark.skipif(
    bool(simulator.missing_tools()), reason=f"install {', '.join(simulator.missing_tools())}"
)


class Bench:
    """Main memory, filled from the beginning."""

    def __init__(self) -> None:
        self.content = bytearray()

    def put(self, content: bytes) -> int:
        self.content += bytes(-len(self.content) % 16)
        address = len(self.content)
        self.content += content
        return address

    def run(self, layer: Layer) -> tuple[np.ndarray, simulator.Step]:
        memory = np.frombuffer(bytes(self.content) + bytes(16), np.uint8).copy()
        emitter = Emitter()
        emitter.layer(layer)
        emitter.barrier()
        (step,) = simulator.execute(memory, emitter.program.content(), 1)
        size = int(np.prod(layer.size))
        return memory[layer.output : layer.output + size].view(np.int8).reshape(layer.size), step


def requantized(accumulators: np.ndarray, packed: bytes, limits: tuple[int, int, int]) -> np.ndarray:
    """Return what parameters make of accumulators, by integers."""
    columns = np.frombuffer(packed, np.uint8).reshape(-1, 32)[: accumulators.shape[-1]]
    first, addend = (
        columns[:, at : at + size].copy().view(kind)[:, 0] for at, size, kind in ((0, 4, "i4"), (16, 8, "i8"))
    )
    shift = columns[:, 8].astype(np.int64)
    totals = accumulators * first.astype(np.int64) + addend
    low = totals >> shift
    rest, half = totals - (low << shift), 1 << (shift - 1)
    rounded = low + ((rest > half) | ((rest == half) & (low % 2 == 1)))
    return np.clip(rounded + limits[0], *limits[1:]).astype(np.int8)


def image(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def windows(x: np.ndarray, pad: int, fill: int, kernel: int, stride: int, dilation: int = 1) -> np.ndarray:
    """Return the values of taps, [taps, rows, columns, channels]."""
    padded = np.pad(x, ((pad, pad), (pad, pad), (0, 0)), constant_values=fill).astype(np.int64)
    reach = (kernel - 1) * dilation + 1
    rows, columns = ((size - reach) // stride + 1 for size in padded.shape[:2])
    return np.stack([
        padded[i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(0, reach, dilation)
        for j in range(0, reach, dilation)
    ])  # fmt: skip


def convolution(
    shape: tuple[int, int, int], columns: int, kernel: int, stride: int, pad: int, tiling: Tiling, deep: bool = True,
    dilation: int = 1,
) -> simulator.Step:  # fmt: skip
    """Run a convolution, and check its results."""
    rng, bench, limits = np.random.default_rng(0), Bench(), (3, -100, 127)
    x, taps = image(rng, *shape), [(i * dilation, j * dilation) for i in range(kernel) for j in range(kernel)]
    read = windows(x, pad, -7, kernel, stride, dilation)
    if deep:
        weights = image(rng, len(taps), shape[2], columns)
        packed, groups = dense(weights, taps)
        sums = sum(a.astype(np.float64) @ b.astype(np.float64) for a, b in zip(read, weights, strict=True))
    else:
        weights = image(rng, len(taps), columns)
        packed, groups = depthwise(weights, taps)
        sums = sum(a * b for a, b in zip(read, weights, strict=True))
    accumulators = np.asarray(sums).astype(np.int64)
    scale = 60 / (np.abs(accumulators).max() + 1)
    constants = parameters(rng.uniform(0.5, 2, columns) * scale, rng.uniform(-9, 9, columns))
    reach = (kernel - 1) * dilation + 1
    layer = Layer(
        (Image(bench.put(x.tobytes()), *shape, (pad,) * 4, -7),), groups, bench.put(packed), bench.put(constants),
        bench.put(bytes(accumulators.size)), accumulators.shape, (stride, stride), (reach, reach), limits, 1, tiling,
    )  # fmt: skip
    found, step = bench.run(layer)
    np.testing.assert_array_equal(found, requantized(accumulators, constants, limits))
    return step


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize(
    ("shape", "columns", "kernel", "stride", "pad", "tiling"),
    [
        ((4, 4, 16), 16, 1, 1, 0, Tiling()),
        ((5, 6, 20), 20, 1, 1, 0, Tiling()),
        ((1, 1, 3), 3, 1, 1, 0, Tiling()),
        ((9, 8, 40), 40, 3, 1, 1, Tiling(rows=2, chunk=1)),
        ((9, 8, 24), 24, 3, 2, 1, Tiling()),
        ((13, 12, 33), 33, 3, 1, 2, Tiling(rows=3, chunk=4)),
        ((11, 11, 17), 17, 5, 3, 2, Tiling(rows=1, chunk=16)),
    ],
)
def test_convolutions(
    shape: tuple[int, int, int], columns: int, kernel: int, stride: int, pad: int, tiling: Tiling, deep: bool
) -> None:
    convolution(shape, columns, kernel, stride, pad, tiling, deep)


def test_dilations() -> None:
    convolution((12, 12, 16), 16, 3, 1, 2, Tiling(), dilation=2)


@pytest.mark.parametrize(
    ("shape", "columns", "kernel"),
    [((7, 7, 512), 512, 1), ((14, 14, 128), 256, 3)],
)
def test_the_array_is_busy(shape: tuple[int, int, int], columns: int, kernel: int) -> None:
    step = convolution(shape, columns, kernel, 1, kernel // 2, Tiling())
    products = shape[0] * shape[1] * shape[2] * columns * kernel**2
    assert step.array == products / 256
    assert products / 256 / step.cycles > 0.7


def test_the_largest_of_a_window() -> None:
    rng, bench = np.random.default_rng(1), Bench()
    x = image(rng, 8, 8, 16)
    products = tuple(
        Product(0, (i, j), 0, 0, 0, Mode.MAXIMUM if i or j else Mode.STORE) for i in range(2) for j in range(2)
    )
    layer = Layer(
        (Image(bench.put(x.tobytes()), 8, 8, 16),), ((Block(0, products),),),
        bench.put(np.eye(SIZE, dtype=np.int8).tobytes()), bench.put(parameters(np.ones(16), np.zeros(16))),
        bench.put(bytes(4 * 4 * 16)), (4, 4, 16), (2, 2), (2, 2), (0, -128, 127),
    )  # fmt: skip
    found, _ = bench.run(layer)
    np.testing.assert_array_equal(found, windows(x, 0, 0, 2, 2).max(0))


def test_halves_are_rounded_to_even() -> None:
    bench = Bench()
    x = np.arange(-64, 64, dtype=np.int8).reshape(8, 1, 16)
    layer = Layer(
        (Image(bench.put(x.tobytes()), 8, 1, 16),), ((Block(0, (Product(0, (0, 0), 0, 0, 0, Mode.STORE),)),),),
        bench.put(np.eye(SIZE, dtype=np.int8).tobytes()), bench.put(parameters(np.full(16, 0.5), np.zeros(16))),
        bench.put(bytes(x.size)), x.shape, (1, 1), (1, 1), (0, -128, 127),
    )  # fmt: skip
    found, _ = bench.run(layer)
    np.testing.assert_array_equal(found, np.rint(x / 2))


def test_a_table() -> None:
    table = np.random.default_rng(2).permutation(256).astype(np.uint8)
    bench, program = Bench(), Program()
    x = np.arange(-128, 128, dtype=np.int16).astype(np.int8)
    places = [
        bench.put(content)
        for content in (x.tobytes(), np.eye(16, dtype=np.int8).tobytes(), parameters(np.ones(16), np.zeros(16)))
    ]
    place, output = bench.put(table.tobytes()), bench.put(bytes(256))
    program.load(Rows(places[0], 16, 16), 0)
    program.load(Rows(places[2], 16, 32), 0, Memory.PARAMETERS)
    program.load(Rows(place, 16, 16), 32, Memory.PARAMETERS)
    program.load(Rows(places[1], 16, 16), 0, Memory.WEIGHTS, to=[Queue.ARRAY])
    program.wait(Queue.ARRAY, Queue.LOAD, 1)
    program.weights(0)
    program.multiply(0, 0, (16, 1), (1, 0), Mode.STORE, None, [Queue.REQUANTIZE])
    program.wait(Queue.REQUANTIZE, Queue.ARRAY, 1)
    program.table(32)
    program.requantize(0, None, 16, 0, 0, (0, -128, 127), table=True, to=[Queue.STORE])
    program.wait(Queue.STORE, Queue.REQUANTIZE, 1)
    program.store(Rows(output, 16, 16), 0)
    program.barrier()
    memory = np.frombuffer(bytes(bench.content), np.uint8).copy()
    simulator.execute(memory, program.content(), 1)
    np.testing.assert_array_equal(memory[output:], table[x.view(np.uint8)])


def test_the_same_commands_take_the_same_cycles() -> None:
    steps = {convolution((9, 8, 24), 24, 3, 2, 1, Tiling()) for _ in range(2)}
    assert len(steps) == 1


def test_a_wait_for_nothing_is_an_error() -> None:
    program = Program()
    program.wait(Queue.ARRAY, Queue.LOAD, 1)
    program.weights(0)
    with pytest.raises(simulator.SimulatorError, match="a queue waits for a token that no other gives"):
        simulator.execute(np.zeros(64, np.uint8), program.content())


def test_an_address_outside_is_an_error() -> None:
    program = Program()
    program.load(Rows(1 << 20, 16, 4), 0)
    with pytest.raises(simulator.SimulatorError, match="outside of its memory"):
        simulator.execute(np.zeros(64, np.uint8), program.content())


@pytest.mark.parametrize("program", [b"", b"SYST", bytes(64)])
def test_a_damaged_program_is_an_error(program: bytes) -> None:
    with pytest.raises(simulator.SimulatorError, match="damaged"):
        simulator.call(program, (), 0)


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    simulator.library_path.cache_clear()
    with pytest.raises(simulator.SimulatorError, match="the simulator needs verilator, make, g"):
        simulator.library_path()
    simulator.library_path.cache_clear()
