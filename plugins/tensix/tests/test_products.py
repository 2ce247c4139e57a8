"""Products on the core: commands, bits and cycles, and models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from mirlo_tensix import simulator
from mirlo_tensix.generator import Tensix
from mirlo_tensix.instructions import BLOCKS, FORMATS, SUMS_READY, op, post
from mirlo_tensix.kernels import Move, VectorWork
from mirlo_tensix.layouts import CLASSES, Run
from mirlo_tensix.products import FACE, Product, tiled_product
from mirlo_tensix.riscv import Program, program_of
from mirlo_tensix.simulator import Machine, SimulatorError, execute, measure, places_of
from mirlo_tensix.unit import from_bits, from_tiles, to_bits, to_tiles
from mirlo_tensix.work import UNPACK, Threads, Work, synchronized, threads
from model import packed, product_bits
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo import R
from mirlo.extend.runtime import records_of_json
from mirlo.testing import placement_of

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")


def drawn(seed: int, *shape: int, dtype: str = "bf16") -> np.ndarray:
    return to_bits(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), FORMATS[dtype])


def model_file(path: Path, rows: tuple[int, ...] = (2, 20), kind: int = TensorProto.FLOAT) -> Path:
    """Write a layer of 48 to 70 columns with a bias and ReLU, and one to 10."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((48, 70)) / 7,
        "b1": rng.standard_normal(70),
        "w2": rng.standard_normal((70, 10)),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="up"),
        helper.make_node("Add", ["h", "b1"], ["hb"], name="bias"),
        helper.make_node("Relu", ["hb"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="down"),
    ]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    ends = [[helper.make_tensor_value_info(name, kind, (*rows, width))] for name, width in (("x", 48), ("y", 10))]
    constants = [numpy_helper.from_array(value.astype(dtype), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "layers", *ends, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_commands_load_five_tiles_for_a_block_of_four_products() -> None:
    commands, steps = synchronized(Product(2, 2, 3))
    loads = [command for command in commands if command.queued.queue == UNPACK]
    assert len(loads) == 3 * 5 and sum(command.kind == "multiply" for command in commands) == 3 * 4
    assert len(steps) == len(commands)


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 1, 2), (2, 5, 1), (4, 6, 2)])
def test_commands_of_every_block_are_synchronized(size: tuple[int, int, int]) -> None:
    for block in Product(*size).blocks():
        product = Product(*size, block=block)
        code = product.threads(places_of(product))
        assert code.busy["matrix"] == product.mvmuls and 64 * code.busy["packers"] == product.tensor_bytes[-1]
        assert max(code.floor, product.mvmuls) <= code.estimated


def test_commands_of_the_largest_product_have_room_in_memory() -> None:
    product = Product(12, 12, 12, 4, "gelu", (1, 1))
    programs = [program_of(words, False) for words in product.threads(places_of(product)).words]
    assert simulator.PROGRAMS + sum(len(each.code) for each in programs) < simulator.L1_BYTES
    with pytest.raises(SimulatorError, match=r"take \d+ bytes of L1, of which 917504 are for them"):
        places_of(Product(13, 13, 13))


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (Product(8, 8, 8), Product(12, 12, 12)),
        (Product(10, 10, 4, has_bias=True), Product(14, 14, 5, has_bias=True)),
        (VectorWork("exp", 4, 4), VectorWork("exp", 12, 16)),
        (VectorWork("softmax", 4, 4, columns=128), VectorWork("softmax", 24, 8, columns=256)),
        (Move(tuple(range(40))), Move(tuple(range(200)))),
    ],
    ids=str,
)
def test_commands_of_large_work_are_programs_as_short_as_those_of_small_work(small: Work, large: Work) -> None:
    sizes = [
        [len(program_of(words, False).code) for words in work.threads(places_of(work)).words] for work in (small, large)
    ]
    assert all(many <= 1.1 * few for few, many in zip(*sizes, strict=True)), sizes


def test_commands_do_not_sum_onto_a_block_before_its_sum_is_ready() -> None:
    for first, row in enumerate(BLOCKS):
        assert row not in BLOCKS[first + 1 : first + 5]


def test_bits_of_the_packers_round_halves_away_and_flush_denormals() -> None:
    values = np.array([0x3F808000, 0x3F807FFF, 0xBF808000, 0x00400000, 0x7FC00001], np.uint32)
    assert [f"{bits:04x}" for bits in packed(values)] == ["3f81", "3f80", "bf81", "0000", "7f80"]


def test_bits_of_small_integers_are_exact_in_one_phase() -> None:
    a, b = (np.random.default_rng(i).integers(-15, 16, (33, 33)).astype(np.float32) for i in range(2))
    found = product_bits(to_bits(a, FORMATS["bf16"]), to_bits(b, FORMATS["bf16"]), 1)
    np.testing.assert_array_equal(found, packed((a @ b).view(np.uint32)))


def test_bits_of_tiles_are_those_of_the_matrix() -> None:
    matrix = drawn(0, 40, 70)
    tiles = to_tiles(matrix)
    assert tiles.shape == (2, 3, *FACE)
    np.testing.assert_array_equal(from_tiles(tiles, 40, 70), matrix)


def test_fields_of_instructions_are_checked() -> None:
    with pytest.raises(ValueError, match="field dst of MVMUL is 1024: expected 10 bits"):
        op("MVMUL", dst=1024)


def test_a_missing_simulator_is_an_error_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "missing", lambda: "pip install 'mirlo-tensix[simulator]'")
    with pytest.raises(SimulatorError, match=r"simulated by wolfpine: pip install 'mirlo-tensix\[simulator\]'"):
        execute(Product(1, 1, 1), to_tiles(drawn(0, 32, 32)), to_tiles(drawn(1, 32, 32)))


def test_what_is_declined_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"phases is 5: expected 1 to 4"):
        Tensix(phases=5)
    placed = placement_of(model_file(tmp_path / "f64.onnx", kind=TensorProto.DOUBLE), "tensix,llvm")
    assert "operands must be f32, which the core rounds" in str(placed)


@needs_simulator
@pytest.mark.parametrize(
    ("size", "phases", "activation", "dtype"),
    [
        ((32, 32, 64), 1, None, "bf16"),
        ((50, 40, 70), 4, "relu", "bf16"),
        ((64, 64, 64), 2, None, "bf16"),
        ((40, 64, 32), 2, "gelu", "bf16"),
        ((40, 64, 32), 3, "relu", "tf32"),
        ((20, 32, 40), 1, None, "fp16"),
        ((20, 64, 40), 3, "relu", "fp16"),
    ],
)
def test_results_have_the_bits_of_the_unit(
    size: tuple[int, int, int], phases: int, activation: str | None, dtype: str
) -> None:
    m, n, k = size
    a, b = drawn(0, m, k, dtype=dtype), drawn(1, k, n, dtype=dtype)
    product = Product(-(-m // 32), -(-n // 32), -(-k // 32), phases, activation, format=dtype)
    tiles, cycles = execute(product, to_tiles(a), to_tiles(b))
    found = from_tiles(tiles, 32 * product.m, 32 * product.n)
    np.testing.assert_array_equal(found[:m, :n], product_bits(a, b, phases, activation))
    assert cycles.busy["matrix"] == product.mvmuls < cycles.simulated <= cycles.bound


@needs_simulator
def test_small_integers_are_those_of_the_same_schedule_on_the_cpu() -> None:
    layer, rng = tiled_product(2, 2, 1), np.random.default_rng(0)

    @mirlo.script
    def model(x: R.Tensor[(2, 1, *FACE), R.bf16], w: R.Tensor[(1, 2, *FACE), R.bf16]):
        return R.call_tir(layer, x, w)

    x, w = (rng.integers(-3, 4, (*size, *FACE)).astype(ml_dtypes.bfloat16) for size in ((2, 1), (1, 2)))
    product = Product(2, 2, 1, phases=1)
    loops = mirlo.compile(model, schedules={"product": product.schedule().trace}, cache=False)(x, w)
    tiles, _ = execute(product, x.view(np.uint16), w.view(np.uint16))
    assert tiles.tobytes() == loops.tobytes()


@needs_simulator
def test_the_matrix_unit_is_busy() -> None:
    cycles = measure(Product(4, 4, 4))
    assert cycles.busy["matrix"] >= 0.85 * cycles.bound and cycles.floor <= cycles.busy["matrix"]
    estimated = Product(4, 4, 4).threads((0x20000,) * 4).estimated
    assert abs(estimated - cycles.bound) < 0.2 * cycles.bound


@needs_simulator
def test_a_time_limit_and_threads_without_end_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    product, tiles = Product(1, 1, 1), to_tiles(drawn(0, 32, 32))
    with pytest.raises(SimulatorError, match=r"1 x 1 and 1 x 1 tiles: took more than 0.01 seconds"):
        execute(product, tiles, tiles, machine=Machine(seconds=0.01))
    monkeypatch.setattr(simulator, "program_of", lambda words, last: Program(b"\x6f\0\0\0"))
    shown = list[str]()
    with pytest.raises(SimulatorError, match=r"1 x 1 and 1 x 1 tiles: did not end within 21280 cycles"):
        execute(product, tiles, tiles, machine=Machine(progress=shown.append))
    assert all("a product of 1 x 1 and 1 x 1 tiles: " in each for each in shown)


@needs_simulator
def test_a_deadlock_is_an_error_with_the_unit_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_post(work: Work, places: Sequence[int]) -> Threads:
        loading, computing, packing = threads(work, tuple(places)).words
        return Threads((loading, [each for each in computing if each != post(SUMS_READY)], packing), work.kind)

    def without_products(work: Work, places: Sequence[int]) -> Threads:
        code = threads(work, tuple(places))
        return Threads((code.words[0], code.words[1][:60], code.words[2]), code.kind)

    product, tiles = Product(2, 2, 2), np.zeros((2, 2, *FACE), np.uint16)
    monkeypatch.setattr(Product, "threads", without_post)
    with pytest.raises(SimulatorError, match=r"deadlock in cycle \d+; the packers wait in 'pack tile 0'"):
        execute(product, tiles, tiles)
    monkeypatch.setattr(Product, "threads", without_products)
    message = r"unpacker 0 waits for bank \d of SrcA; .*the unpackers wait in 'unpack tile \d of operand \d'"
    with pytest.raises(SimulatorError, match=message):
        execute(product, tiles, tiles)


@needs_simulator
def test_a_model_runs_on_the_core(tmp_path: Path) -> None:
    path = model_file(tmp_path / "layers.onnx")
    unit, cpu = mirlo.compile(path, "tensix{phases=4},llvm", cache=False), mirlo.compile(path, cache=False)
    x = np.random.default_rng(1).standard_normal((2, 20, 48)).astype(np.float32)
    expected = cpu(x)
    assert np.abs(unit(x) - expected).max() <= 1e-2 * np.abs(expected).max()
    (steps,) = unit.profile(x, repeats=1).device.values()
    assert [step.name for step in steps] == ["relu", "down"]
    assert all(step.amount >= step.details["simulated"] > step.details["matrix"] for step in steps)
    (external,) = unit.artifact.externals
    items = records_of_json(json.loads(external.data)["regions"]["tensix_0"]["items"], CLASSES)
    assert [item.work.m for item in items if isinstance(item, Run)] == [2, 2]


@needs_simulator
def test_products_of_two_tensors_run_one_after_the_other() -> None:
    @mirlo.script
    def model(x: R.Tensor[(2, 16, 24), R.f32], y: R.Tensor[(2, 24, 40), R.f32]):
        return R.matmul(x, y)

    x, y = (from_bits(drawn(i, 2, *size)) for i, size in enumerate(((16, 24), (24, 40))))
    found = mirlo.compile(model, "tensix{phases=4},llvm", cache=False)(x, y)
    np.testing.assert_allclose(found, x @ y, atol=1e-2 * np.abs(x @ y).max())
