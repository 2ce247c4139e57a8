"""`mirlo explain`: the tile of a kernel, what was compared with it, and what passes decided about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import F32, check, make_model, node

from mirlo.passes.targets import Target
from mirlo.targets.llvm.machine import PRESETS
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, TileSearch, choose_tile, considered_tiles
from mirlo.tools.cli import main
from mirlo.tools.explain.expectations import UnscheduledModule
from mirlo.tools.explain.model import explain_model
from mirlo.tools.explain.report import as_json, only_kernel, text_lines

AVX2 = "llvm{cpu=haswell}"
KERNEL = "fused_matmul_relu"


def _product() -> onnx.ModelProto:
    weight = np.ones((256, 96), np.float32)
    return make_model(
        [node("MatMul", "x w", "m"), node("Relu", "m", "y")], {"x": (F32, [60, 256])}, ["y"], {"w": weight}
    )


def _convolution(size: int) -> onnx.ModelProto:
    weight = np.ones((32, 32, size, size), np.float32)
    return make_model([node("Conv", "x w", "y", name="c")], {"x": (F32, [1, 32, 28, 28])}, ["y"], {"w": weight})


def _text(model: onnx.ModelProto, kernel: str, **options: object) -> str:
    explanation = explain_model(model, AVX2, kernel=kernel, **options)  # type: ignore[arg-type]
    return "\n".join(text_lines(explanation)).partition("\n---")[0]


def test_the_tile_and_those_that_come_next() -> None:
    check(
        _text(_product(), KERNEL),
        "pack-weights: panels of 16 columns",
        "schedule: contraction [llvm]",
        "  chosen: tile_rows=6, tile_vectors=2, pack=1",
        "expected: {{[0-9]+}} cycles: register tiles {{[0-9.]+}}%",
        "register tiles compared: {{[0-9]+}}, the chosen one first, in cycles",
        "    tile_rows=6, tile_vectors=2 {{ +[0-9]+}}  1.000  limited by multiplications; 15 of 16 registers  k-steps",
        "    tile_rows={{[0-9]+}}, tile_vectors={{[0-9] +[0-9]+}}  1.{{[0-9]+}}  limited by",
    )


def test_what_is_expected_as_json() -> None:
    explanation = only_kernel(explain_model(_product(), AVX2, kernel=KERNEL), KERNEL)
    (kernel,) = json.loads(json.dumps(as_json(explanation)))["kernels"]
    expected, own = kernel["expected"], kernel["expected"]["candidates"][0]
    assert own["choices"] == {"tile_rows": 6, "tile_vectors": 2} and own["limit"].startswith("multiplications")
    assert expected["time"] == pytest.approx(sum(expected["parts"].values())) and expected["unit"] == "cycles"
    assert kernel["passes"] == [{"pass": "pack-weights", "outcome": "panels of 16 columns"}]
    times = [candidate["time"] for candidate in expected["candidates"][1:]]
    assert times == sorted(times) and own["time"] <= times[0] / 0.99


def test_a_tile_that_the_caller_chose() -> None:
    def schedule(s: object) -> None:
        s.apply_rule("contraction", tile_rows=5, tile_vectors=2)  # type: ignore[attr-defined]

    check(
        _text(_product(), KERNEL, schedules={KERNEL: schedule}),
        "schedule: contraction [llvm] {{.*}}, given by --schedule",
        "  chosen: tile_rows=5, tile_vectors=2",
        "chosen one first",
        "    tile_rows=5, tile_vectors=2 {{ +[0-9]+}}  1.000",
        "    tile_rows=6, tile_vectors=2 {{ +[0-9]+}}  0.",
    )


def test_decisions_of_winograd() -> None:
    assert "  winograd: tiles of 4x4 results" in _text(_convolution(3), "matmul")
    declined = "  winograd: declined: the window is not 3x3 with steps of 1 (window=(1, 1), strides=(1, 1))"
    assert declined in _text(_convolution(1), "conv")


def test_kernels_of_other_rules_expect_nothing() -> None:
    model = make_model([node("Softmax", "x", "y")], {"x": (F32, [4, 64])}, ["y"])
    explanation = only_kernel(explain_model(model, kernel="softmax"), "softmax")
    assert as_json(explanation)["kernels"][0]["expected"] is None  # type: ignore[index]


def test_a_target_without_a_cost_model_of_its_own_ranks_its_space(monkeypatch: pytest.MonkeyPatch) -> None:
    from mirlo.targets import llvm

    space = [{"tile_rows": rows} for rows in (3, 2, 4)]

    class Other(Target):
        def space(self, *_: Any) -> Any:
            return space

        def expected(self, _: Any, values: Any, __: Any) -> float:
            return 10.0 * float(values.get("tile_rows", 1))

    target = Other("other", "")
    monkeypatch.setattr(
        UnscheduledModule, "expectation",
        lambda self, kernel, record, tuned, _, options, own=UnscheduledModule.expectation: own(
            self, kernel, record, tuned, target, options
        ),
    )  # fmt: skip
    assert llvm.TARGET.has("expectation")
    check(
        _text(_product(), KERNEL), "expected: 10", "choices compared: 4, the chosen one first",
        "    its own {{ +}}10  1.000", "    tile_rows=2  20  2.000", "    tile_rows=3  30  3.000",
    )  # fmt: skip


@pytest.mark.parametrize("machine", ["avx2", "avx512", "wasm"])
@pytest.mark.parametrize("reread", [0, 4096])
def test_parts_of_a_tile_add_up(machine: str, reread: int) -> None:
    problem = TileProblem(50, 80, PRESETS[machine].lanes(4), 300, True, True, 4, reread_bytes=reread)
    search = TileSearch(problem, PRESETS[machine])
    tiles = list(considered_tiles(problem, PRESETS[machine]))
    rows, vectors, cycles = choose_tile(problem, PRESETS[machine])
    assert search.estimate(rows, vectors).cycles == cycles <= min(tile.cycles for tile in tiles) / 0.99
    for tile in tiles:
        parts = search.parts(tile)
        assert sum(parts.values()) == pytest.approx(tile.cycles) and ("rows read again" in parts) == bool(
            reread * PRESETS[machine].reread_cycles
        )


def test_text_of_a_model_has_its_tiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "product.onnx"
    onnx.save(_product(), path)
    assert main(["explain", str(path), "--target", AVX2]) == 0
    text = capsys.readouterr().out
    assert "\n  chosen: tile_rows=6, tile_vectors=2, pack=1" in text and "compared" not in text
