"""The RTL: layers as commands, compared with integers in numpy; errors; cycles."""

from __future__ import annotations

import random

import numpy as np
import pytest
from mirlo_systolic import simulator
from mirlo_systolic.commands import (
    Command,
    Memory,
    Mode,
    Op,
    Queue,
    Rows,
    content,
    load_rows,
    load_table,
    multiply_rows,
    requantize_rows,
    store_rows,
)
from mirlo_systolic.functions import Shape, sum_of_two, window_maxima, window_products
from mirlo_systolic.layers import Layer, Tiling, parameters
from mirlo_systolic.queues import Program
from mirlo_systolic.regions import IDENTITY, contiguous, dense, depthwise

import mirlo
from mirlo import R

pytestmark = pytest.mark.skipif(
    bool(simulator.missing_tools()), reason=f"install {', '.join(simulator.missing_tools())}"
)


class Bench:
    """Main memory, allocated from the start."""

    def __init__(self) -> None:
        self.content = bytearray()

    def put(self, content: bytes) -> int:
        self.content += bytes(-len(self.content) % 16)
        address = len(self.content)
        self.content += content
        return address

    def run(self, layer: Layer) -> tuple[np.ndarray, simulator.Step]:
        memory = np.frombuffer(bytes(self.content) + bytes(16), np.uint8).copy()
        program = Program()
        program.step(layer.commands())
        (step,) = simulator.execute(memory, program.content(), 1)
        size = int(np.prod(layer.shape.size))
        return memory[layer.output : layer.output + size].view(np.int8).reshape(layer.shape.size), step


def requantized(accumulators: np.ndarray, packed: bytes, limits: tuple[int, int, int]) -> np.ndarray:
    """Return the requantization of accumulators by parameters, in integers."""
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
    x = image(rng, *shape)
    read = windows(x, pad, -7, kernel, stride, dilation)
    if deep:
        weights = image(rng, kernel**2, shape[2], columns)
        packed = dense(weights)
        sums = sum(a.astype(np.float64) @ b.astype(np.float64) for a, b in zip(read, weights, strict=True))
    else:
        weights = image(rng, kernel**2, columns)
        packed = depthwise(weights)
        sums = sum(a * b for a, b in zip(read, weights, strict=True))
    accumulators = np.asarray(sums).astype(np.int64)
    scale = 60 / (np.abs(accumulators).max() + 1)
    constants = parameters(rng.uniform(0.5, 2, columns) * scale, rng.uniform(-9, 9, columns))
    sizes = Shape(
        shape, accumulators.shape, (kernel, kernel), (stride, stride), (dilation, dilation), (pad, pad), -7, deep,
        limits=limits,
    )  # fmt: skip
    layer = Layer(
        window_products, sizes, (contiguous(bench.put(x.tobytes()), shape),), bench.put(packed), bench.put(constants),
        bench.put(bytes(accumulators.size)), tiling,
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


@pytest.mark.parametrize("pad", [0, 1])
def test_the_largest_of_a_window(pad: int) -> None:
    rng, bench = np.random.default_rng(1), Bench()
    x = image(rng, 8, 8, 20)
    expected = windows(x, pad, -128, 2, 2).max(0)
    shape = Shape(x.shape, expected.shape, (2, 2), (2, 2), (1, 1), (pad, pad), -128, is_deep=False, is_shared=True)
    layer = Layer(
        window_maxima, shape, (contiguous(bench.put(x.tobytes()), x.shape),), bench.put(IDENTITY),
        bench.put(parameters(np.ones(20), np.zeros(20))), bench.put(bytes(expected.size)), Tiling(rows=3),
    )  # fmt: skip
    found, _ = bench.run(layer)
    np.testing.assert_array_equal(found, expected)


def test_a_sum() -> None:
    rng, bench = np.random.default_rng(1), Bench()
    a, b = image(rng, 50, 1, 16), image(rng, 50, 1, 16)
    layer = Layer(
        sum_of_two, Shape(a.shape, a.shape, is_shared=True),
        tuple(contiguous(bench.put(each.tobytes()), a.shape) for each in (a, b)), bench.put(IDENTITY),
        bench.put(parameters(np.full(16, 0.25), np.full(16, 3.0), np.full(16, 0.5))), bench.put(bytes(a.size)),
        Tiling(rows=7),
    )  # fmt: skip
    found, _ = bench.run(layer)
    np.testing.assert_array_equal(found, np.rint(a / 4 + b / 2 + 3).clip(-128, 127))


def test_halves_are_rounded_to_even() -> None:
    bench = Bench()
    x = np.arange(-64, 64, dtype=np.int8).reshape(8, 1, 16)
    layer = Layer(
        window_products, Shape(x.shape, x.shape, is_shared=True), (contiguous(bench.put(x.tobytes()), x.shape),),
        bench.put(IDENTITY), bench.put(parameters(np.full(16, 0.5), np.zeros(16))), bench.put(bytes(x.size)),
    )  # fmt: skip
    found, _ = bench.run(layer)
    np.testing.assert_array_equal(found, np.rint(x / 2))


def test_a_table() -> None:
    table = np.random.default_rng(2).permutation(256).astype(np.uint8)
    bench, program = Bench(), Program()
    x = np.arange(-128, 128, dtype=np.int16).astype(np.int8)
    places = [bench.put(each) for each in (x.tobytes(), IDENTITY, parameters(np.ones(16), np.zeros(16)))]
    place, output = bench.put(table.tobytes()), bench.put(bytes(256))
    program.step(
        [
            load_rows(Rows(places[0], 16, 16), 0, Memory.DATA),
            load_rows(Rows(places[2], 16, 32), 0, Memory.PARAMETERS),
            load_table(place, 32),
            Command.table(32),
            load_rows(Rows(places[1], 16, 16), 0, Memory.WEIGHTS),
            multiply_rows(0, 0, (16, 1), (1, 0), Mode.STORE, 0, linked=True),
            requantize_rows(0, None, 16, 0, 0, (0, -128, 127), table=True),
            store_rows(Rows(output, 16, 16), 0),
        ]
    )
    memory = np.frombuffer(bytes(bench.content), np.uint8).copy()
    simulator.execute(memory, program.content(), 1)
    np.testing.assert_array_equal(memory[output:], table[x.view(np.uint8)])


def _shapes() -> list[tuple[Shape, Tiling]]:
    rng, result = random.Random(3), []
    for _ in range(16):
        window, strides, dilations = ((rng.randint(1, 3), rng.randint(1, 3)) for _ in range(3))
        padding, channels = (rng.randint(0, 1), rng.randint(0, 1)), rng.choice([3, 16, 40])
        image_size = rng.randint(9, 14), rng.randint(9, 14)
        size = tuple(
            (image_size[i] + padding[i] - (window[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in (0, 1)
        )
        is_deep, is_shared = rng.choice([(True, False), (False, False), (False, True)])
        columns = rng.choice([5, 16, 37]) if is_deep else channels
        shape = Shape(
            (*image_size, channels), (*size, columns), window, strides, dilations, padding, rng.randint(-9, 9),
            is_deep, is_shared, (rng.randint(-9, 9), rng.randint(-128, -90), rng.randint(80, 127)),
        )  # fmt: skip
        result.append((shape, Tiling(rng.randint(0, 4), rng.choice([1, 4, 64]), rng.random() < 0.5)))
    return result


@pytest.mark.parametrize(("shape", "tiling"), _shapes())
def test_layers_compute_what_their_functions_mean(shape: Shape, tiling: Tiling) -> None:
    """The functions without a schedule are the reference, computed on the CPU."""
    rng, bench = np.random.default_rng(4), Bench()
    _, _, blocks = shape.blocks
    x = image(rng, *shape.image)
    function = window_products(shape)
    if shape.is_deep:
        weights = image(rng, shape.window[0] * shape.window[1], shape.image[2], shape.size[2])
        packed = np.frombuffer(dense(weights), np.int8).reshape(blocks, shape.taps, 16, 16)
    else:
        matrices = (1, 1) if shape.is_shared else (blocks, shape.taps)
        packed = image(rng, *matrices, 16, 16) * np.eye(16, dtype=np.int8)
    constants = np.frombuffer(
        parameters(rng.uniform(0.0001, 0.004, shape.size[2]), rng.uniform(-9, 9, shape.size[2])), np.int64
    ).reshape(blocks, 16, 4)

    @mirlo.script
    def model(x: R.Tensor[shape.image, R.i8], w: R.Tensor[packed.shape, R.i8], p: R.Tensor[constants.shape, R.i64]):
        return R.call_tir(function, x, w, p)

    expected = mirlo.compile(model, cache=False)(x, packed, constants)
    layer = Layer(
        window_products, shape, (contiguous(bench.put(x.tobytes()), x.shape),), bench.put(packed.tobytes()),
        bench.put(constants.tobytes()), bench.put(bytes(int(np.prod(shape.size)))), tiling,
    )  # fmt: skip
    found, _ = bench.run(layer)
    np.testing.assert_array_equal(found, expected.reshape(*shape.size[:2], -1)[..., : shape.size[2]])


def test_queues_wait_for_what_they_read_and_overwrite() -> None:
    shape = Shape((8, 8, 32), (8, 8, 32), (3, 3), padding=(1, 1))
    layer = Layer(window_products, shape, (contiguous(0, shape.image),), 4096, 32768, 40960, Tiling(rows=2, chunk=4))
    program = Program()
    program.step(layer.commands())
    queues = {queue: [each for each in program.commands if each.queue is queue] for queue in Queue}
    tokens = {(one, other): 0 for one in Queue for other in Queue}
    for command in program.commands:  # no command waits for a token that a later one gives
        for giver in command.waits:
            assert abs(giver - command.queue) == 1
            tokens[giver, command.queue] -= 1
            assert tokens[giver, command.queue] >= 0
        for taker in command.gives:
            tokens[command.queue, taker] += 1
    assert len(queues[Queue.ARRAY]) == 1 + 4 * 2 * 18
    assert [each.op for each in queues[Queue.ARRAY]].count(Op.WEIGHTS) == 1, "products announce the weights behind them"
    assert all(value == 0 for value in tokens.values())


def test_the_same_commands_take_the_same_cycles() -> None:
    steps = {convolution((9, 8, 24), 24, 3, 2, 1, Tiling()) for _ in range(2)}
    assert len(steps) == 1


def test_a_wait_for_nothing_is_an_error() -> None:
    command = Command.take(0)
    command.waits.add(Queue.LOAD)
    with pytest.raises(simulator.SimulatorError, match="a queue waits for a token that no other gives"):
        simulator.execute(np.zeros(64, np.uint8), content([command]))


def test_an_address_outside_is_an_error() -> None:
    command = load_rows(Rows(1 << 20, 16, 4), 0, Memory.DATA)
    with pytest.raises(simulator.SimulatorError, match="outside of its memory"):
        simulator.execute(np.zeros(64, np.uint8), content([command]))


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
