"""The option `invariant`: rows of a batch have the bits that they have alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from invariant_cases import CASES, BatchedCase, different_rows, graph, weight
from onnx_models import F32, make_model, node

import mirlo
from mirlo.driver.options import CompileOptionError
from mirlo.passes.targets import TargetError
from mirlo.tools.explain.model import explain_model

NAMES = [case.name for case in CASES]
REORDERED = ("weights of 4 bits by 32 packed", "conv 64->128 3x3 of 7")
"""Cases whose sums have another order for other batches without the option: they show that the others can fail."""


def case_named(name: str) -> BatchedCase:
    return CASES[NAMES.index(name)]


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_any_batch(name: str) -> None:
    """Models of a dynamic batch: batches of 1 to 9, rows at drawn positions, one and two threads."""
    assert not different_rows(case_named(name), range(1, 10), invariant=True)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_one_batch(name: str) -> None:
    """Models of one batch each."""
    batch = 2 + NAMES.index(name) % 8
    assert not different_rows(case_named(name), [batch], dynamic=False, invariant=True)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", NAMES[::3])
@pytest.mark.parametrize("target", ("llvm{cpu=x86-64-v2}", "llvm{cpu=x86-64-v3}", "c"))
def test_rows_on_other_targets(target: str, name: str) -> None:
    """Vectors without masks and with them, and C source."""
    assert not different_rows(case_named(name), (2, 5, 9), invariant=True, target=target)


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(12))
def test_sums_of_many_products(seed: int) -> None:
    """Sums that are divided into blocks of K, in tiles of few rows and of many, which unroll other numbers of steps."""
    random = np.random.default_rng(seed)
    depth = int(random.choice([1536, 2048, 3072, random.integers(500, 3200)]))
    columns, rows = int(random.choice([64, 256, 512])), int(random.choice([0, 17, 128]))
    shape, batch = ((rows, depth), 3) if rows else ((depth,), int(random.choice([33, 64, 100])))
    nodes = [node("MatMul", "a w", "y")]
    case = BatchedCase(f"{shape} x {columns}", (shape,), graph(nodes, w=weight(depth, columns)))
    assert not different_rows(case, [2, batch], dynamic=bool(seed % 2), invariant=True)


def test_blocks_of_k() -> None:
    """Products whose rows stay in the L2 cache in blocks of K only, where one row has no blocks."""
    case = BatchedCase("deep", ((1536,),), graph([node("MatMul", "a w", "y")], w=weight(1536, 256)))
    assert not different_rows(case, [100], dynamic=False, invariant=True)


@pytest.mark.parametrize("name", REORDERED)
def test_the_option_is_needed(name: str) -> None:
    assert different_rows(case_named(name), [9], dynamic=False)


def test_zeros_behind_a_row() -> None:
    """A row that ends with what softmax hides has the same bits, however many such elements there are."""
    case = BatchedCase("hidden", ((40,),), case_named("softmax of one row").build)
    executable = mirlo.compile(_softmax(), cache=False, jobs=1, invariant=True)
    rows = case.rows(1)[0][0]
    for width in range(1, 41):
        short = np.asarray(executable(rows[None, :width]))[0]
        for longer in (width + 1, width + 15, 2 * width + 64):
            hidden = np.full((1, longer), -np.inf, np.float32)
            hidden[0, :width] = rows[:width]
            assert np.asarray(executable(hidden))[0, :width].tobytes() == short.tobytes()


def _softmax() -> Any:
    return make_model([node("Softmax", "a", "y", axis=-1)], {"a": (F32, ["n", "k"])}, ["y"], {})


@pytest.mark.parametrize(
    "options, message",
    (
        ({"strategies": "measure"}, "strategies: cannot be chosen with invariant"),
        ({"tune": 1.0}, "tune: cannot be used with invariant"),
        ({"schedules": {"gemm": lambda s: None}}, "schedules: cannot be given with invariant"),
        ({"ring_caches": True}, "ring_caches: cannot be used with invariant"),
        ({"target": "c,llvm"}, "code generators do not promise equal bits"),
    ),
)
def test_what_chooses_another_order_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileOptionError, match=message):
        mirlo.compile(CASES[0].model(1), invariant=True, **options)


def test_targets_without_the_promise_are_an_error() -> None:
    with pytest.raises(TargetError, match="target 'spirv' does not promise equal bits"):
        mirlo.compile(CASES[0].model(1), invariant=True, target="spirv")


def test_the_cache_and_reports_tell_it(tmp_path: Path) -> None:
    model = case_named("weights of 4 bits by 32 packed").model("n")
    for _ in range(2):
        for invariant, target in ((False, "llvm"), (True, "llvm{invariant=true}")):
            compiled = mirlo.compile(model, cache=tmp_path, jobs=1, invariant=invariant)
            assert [region["target"] for region in compiled.artifact.metadata["regions"]] == [target]


@pytest.mark.parametrize("invariant", ("", " invariant=true"))
def test_the_matrix_unit_is_left_out(invariant: str, tmp_path: Path) -> None:
    """AMX adds pairs of bf16 in another order than vectors do, and computes blocks of rows only."""
    onnx.save(case_named("rows 17x128x64").model(64), tmp_path / "model.onnx")
    target = f"llvm{{cpu=sapphirerapids{invariant}}}"
    explained = explain_model(str(tmp_path / "model.onnx"), target, precision="bf16")
    facts = " ".join(str(kernel.schedule) for kernel in explained.kernels)
    assert ("tdpbf16ps" in facts) is (not invariant)
