"""The option `invariant`: rows of a batch have the bits that they have alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from invariant_cases import CASES, BatchedCase, different_rows, graph, weight
from onnx import helper
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


def attention_model(heads: int, groups: int, size: int, queries: int | str) -> Any:
    """Return attention of some rows to keys of any number; each head of keys has a group of heads of queries."""
    nodes = [
        node("Reshape", "a s", "q"),
        node("Transpose", "b", "k", perm=[0, 1, 3, 2]),
        node("MatMul", "q k", "s0"),
        node("Softmax", "s0", "p", axis=-1),
        node("MatMul", "p c", "y"),
    ]
    shapes: dict[str, Any] = {"a": ["n", heads, groups, queries, size]}
    shapes |= {name: ["n", heads, "keys", size] for name in "bc"}
    rows = -1 if isinstance(queries, str) else groups * queries
    return make_model(
        nodes, {name: (F32, shape) for name, shape in shapes.items()}, ["y"], {"s": np.array([0, heads, rows, size])}
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", ("llvm", "llvm{cpu=x86-64-v2}", "llvm{cpu=znver3}"))
@pytest.mark.parametrize("seed", range(8))
def test_attention_of_one_row_and_of_many(seed: int, target: str) -> None:
    """Rows of one call, of a number that is known and of any number, have the bits that they have one by one."""
    random = np.random.default_rng(seed)
    heads, groups = int(random.integers(1, 4)), int(random.choice([1, 1, 3, 4]))
    size, most = int(random.choice([64, 128, random.integers(1, 100)])), int(random.choice([2, 7, 20, 45]))
    one, known, dynamic = (
        mirlo.compile(attention_model(heads, groups, size, queries), cache=False, jobs=1, invariant=True, target=target)
        for queries in (1, most, "queries")
    )
    for keys in (0, 1, 2, 15, 17, int(random.integers(18, 150))):
        q, k, v = (
            random.standard_normal(shape).astype(np.float32)
            for shape in ((2, heads, groups, most, size), (2, heads, keys, size), (2, heads, keys, size))
        )
        found = [np.asarray(each(q, k, v)).reshape(q.shape) for each in (known, dynamic)]
        for at in range(most):
            for row in (0, 1):
                alone = np.asarray(one(q[row : row + 1, :, :, at : at + 1], k[row : row + 1], v[row : row + 1]))
                expected = alone.reshape(heads, groups, size).tobytes()
                assert [each[row, :, :, at].tobytes() for each in found] == [expected] * 2, (keys, at, row)
    for queries in (0, 1):
        q = random.standard_normal((1, heads, groups, queries, size)).astype(np.float32)
        result = np.asarray(dynamic(q, k[:1], v[:1])).reshape(q.shape)
        assert all(result.tobytes() == np.asarray(one(q, k[:1], v[:1])).tobytes() for _ in range(queries))


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
@pytest.mark.parametrize("seed", range(12))
def test_products_of_inputs(seed: int, kind: str) -> None:
    """Products with rows that are contiguous along K: few of them, many, one, with rests of vectors."""
    random = np.random.default_rng(seed)
    rows, columns = int(random.choice([1, 3, 17, 40])), int(random.choice([1, 7, 16, 50]))
    depth = int(random.choice([1, 5, 16, 64, 70, 1000]))
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("Cast", name, f"{name}0", to=to) for name in "ab"]
    nodes += [node("Transpose", "b0", "t", perm=[0, 2, 1]), node("MatMul", "a0 t", "y")]
    case, single = (
        BatchedCase(f"{count} x {depth} x {columns}", ((count, depth), (columns, depth)), graph(nodes))
        for count in (rows, 1)
    )
    assert not different_rows(case, [2, 5], dynamic=bool(seed % 2), invariant=True)
    many, one = (mirlo.compile(each.model(1), cache=False, jobs=1, invariant=True) for each in (case, single))
    a, b = case.rows(1)
    found = np.asarray(many(a, b))
    for at in range(rows):
        assert np.asarray(one(a[:, at : at + 1], b)).tobytes() == found[:, at : at + 1].tobytes()


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
