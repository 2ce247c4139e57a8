"""The vector unit: order and registers of bodies, bits of kernels, and operators of models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mirlo_tensix import region, simulator, vector
from mirlo_tensix.instructions import FORMATS, op
from mirlo_tensix.kernels import Move, VectorWork
from mirlo_tensix.simulator import execute
from mirlo_tensix.unit import Bits, from_bits, from_tiles, to_bits, to_tiles
from mirlo_tensix.vector import BINARY, UNARY, Body
from model import bits_of, evaluate, fma

import mirlo
from mirlo import R
from mirlo.testing import placement_of

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")

erf = np.vectorize(math.erf)
MEANINGS = {
    "exp": np.exp, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / 2**0.5)) / 2, "reciprocal": lambda x: 1 / x,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
}  # fmt: skip
WORKS = [
    VectorWork("softmax", 1, 1, (False, False), 20, has_bias=True, scale=0.25),
    *(VectorWork(name, 1, 1) for name in (*UNARY, "clip 0 6")),
    *(VectorWork(name, 1, 2, (False, True)) for name in BINARY),
    VectorWork("softmax", 1, 2, columns=50),
    VectorWork("layer_norm", 1, 2, (False, True, True), 50, 1e-5, True, True),
    *(VectorWork(f"reduce_{name}", 2, 2, columns=50) for name in ("sum", "mean", "max", "min")),
    *(VectorWork("softmax", 1, 2, columns=50, format=name) for name in ("tf32", "fp16")),
    VectorWork("gelu", 1, 1, format="fp16"),
    VectorWork("sub", 1, 2, (False, True), format="fp16"),
    VectorWork("layer_norm", 1, 2, (False, True, True), 50, 1e-5, True, True, format="fp16"),
]


def computed(function: object, *operands: np.ndarray) -> np.ndarray:
    """Evaluate a function of numbers as the unit does."""
    v = Body()
    v.store(function(v, *(v.load(i) for i in range(len(operands)))), 0)
    tiles = {(i, 0): x.astype(np.float32).view(np.uint32) for i, x in enumerate(operands)}
    evaluate(v, tiles)
    return tiles[0, 0].view(np.float32).astype(np.float64)


def matrices(work: VectorWork) -> list[Bits]:
    """Return operands of whole tiles, filled up beyond the columns of a row."""
    rng, results = np.random.default_rng(0), []
    for is_row in work.operands:
        values = 1 + 2 * rng.standard_normal((1 if is_row else 32 * work.m, 32 * work.n))
        if work.columns:
            values[:, work.columns :] = work.kernel.fill
        results.append(as_packed(np.repeat(values, 32 if is_row else 1, 0).astype(np.float32), work.format))
    return results


def as_packed(values: np.ndarray, dtype: str) -> Bits:
    """Return numbers as the packers write them: those of tf32 have all 32 bits."""
    return values.view(np.uint32) if dtype == "tf32" else to_bits(values, FORMATS[dtype])


@pytest.mark.parametrize("name", MEANINGS)
def test_bits_of_functions_are_near_their_meaning(name: str) -> None:
    x = np.linspace(-9, 9, 2000)
    expected = MEANINGS[name](x.astype(np.float32).astype(np.float64))
    found = computed(UNARY[name], x)
    assert np.abs((found - expected) / np.maximum(np.abs(expected), 1)).max() < 4e-5


def test_bits_of_multiply_add_have_three_more_bits_than_the_operands() -> None:
    x, y, z = (np.random.default_rng(i).standard_normal(10_000).astype(np.float32) for i in range(3))
    exact = x.astype(np.float64) * y + z
    found = fma(*(each.view(np.uint32) for each in (x, y, z))).view(np.float32)
    most = np.maximum(np.abs(x * y), np.abs(z))
    assert (np.abs(found - exact) / most).max() <= 2.0**-23


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_commands_of_bodies_wait_for_no_result(work: VectorWork) -> None:
    registers = vector.configured(work.kernel.bodies)
    for body in work.kernel.bodies:
        words = vector.instructions(body, registers).repeated
        assert words.count(op("SFPNOP")) <= 0.5 * len(words)
        for first, second in zip(words, words[1:], strict=False):
            if first >> 24 == 0x84:  # a product: the next word must not read its register
                written = first >> 4 & 15
                reads = {0x84: (8, 12, 16), 0x72: (20,), 0x92: (4, 8), 0x94: (8,), 0x7A: (4,), 0x79: (4, 8), 0x7C: (8,)}
                assert written not in {second >> at & 15 for at in reads.get(second >> 24, ())}


def test_commands_of_too_many_values_are_an_error() -> None:
    v = Body()
    values = [v.load(0, part) for part in range(4)] + [v.load(1, part) for part in range(4)] + [v.load(2)]
    for each in reversed(values):
        v.store(v.add(v.add(values[0], values[-1]), each), 2, 3)
    with pytest.raises(ValueError, match=r"a body of \d+ operations needs more than 8 registers"):
        vector.instructions(v, vector.configured([v]))


def test_what_is_declined_on_the_vector_unit_has_a_reason() -> None:
    @mirlo.script
    def model(x: R.Tensor[(4, 8), R.f32], y: R.Tensor[(4, 8), R.f64]):
        return R.softmax(x, axis=0), R.add(y, y)

    placed = str(placement_of(model, "tensix,llvm"))
    assert "rows are the last dims" in placed and "operands must be f32, which the core rounds" in placed


@needs_simulator
@pytest.mark.parametrize("work", WORKS, ids=str)
def test_results_have_the_bits_of_the_vector_unit(work: VectorWork) -> None:
    operands = [to_tiles(each) for each in matrices(work)]
    tiles, cycles = execute(work, *operands)
    columns = 1 if work.result_columns < work.n else 32 * work.n
    size = 32 * work.m, 32 * work.result_columns
    found, expected = (from_tiles(each, *size)[:, :columns] for each in (tiles, bits_of(work, *operands)))
    np.testing.assert_array_equal(found, expected)
    assert abs(work.threads((0x20000,) * (len(operands) + 1)).estimated - cycles.bound) < 0.5 * cycles.bound


def test_fp16_has_numbers_up_to_its_largest_exponent() -> None:
    """Numbers beyond it are the largest, also infinities and NaN; those below the least exponent are zero."""
    values = np.array([65504, 65536, -99968, 131008, 2e5, -np.inf, np.nan, 2**-14, 2**-15, -(2**-15), 0], np.float32)
    expected = np.array([65504, 65536, -99968, 131008, 131008, -131008, 131008, 2**-14, 0, 0, 0], np.float32)
    np.testing.assert_array_equal(from_bits(to_bits(values, FORMATS["fp16"])), expected)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = from_bits(every)
    assert np.isfinite(numbers).all()
    np.testing.assert_array_equal(from_bits(to_bits(numbers, FORMATS["fp16"])), numbers)
    usual = (every.view(np.uint16) >> 10 & 31 > 0) & (every.view(np.uint16) >> 10 & 31 < 31)
    np.testing.assert_array_equal(numbers[usual], every[usual].astype(np.float32))


@needs_simulator
def test_sums_beyond_65504_are_numbers_of_fp16() -> None:
    work = VectorWork("add", 1, 1, (False, False), format="fp16")
    rng = np.random.default_rng(0)
    x, y = (to_tiles(to_bits(rng.uniform(-9e4, 9e4, (32, 32)).astype(np.float32), work.kind)) for _ in "xy")
    found, _ = execute(work, x, y)
    np.testing.assert_array_equal(found, bits_of(work, x, y).reshape(-1))
    exact = np.clip(from_bits(x).astype(np.float64) + from_bits(y), -131008, 131008).reshape(-1)
    assert np.abs(exact).max() > 1e5
    np.testing.assert_allclose(from_bits(found), exact, rtol=2**-10, atol=2**-14)


@needs_simulator
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("transposes", [False, True])
def test_results_of_moves_are_the_tiles_in_another_order(dtype: str, transposes: bool) -> None:
    x = to_tiles(as_packed(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32), dtype))
    work = Move((3, 1, 2, 0), transposes, format=dtype)
    np.testing.assert_array_equal(execute(work, x)[0], bits_of(work, x).reshape(-1))


@pytest.mark.parametrize(
    ("dtype", "significand"),
    [("bf16", 8), *(pytest.param(*each, marks=pytest.mark.nightly) for each in (("fp16", 10), ("tf32", 11)))],
)
@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_operators_of_a_model_are_off_by_the_rounding_of_numbers_between_them(
    dtype: str, significand: int
) -> None:
    @mirlo.script
    def model(
        x: R.Tensor[(3, 9, 40), R.f32],
        y: R.Tensor[(9, 40), R.f32],
        scale: R.Tensor[(40,), R.f32],
        bias: R.Tensor[(40,), R.f32],
    ):
        h = R.gelu(R.layer_norm(R.add(x, y), scale, bias))
        return h, R.reduce_max(R.softmax(h), axes=[2])

    unit, cpu = mirlo.compile(model, f"tensix{{dtype={dtype}}},llvm", cache=False), mirlo.compile(model, cache=False)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 9, 40), (9, 40), (40,), (40,))]
        (h, found), (arguments, expected) = unit(*inputs), cpu(*inputs)
        half = 2.0**-significand
        assert np.abs(h - arguments).max() <= 3 * half * np.abs(arguments).max()
        # Softmax makes the absolute error of its arguments a relative one; all other roundings are small beside it.
        assert (np.abs(found - expected) / expected).max() <= 2 * np.abs(h - arguments).max() + 3 * half
    (steps,) = unit.profile(*inputs, repeats=1).device.values()
    assert [step.details["vector"] > 0 for step in steps] == [True] * 5


@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_operands_of_several_dims() -> None:
    weights = np.random.default_rng(0).standard_normal((2, 8, 5)).astype(np.float32)

    @mirlo.script
    def model(x: R.Tensor[(1, 1, 8), R.f32], y: R.Tensor[(1,), R.f32], z: R.Tensor[(2, 3, 8), R.f32]):
        return R.relu(R.add(x, y)), R.multiply(z, x), R.matmul(z, R.const(weights))

    shapes = ((1, 1, 8), (1,), (2, 3, 8))
    inputs = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)]
    unit, cpu = mirlo.compile(model, "tensix{phases=4},llvm", cache=False), mirlo.compile(model, cache=False)
    for found, expected in zip(unit(*inputs), cpu(*inputs), strict=True):
        assert np.abs(found - expected).max() <= 1e-2 * np.abs(expected).max()


@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_large_tensors_are_computed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    @mirlo.script
    def model(x: R.Tensor[(100, 40), R.f32], w: R.Tensor[(40, 200), R.f32]):
        return R.relu(x), R.softmax(R.exp(R.matmul(x, w)))

    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((100, 40), (40, 200))]
    whole = mirlo.compile(model, "tensix,llvm", cache=False)(*inputs)
    monkeypatch.setattr(region, "L1_TENSORS", 22 * 2048)
    monkeypatch.setattr(region, "PROGRAMS", region.FIRST + 22 * 2048)
    parts = mirlo.compile(model, "tensix,llvm", cache=False)
    for found, expected in zip(parts(*inputs), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(parts.artifact.externals) == 1


@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_heads_are_computed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    @mirlo.script
    def model(x: R.Tensor[(1, 4, 40, 64), R.f32], mask: R.Tensor[(1, 1, 1, 40), R.f32]):
        return R.attention(x, x, x, mask)

    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 40, 64), (1, 1, 1, 40))]
    whole = mirlo.compile(model, "tensix,llvm", cache=False)(*inputs)
    monkeypatch.setattr(region, "L1_TENSORS", 30 * 2048)
    monkeypatch.setattr(region, "PROGRAMS", region.FIRST + 30 * 2048)
    parts = mirlo.compile(model, "tensix,llvm", cache=False)
    np.testing.assert_array_equal(parts(*inputs), whole)
    assert len(parts.artifact.externals) == 1


@needs_simulator
@pytest.mark.nightly
def test_an_encoder_layer_runs_on_the_core() -> None:
    rng = np.random.default_rng(0)

    @mirlo.script
    def model(
        x: R.Tensor[(20, 32), R.f32],
        key: R.Tensor[(1, 2, 20, 16), R.f32],
        mask: R.Tensor[(1, 1, 1, 20), R.f32],
        w: R.Tensor[(32, 64), R.f32],
        v: R.Tensor[(64, 32), R.f32],
        scale: R.Tensor[(32,), R.f32],
    ):
        query = R.permute(R.reshape(x, shape=[1, 20, 2, 16]), axes=[0, 2, 1, 3])
        h = R.permute(R.attention(query, key, key, mask), axes=[0, 2, 1, 3])
        h = R.layer_norm(R.add(R.reshape(h, shape=[20, 32]), x), scale)
        return R.layer_norm(R.add(R.matmul(R.gelu(R.matmul(h, w)), v), h), scale)

    shapes = ((20, 32), (1, 2, 20, 16), (1, 1, 1, 20), (32, 64), (64, 32), (32,))
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    inputs[2][..., 15:] = -3e38
    unit, cpu = mirlo.compile(model, "tensix{phases=4},llvm", cache=False), mirlo.compile(model, cache=False)
    found, expected = unit(*inputs), cpu(*inputs)
    assert np.abs(found - expected).max() <= 1e-2 * np.abs(expected).max()


@pytest.mark.usefixtures("unit_in_numpy")
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize("at_end", [False, True])
def test_bits_of_causal_attention_do_not_depend_on_later_keys(
    at_end: bool, has_room: bool, is_masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask is computed before on the core, and keys and values serve two heads each."""

    @mirlo.script
    def plain(q: R.Tensor[(1, 4, 20, 24), R.f32], kv: R.Tensor[(1, 2, 40, 24), R.f32]):
        return R.attention(q, kv, kv, causal=True, at_end=at_end)

    @mirlo.script
    def masked(
        q: R.Tensor[(1, 4, 20, 24), R.f32],
        kv: R.Tensor[(1, 2, 40, 24), R.f32],
        mask: R.Tensor[(1, 4, 20, 40), R.f32],
    ):
        return R.attention(q, kv, kv, R.tanh(mask), causal=True, at_end=at_end)

    shapes = [(1, 4, 20, 24), (1, 2, 40, 24), (1, 4, 20, 40)][: 2 + is_masked]
    inputs = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)]
    if not has_room:
        monkeypatch.setattr(region, "L1_TENSORS", 24 * 2048)
    model = masked if is_masked else plain
    unit, cpu = (mirlo.compile(model, target, cache=False) for target in ("tensix{phases=4},llvm", "llvm"))
    found, expected = unit(*inputs), cpu(*inputs)
    assert len(unit.artifact.externals) == 1
    assert np.abs(found - expected).max() <= 2e-2 * np.abs(expected).max()
    inputs[1][:, :, 21 if at_end else 1 :] = 7
    np.testing.assert_array_equal(unit(*inputs)[:, :, 0], found[:, :, 0])


@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_reductions_of_several_dims() -> None:
    @mirlo.script
    def model(x: R.Tensor[(2, 3, 9), R.f32]):
        return R.reduce_max(x, axes=[1, 2]), R.reduce_sum(x)

    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 9)).astype(np.float32)
    most, total = mirlo.compile(model, "tensix,llvm", cache=False)(x)
    np.testing.assert_array_equal(most, x.max((1, 2)))
    np.testing.assert_array_equal(total, x.sum())


@pytest.mark.usefixtures("unit_in_numpy")
def test_elements_move_in_dram_where_they_are_no_whole_tiles() -> None:
    @mirlo.script
    def model(x: R.Tensor[(6, 5, 12), R.f32]):
        parts = R.reshape(R.relu(x), shape=[6, 5, 3, 4])
        last = R.strided_slice(parts, axes=[2, 0], begin=[1, 5], end=[3, -9], strides=[1, -2])
        return R.relu(R.permute(last, axes=[1, 0, 3, 2])), R.relu(R.reshape(parts, shape=[18, 20]))

    x = np.random.default_rng(0).integers(-9, 9, (6, 5, 12)).astype(np.float32)
    unit, cpu = mirlo.compile(model, "tensix,llvm", cache=False), mirlo.compile(model, cache=False)
    for found, expected in zip(unit(x), cpu(x), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(unit.artifact.externals) == 1
    (steps,) = unit.profile(x, repeats=1).device.values()
    load, store, copied = 360, 360, 2 * 120
    assert steps[0].details["DRAM"] >= load // 12 and steps[1].details["DRAM"] >= (store + copied) // 12


def test_what_is_declined_of_attention_has_a_reason() -> None:
    @mirlo.script
    def model(x: R.Tensor[(1, 2, 8, 16), R.f32], key: R.Tensor[(1, 2, 4, 16), R.f32]):
        return R.attention(x, x, x, softcap=2.0), R.attention(x, key, key, causal=True, at_end=True)

    placed = str(placement_of(model, "tensix,llvm"))
    assert "no capped attention" in placed and "each query must have a key" in placed
