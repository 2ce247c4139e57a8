"""Models divided among ranks give the same results as whole, and each rank has its part of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_ranks.files import rank_file
from mirlo_ranks.shard.plan import ShardingRecord
from mirlo_ranks.strategy import RankedModel, with_transport
from mirlo_ranks.testing import run_ranks

import mirlo
from mirlo.extend.frontend import make_context
from mirlo.extend.passes import Session, ir, view_labels
from mirlo.extend.runtime import ParameterStore
from mirlo.extend.target import Pipeline
from mirlo.testing.commands import output_of, run_command

HIDDEN, INNER, BLOCK = 192, 768, 32


def _quantized(rows: int, columns: int, number: int) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    """Return weights of 4 bits in blocks as operations, their arrays, and the values."""
    random = np.random.default_rng(number)
    codes = random.integers(0, 256, (rows, columns // 2), np.uint8)
    scales = random.random((rows, columns // BLOCK), np.float32) / 16
    low, high = codes & 15, codes >> 4
    values = np.stack([low, high], -1).reshape(rows, columns).astype(np.float32) * np.repeat(scales, BLOCK, 1)
    packed, blocks = f"tensor<{rows}x{columns // 2}xui8>", f"tensor<{rows}x{columns // BLOCK}xf32>"
    text = f"""
  %c{number} = "relax.constant"() {{param = "codes{number}"}} : () -> {packed}
  %s{number} = "relax.constant"() {{param = "scales{number}"}} : () -> {blocks}
  %u{number} = "relax.unpack"(%c{number}) {{dtype = !relax.u4}} : ({packed}) -> tensor<{rows}x{columns}xUINT4>
  %w{number} = "relax.dequantize"(%u{number}, %s{number}) {{axis = 1 : i64, block = {BLOCK} : i64}}
    : (tensor<{rows}x{columns}xUINT4>, {blocks}) -> tensor<{rows}x{columns}xf32>"""
    return text, {f"codes{number}": codes, f"scales{number}": scales}, values


def _model(folder: Path) -> tuple[Path, ParameterStore, Any]:
    """Return two products with weights of 4 bits, and their reference in numpy."""
    (up, up_arrays, up_values), (down, down_arrays, down_values) = (
        _quantized(INNER, HIDDEN, 1),
        _quantized(HIDDEN, INNER, 2),
    )
    x, h = f"tensor<3x{HIDDEN}xf32>", f"tensor<3x{INNER}xf32>"
    text = f"""
func.func @main(%x: {x} {{relax.name = "x"}}) -> ({x} {{relax.name = "y"}}) {{{up}{down}
  %0 = "relax.matmul"(%x, %w1) {{transpose_rhs = true}} : ({x}, tensor<{INNER}x{HIDDEN}xf32>) -> {h} loc("up")
  %1 = "relax.relu"(%0) : ({h}) -> {h}
  %2 = "relax.matmul"(%1, %w2) {{transpose_rhs = true}} : ({h}, tensor<{HIDDEN}x{INNER}xf32>) -> {x} loc("down")
  return %2 : {x}
}}
"""
    path = folder / "model.mlir"
    path.write_text(text.replace("!relax.u4", "ui4").replace("UINT4", "ui4"))
    store = ParameterStore()
    for name, array in {**up_arrays, **down_arrays}.items():
        store.add(name, array)
    return path, store, lambda a: np.maximum(a @ up_values.T, 0) @ down_values.T


def _x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, HIDDEN), np.float32)


@pytest.mark.sample(0)
@pytest.mark.parametrize("ranks", [2, 4])
def test_packed_weights(ranks: int, tmp_path: Path) -> None:
    """Bytes of 4-bit weights and the scales of their blocks are divided, and stay packed."""
    path, store, meaning = _model(tmp_path)
    whole = mirlo.compile(path, params=store.copy())
    model = mirlo.compile(path, params=store.copy(), ranks=ranks)
    assert isinstance(model, RankedModel)
    results = run_ranks(lambda rank: model.executables[rank].run({"x": _x()})["y"], ranks)
    for result in results:
        np.testing.assert_allclose(result, meaning(_x()), rtol=2e-4, atol=5e-3)
    for executable in model.executables:
        assert executable.memory.weights_bytes <= whole.memory.weights_bytes / ranks * 1.2  # panels are padded


def test_a_block_is_not_divided(tmp_path: Path) -> None:
    """A second product whose blocks would be divided stays whole, with the reason."""
    path, store, _ = _model(tmp_path)
    session = Session(store)
    with make_context(), ir.Location.unknown():
        Pipeline("shard{ranks=16 rank=3}").run(ir.Module.parse(path.read_text()), session)
    (record,) = session.notes
    assert isinstance(record, ShardingRecord)
    assert [(node.name, node.strategy) for node in record.nodes] == [("up", "replicate"), ("down", "column")]
    assert "packed across the edges of the parts" in record.nodes[0].reason
    assert [each.operator for each in record.collectives] == ["relax.all_gather"]  # of an output
    assert record.sent == 3 * 12 * 4 * 15  # its columns, for each other rank
    assert record.token_seconds(8e9, 4e9, 0.25, 4 * record.sent) == 2 + 0.25 + 0.25
    assert record.token_seconds(8e9, 4e9, 0.25, 4 * record.sent, flops=1e9) == 4 + 0.25 + 0.25


def test_rows_of_a_product_whose_sum_is_not_divided(tmp_path: Path) -> None:
    """A convolution stays whole although a plan requires rows, with the reason."""
    image, kernel = "tensor<1x2x4x4xf32>", "tensor<2x2x1x1xf32>"
    text = f"""
func.func @main(%x: {image}) -> {image} {{
  %w = "relax.constant"() {{value = dense<1.0> : {kernel}}} : () -> {kernel}
  %0 = "relax.conv"(%x, %w) {{strides = array<i64: 1, 1>}}
    : ({image}, {kernel}) -> {image} loc("conv")
  return %0 : {image}
}}
"""
    session = Session()
    with make_context(), ir.Location.unknown():
        Pipeline('shard{ranks=2 rank=0 plan="*=row"}').run(ir.Module.parse(text), session)
    (record,) = session.notes
    assert isinstance(record, ShardingRecord)
    assert [(node.name, node.strategy) for node in record.nodes] == [("conv", "replicate")]
    assert "no dim that it sums over can be divided" in record.nodes[0].reason


def test_files_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.mlir"
    w = "dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>"
    path.write_text(f"""
func.func @main(%x: tensor<1x2xf32> {{relax.name = "x"}}) -> (tensor<1x2xf32> {{relax.name = "y"}}) {{
  %w = "relax.constant"() {{value = {w}}} : () -> tensor<2x2xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}}
""")
    output_of(run_command("compile", path, "--ranks", "2", "-o", tmp_path / "out.mlir.mirlo"))
    file = tmp_path / "out.mlir.mirlo"
    assert rank_file(file, 1).exists() and not file.exists()
    x = np.array([[1, 10]], np.float32)
    for result in run_ranks(lambda rank: mirlo.load(file).run({"x": x})["y"], 2):
        assert result.tolist() == [[31, 42]]
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(mirlo.MirloError, match="there are files for ranks, such as out.mlir.rank0.mirlo"):
        mirlo.load(file)


def test_a_process_that_is_a_rank_compiles_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, store, _ = _model(tmp_path)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert mirlo.compile(path, params=store.copy(), ranks=2).artifact.metadata["rank"] == 1
    with pytest.raises(mirlo.MirloError, match="ranks: 2 ranks were started, found 4"):
        mirlo.compile(path, params=store.copy(), ranks=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 0}, "ranks: expected an integer of at least 1|ranks: expected"),
        ({"ranks": 2, "rank": 2}, "rank: expected 0 to 1, found 2"),
        ({"ranks": 2, "rank_plan": ["up=sideways"]}, "expected PATTERN=STRATEGY with one of auto, column"),
        ({"ranks": 2, "specialize": [{"batch": 1}]}, "one build for all sizes and processors"),
        ({"ranks": 2, "pipeline": "simplify"}, "with the pass shard"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path, store, _ = _model(tmp_path)
    with pytest.raises(mirlo.MirloError, match=message):
        mirlo.compile(path, params=store, **options)


def test_targets() -> None:
    assert with_transport("llvm") == "collectives,llvm"
    assert with_transport(["onednn", "llvm{cpu=haswell}"]) == "collectives,onednn,llvm{cpu=haswell}"
    assert with_transport("collectives{transport=mpi},llvm") == "collectives{transport=mpi},llvm"


@pytest.mark.parametrize(
    ("before", "after", "labels"),
    [
        ((7, 16, 2, 8), (1, 1, 112, 16), (("e1", "", "e0", ""), ("", "", "e1", "e0"))),  # pages, and heads in rows
        ((2, 6), (2, 3, 2), (("d0", "e0"), ("d0", "e0", ""))),
        ((6, 4), (4, 6), (("", ""), ("", ""))),
        ((5, 1, 6), (5, 6), (("d0", "", "e0"), ("d0", "e0"))),
        ((3, 4), (12,), (("e0", ""), ("e0",))),
    ],
)
def test_dims_of_reshapes(before: tuple[int, ...], after: tuple[int, ...], labels: Any) -> None:
    assert view_labels(before, after) == labels
    assert view_labels(after, before) == labels[::-1]
