"""Products with packed weights: every variant against f64, for every preset, and the stored weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import emulated_aarch64
import numpy as np
import onnxruntime
import pytest
from onnx_models import F32, make_model, node
from packed_products import BOUNDS, LEVELS, SHAPES, TABLES, Weights, error, float_weights, kernels, table_weights
from presets import RUNNABLE, compile_for, compile_for_preset

import mirlo
from mirlo.dialects.bindings import ir, new_context
from mirlo.passes.schedule.primitives.tile_instruction import tile_instructions
from mirlo.targets.llvm.machine import PRESETS
from mirlo.targets.llvm.nbits.code import Dots
from mirlo.targets.llvm.nbits.functions import product_function
from mirlo.targets.llvm.nbits.layout import COLUMNS, PanelLayout
from mirlo.targets.llvm.nbits.product import Product
from mirlo.targets.llvm.options import find_machine

CASES = list(product((2, 4, 8), (16, 32, 64, 256), ("", "packed", "real"), ("exact", "i8")))[::5] + list(
    product((2, 4, 8), (32,), ("packed",), ("exact", "i8"))
)


@pytest.mark.sample(12)
@pytest.mark.parametrize("bits, block, zeros, activations", CASES)
def test_variants(bits: int, block: int, zeros: str, activations: str) -> None:
    number = CASES.index((bits, block, zeros, activations))
    columns, rows = SHAPES[(number + number // 4) % len(SHAPES)]
    weights = Weights(columns, rows, bits, block, zeros, "f16" if number % 5 == 4 else "f32")
    executable = mirlo.compile(weights.model(LEVELS[activations]), cache=False, jobs=1)
    assert any(name.startswith(f"matmul_u{bits}") for name in kernels(executable))
    bound = max(BOUNDS[activations], 1e-3 if weights.dtype == "f16" else 0)
    for count in (1, 2, 9, 65):
        assert error(executable, weights, count) < bound


@pytest.mark.sample(6)
@pytest.mark.parametrize("activations", ("exact", "i8"))
@pytest.mark.parametrize("axis", (None, 0, 1))
@pytest.mark.parametrize("transposed", (False, True))
@pytest.mark.parametrize("zeros", (False, True))
def test_scales_of_columns(transposed: bool, axis: int | None, zeros: bool, activations: str) -> None:
    """Weights with a scale for all, or for each column, are read packed by few rows; with one for each row of K not."""
    k, n = 300, 1400
    random = np.random.default_rng(k)
    shape = (n, k) if transposed else (k, n)
    scales = random.uniform(0.005, 0.015, () if axis is None else shape[axis]).astype(np.float32)
    constants: dict[str, Any] = {"q": random.integers(-128, 128, shape).astype(np.int8), "s": scales}
    if zeros:
        constants["z"] = random.integers(-9, 9, scales.shape).astype(np.int8)
    nodes = [
        node("DequantizeLinear", " ".join(constants), "w", axis=axis or 0),
        node("Gemm", "x w", "y", transB=int(transposed)),
    ]
    model = make_model(nodes, {"x": (F32, ["m", k])}, ["y"], constants, opset=21)
    executable = mirlo.compile(model, activations=activations, cache=False, jobs=1)
    is_packed = any(name.startswith("matmul_u8") for name in kernels(executable))
    assert is_packed == (axis is None or axis == (0 if transposed else 1))
    by_axis = [1, 1]
    by_axis[axis or 0] = -1
    real = constants["q"].astype(np.float64)
    if zeros:
        real = real - constants["z"].reshape(by_axis)
    real = real * scales.astype(np.float64).reshape(by_axis)
    for count in (1, 2, 9, 65):
        x = random.standard_normal((count, k)).astype(np.float32)
        wanted = x @ (real.T if transposed else real)
        assert np.abs(executable(x) - wanted).max() < BOUNDS[activations] * np.abs(wanted).max()


@pytest.mark.parametrize("preset", PRESETS)
def test_products_of_bytes_are_rows_of_the_table_of_tiles(preset: str) -> None:
    machine, layout = PRESETS[preset], PanelLayout(4, 32, 64, 64, "f32")
    if not Dots.supports(machine, layout):
        return
    for is_tall in (False, True):
        instruction = Dots(machine, is_tall).instruction
        assert tile_instructions()[instruction.name] is instruction
        assert ("i8", "i8" if "i8xi8" in machine.dots else "u8", "i32") in instruction.operands
        assert instruction.has_pairs == (is_tall and "i8mm" in machine.dots)
    with new_context(), ir.Location.unknown():
        function = product_function(Product(layout, 3, 1), machine, ir.Location.unknown())
        assert f'instruction = "{Dots(machine).instruction.name}"' in str(function.operation.attributes["tir.schedule"])


def test_sums_of_long_rows() -> None:
    """Products with many rows err no more than those with one: sums of all of K, one after the other, err by 1.6e-6."""
    weights = Weights(32, 8192, 4, 32, "packed")
    executable = mirlo.compile(weights.model(shape=(12,)), cache=False, jobs=1)
    x = np.random.default_rng(1).standard_normal((12, 8192)).astype(np.float32)
    wanted = x.astype(np.float64) @ weights.real().T
    assert np.sqrt(((executable(x) - wanted) ** 2).mean()) < 6e-7 * wanted.std()


FEW_BITS = {5: (112, 144), 6: (96, 160), "5 above": (128, 160), "6 above": (128, 192), 7: (64, 192)}
"""Ranges of codes of 8 bits, and the bits that they need."""


@pytest.mark.sample(0)
@pytest.mark.parametrize("block", (16, 32, 64))
@pytest.mark.parametrize("zeros", ("", "packed", "real"))
@pytest.mark.parametrize("needed", FEW_BITS)
@pytest.mark.parametrize("cpu", ("x86-64-v3", "x86-64-v4"))
def test_weights_that_need_fewer_bits(cpu: str, needed: int | str, zeros: str, block: int) -> None:
    """Machines with AVX-512 keep weights of 8 bits in 5 or 6, if they need no more and words have room for them."""
    columns, rows = SHAPES[block % len(SHAPES)]
    weights = Weights(columns, rows, 8, block, zeros)
    weights.constants["w"] = np.random.default_rng(0).integers(
        *FEW_BITS[needed], weights.constants["w"].shape, np.uint8
    )
    executable, runs = compile_for(cpu, weights.model())
    bits = int(str(needed)[0])
    stored = (6 if bits == 5 and block == 16 else bits if bits < 7 else 8) if cpu == "x86-64-v4" else 8
    assert any(name.startswith(f"matmul_u{stored}_f32") for name in kernels(executable))
    for count in (1, 2, 9, 65) if runs else ():
        assert error(executable, weights, count) < BOUNDS["exact"]


@pytest.mark.sample(0)
@pytest.mark.parametrize("activations", BOUNDS)
@pytest.mark.parametrize("zeros", ("", "packed"))
def test_activations(activations: str, zeros: str) -> None:
    weights = Weights(48, 320, 4, 32, zeros)
    executable = mirlo.compile(weights.model(4), activations=activations, cache=False, jobs=1)
    for count in (1, 7):
        assert error(executable, weights, count) < BOUNDS[activations]


@pytest.mark.parametrize(
    ("cpu", "bits", "chosen"), [("znver5", 8, "i8"), ("haswell", 4, "i8"), ("haswell", 8, "exact")]
)
def test_the_fastest_activations_are_those_of_the_processor(cpu: str, bits: int, chosen: str) -> None:
    model = Weights(48, 320, bits, 32, "packed").model(0)
    options: dict[str, Any] = {"target": f"llvm{{cpu={cpu}}}", "load": False, "cache": False, "jobs": 1}
    artifact = mirlo.compile(model, activations="auto", **options).artifact
    assert artifact.metadata["activations"] == [chosen]
    assert any("_i8x" in kernel.symbol for kernel in artifact.kernels) == (chosen == "i8")
    errors = [text for text in artifact.metadata.get("approximations", ()) if "expect up to 2e-2" in text]
    assert len(errors) == (chosen == "i8")
    assert "activations" not in mirlo.compile(model, **options).artifact.metadata


@pytest.mark.sample(0)
@pytest.mark.parametrize("activations", BOUNDS)
@pytest.mark.parametrize("bits, zeros", ((4, ""), (4, "packed"), (8, "")))
@pytest.mark.parametrize("cpu", ("", "x86-64-v3", "cascadelake"))
def test_each_number_of_rows(cpu: str, activations: str, bits: int, zeros: str) -> None:
    """Kernels for few rows are within the bound; with quantized rows each row is what it is alone.

    Processors without products of u8 and s8 multiply weights of 8 bits as f32.
    """
    weights = Weights(50, 160, bits, 32, zeros)
    executable, runs = compile_for(cpu, weights.model(4), activations=activations)
    is_quantized = any("_i8x" in name for name in kernels(executable))
    layout = PanelLayout(bits, 32, 50, 160, "f32")
    has_dots = cpu and Dots.supports(find_machine(f"cpu={cpu}"), layout)
    assert not cpu or is_quantized == (activations.startswith("i8") and has_dots)
    if not runs:
        return
    x = np.random.default_rng(1).standard_normal((17, 160)).astype(np.float32)
    wanted = x.astype(np.float64) @ weights.real().T
    alone = np.concatenate([executable(row[None]) for row in x])
    for count in range(18):
        found = np.asarray(executable(x[:count]))
        assert found.shape == (count, 50)
        assert np.abs(found - wanted[:count]).max(initial=0) < BOUNDS[activations] * np.abs(wanted).max()
        assert not is_quantized or (found == alone[:count]).all()


@pytest.mark.sample(4)
@pytest.mark.parametrize("count", (0, 2, 5, 7, 8, 9))
@pytest.mark.parametrize("level", (0, 4))
def test_fixed_numbers_of_rows(count: int, level: int) -> None:
    weights = Weights(40, 96, 4, 32, "packed")
    executable = mirlo.compile(weights.model(level, (count,)), cache=False, jobs=1)
    x = np.random.default_rng(1).standard_normal((count, 96)).astype(np.float32)
    wanted = x.astype(np.float64) @ weights.real().T
    assert np.abs(executable(x) - wanted).max(initial=0) <= BOUNDS["i8" if level else "exact"] * 10


def _coded_weights(kind: str, columns: int, rows: int, block: int) -> tuple[Any, np.ndarray]:
    """Return a model with weights of floats of 4 bits, or of codes of a table, and the weights as f64."""
    if kind == "f4e2m1":
        return float_weights(columns, rows, block)
    return table_weights(kind, columns, rows, block)


@pytest.mark.sample(9)
@pytest.mark.parametrize("activations", BOUNDS)
@pytest.mark.parametrize("kind", ("f4e2m1", *TABLES))
@pytest.mark.parametrize("columns, rows, block", ((50, 96, 32), (16, 64, 16), (34, 256, 128)))
def test_weights_of_codes(kind: str, activations: str, columns: int, rows: int, block: int) -> None:
    model, real = _coded_weights(kind, columns, rows, block)
    executable = mirlo.compile(model, activations=activations, cache=False, jobs=1)
    is_packed = any(name.startswith(("matmul_f4e2m1", "matmul_codebook")) for name in kernels(executable))
    assert is_packed or "avx2" not in RUNNABLE
    for count in (1, 3, 8, 20):
        x = np.random.default_rng(count).standard_normal((count, rows)).astype(np.float32)
        wanted = x @ real
        assert np.abs(executable(x) - wanted).max() < BOUNDS[activations] * np.abs(wanted).max()


@pytest.mark.sample(12)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("activations", ("exact", "i8"))
@pytest.mark.parametrize("kind", ("f4e2m1", *TABLES))
def test_weights_of_codes_on_presets(preset: str, activations: str, kind: str) -> None:
    from mirlo.targets.llvm.pipeline import compile_pipeline

    passes = compile_pipeline().replace("pack-nbits", f"pack-nbits{{machine={preset}}}")
    model, real = _coded_weights(kind, 40, 64, 32)
    executable = compile_for_preset(preset, model, activations=activations, pipeline=passes)
    if executable is None:
        return
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    assert np.abs(executable(x) - x @ real).max() < BOUNDS[activations] * np.abs(x @ real).max()


@pytest.mark.sample(0)
@pytest.mark.skipif(bool(emulated_aarch64.missing()), reason="no emulated AArch64")
@pytest.mark.parametrize("kind", ("integers", "f4e2m1"))
def test_weights_of_codes_on_aarch64(kind: str) -> None:
    model, real = _coded_weights(kind, 40, 64, 32)
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    with emulated_aarch64.models_run_emulated():
        executable = mirlo.compile(model, target=emulated_aarch64.TARGET, cache=False, jobs=1)
        found = executable(x)
    assert [spec.name for spec in executable.artifact.params] == ["w.panels"]
    assert np.abs(found - x @ real).max() < BOUNDS["exact"] * np.abs(x @ real).max()


@pytest.mark.sample(18)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("bits, level", ((4, 4), (4, 0), (8, 4), (2, 4)))
def test_presets(preset: str, bits: int, level: int) -> None:
    from mirlo.targets.llvm.pipeline import compile_pipeline

    passes = compile_pipeline().replace("pack-nbits", f"pack-nbits{{machine={preset}}}")
    weights = Weights(40, 96, bits, 32, "packed")
    executable = compile_for_preset(preset, weights.model(level), pipeline=passes)
    for count in (1, 2, 5, 8) if executable else ():
        assert error(executable, weights, count) < BOUNDS["i8" if level else "exact"]


@pytest.mark.parametrize("level", (0, 4))
def test_as_good_as_onnxruntime(level: int) -> None:
    weights = Weights(64, 512, 4, 32)
    model = weights.model(level)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = mirlo.compile(model, cache=False, jobs=1)
    x = np.random.default_rng(0).standard_normal((8, 512)).astype(np.float32)
    wanted = x.astype(np.float64) @ weights.real().T
    ours, theirs = (np.sqrt(np.mean((y - wanted) ** 2)) for y in (executable(x), session.run(None, {"x": x})[0]))
    assert ours < 1.1 * theirs + 1e-6 * np.abs(wanted).max()


@pytest.mark.sample(0)
def test_threads_and_dims() -> None:
    weights = Weights(1056, 512, 4, 32)
    for shape, given in ((("a", "b"), (2, 3)), (("m",), (130,)), ((4,), (4,)), ((1, 1), (1, 1))):
        executable = mirlo.compile(weights.model(4, shape), threads=2, cache=False, jobs=1)
        x = np.random.default_rng(0).standard_normal((*given, 512)).astype(np.float32)
        wanted = x.astype(np.float64) @ weights.real().T
        assert np.abs(executable(x) - wanted).max() < 2e-2 * np.abs(wanted).max()


def test_rows_that_are_zero_infinite_or_no_number() -> None:
    weights = Weights(32, 64, 4, 32)
    executable = mirlo.compile(weights.model(4), cache=False, jobs=1)
    x = np.zeros((5, 64), np.float32)
    x[1, 3], x[2, 40], x[3] = np.nan, np.inf, 1e-39
    y = executable(x)
    assert not y[0].any() and np.isnan(y[1]).all() and not np.isfinite(y[2]).any() and np.isfinite(y[3]).all()
    assert not y[4].any()


@pytest.mark.sample(0)
@pytest.mark.parametrize("is_whole", (True, False))
def test_order_of_groups(is_whole: bool) -> None:
    weights = Weights(24, 128, 4, 32, "packed")
    groups = np.random.default_rng(5).permutation(np.repeat(np.arange(4), 32)).astype(np.int32)
    if not is_whole:
        groups[groups == 3] = 1
    weights.constants["g"] = groups
    executable = mirlo.compile(weights.model(0), cache=False, jobs=1)
    codes = weights._unpacked(weights.constants["w"])
    zeros = weights._unpacked(weights.constants["z"])[:, :4]
    real = (codes - zeros[:, groups]) * weights.constants["s"].astype(np.float64)[:, groups]
    x = np.random.default_rng(6).standard_normal((3, 128)).astype(np.float32)
    wanted = x @ real.T
    assert np.abs(executable(x) - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert any(name.startswith("matmul_u4") for name in kernels(executable)) == is_whole


def test_weights_stay_packed() -> None:
    weights = Weights(512, 1024, 4, 32)
    executable = mirlo.compile(weights.model(4), cache=False, jobs=1)
    stored = {spec.dtype: int(np.prod(spec.shape)) for spec in executable.artifact.params}
    assert stored == {"u8": 512 * 1024 // 2 + 512 * 32 * 4}


def test_prepacked_weights_are_refused() -> None:
    model = Weights(16, 32, 4, 32).model(4, weight_prepacked=1)
    with pytest.raises(mirlo.MirloError, match="'weight_prepacked' must be 0, got 1"):
        mirlo.compile(model, cache=False)


LAYOUTS = [*product((2, 4, 8), (16, 64), ("", "i8", "f32"), (False,)), (8, 16, "f32", True), (8, 64, "", True)]


@pytest.mark.parametrize("bits, block, zero, is_by_row", LAYOUTS)
def test_layout(bits: int, block: int, zero: str, is_by_row: bool) -> None:
    """Each weight is where the docstring of the layout says."""
    layout = PanelLayout(bits, block, columns=20, rows=block + 16, scale="f32", zero=zero, is_by_row=is_by_row)
    random = np.random.default_rng(0)
    codes = random.integers(0, 1 << bits, (20, block + 16)).astype(np.uint8)
    scales = random.random((20, 2)).astype(np.float32)
    zeros = random.integers(-5, 5, (20, 2)).astype({"": "i1", "i8": "i1", "f32": "f4"}[zero])
    packed = layout.pack(codes, scales, zeros if zero else None)
    assert packed.nbytes == layout.bytes and layout.group_bytes % 64 == 0
    for column, row in product((0, 7, 19), (0, 5, 15, block - 1, block + 15)):
        panel, lane = divmod(column, COLUMNS)
        number, at = divmod(row // layout.block, layout.group)
        start = panel * layout.panel_bytes + number * layout.group_bytes
        sub, inner = divmod(row % block, layout.sub)
        field, rest = divmod(inner, 4 * layout.vectors)
        byte = start + at * layout.block_bytes + (sub * layout.vectors + rest // 4) * 64
        byte += rest % 4 * COLUMNS + lane if is_by_row else lane * 4 + rest % 4
        assert packed[byte] >> (field * bits) & ((1 << bits) - 1) == codes[column, row]
        scale = start + layout.group * layout.block_bytes + at * layout.scale_bytes + lane * 4
        assert packed[scale : scale + 4].view(np.float32)[0] == scales[column, row // block]


@pytest.mark.parametrize(
    "machine, f4e2m1, integers, numbers",
    (
        ("avx2", True, False, False),
        ("avxvnni", True, True, False),
        ("avx512vnni", True, True, False),
        ("avx512", True, False, False),
        ("neon", False, False, False),
    ),
)
def test_which_codes_are_multiplied_as_integers(machine: str, f4e2m1: bool, integers: bool, numbers: bool) -> None:
    """Sums of two products fit 16 bits where the machine has no other; a table of 240 steps is too wide for that."""
    layouts = [PanelLayout(4, 32, 64, 64, "f32", floats="f4e2m1")]
    layouts += [PanelLayout(4, 32, 64, 64, "f32", codebook=tuple(map(float, TABLES[kind]))) for kind in TABLES]
    supported = [layout.is_integer and Dots.supports(PRESETS[machine], layout) for layout in layouts]
    assert supported == [f4e2m1, integers, numbers]


@pytest.mark.parametrize("bits, block, least", ((5, 32, -16), (5, 64, 0), (6, 16, -32), (6, 32, 0)))
def test_layout_of_words(bits: int, block: int, least: int) -> None:
    """Each weight is in the field or the spare bits that the docstring of the layout says."""
    layout = PanelLayout(bits, block, columns=20, rows=block + 11, scale="f32", least=least)
    codes = np.random.default_rng(0).integers(128 + least, 128 + least + (1 << bits), (20, block + 11)).astype(np.uint8)
    packed = layout.pack(codes, np.ones((20, 2), np.float32), None)
    per_word, words_of_sub = 30 // bits, layout.sub * bits // 32
    for column, row in product((0, 7, 19), range(block + 11)):
        panel, lane = divmod(column, COLUMNS)
        number, at = divmod(row // block, layout.group)
        start = panel * layout.panel_bytes + number * layout.group_bytes + at * layout.block_bytes
        sub, inner = divmod(row % block, layout.sub)
        sub_words = packed[start + sub * words_of_sub * 64 :][: words_of_sub * 64].view("<u4").reshape(-1, COLUMNS)
        words = [int(word) for word in sub_words[:, lane]]
        if inner < per_word * words_of_sub:
            stored = words[inner // per_word] >> inner % per_word * bits
        else:
            spare = sum((word >> 30) << 2 * i for i, word in enumerate(words))
            stored = spare >> (inner - per_word * words_of_sub) * bits
        assert stored & ((1 << bits) - 1) == int(codes[column, row]) - 128 - least


@pytest.mark.parametrize(
    "cpu, digits, expected", (("znver4", 1, False), ("emeraldrapids", 1, True), ("znver4", 0, True))
)
def test_prefetches(cpu: str, digits: int, expected: bool) -> None:
    """One row of int8 leaves prefetching to hardware where that is faster; conversions to floats never do."""
    layout = PanelLayout(4, 32, columns=32, rows=256, scale="f16")
    with new_context(), ir.Location.unknown() as location:
        function = product_function(Product(layout, 1, digits), find_machine(f"cpu={cpu}"), location)
        assert ("memref.prefetch" in str(function)) == expected
