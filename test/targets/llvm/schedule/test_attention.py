"""Attention in one kernel: against numpy, with all kinds of masks and heads, in one block and in several."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from attention_cases import CASES, OPEN_CASES, OPEN_SIZES, Case, reference
from onnx_models import F32, make_model, node
from presets import PROCESSORS

import mirlo
from mirlo import R, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.legalize.rules.attention import attention as decomposed_attention
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.primitives import row_blocks
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.session import Session
from mirlo.tools.explain.model import explain_model


@pytest.mark.sample(8)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str, threads: int) -> None:
    case = CASES[name]
    arrays = case.arrays()
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(case.text())
        executable = mirlo.compile(module, threads=threads)
    np.testing.assert_allclose(executable(*arrays), case.expected(arrays), rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1


HIDDEN = {
    "blocks": Case((1, 2, 300, 16), (1, 2, 300, 16), 16, causal=True),
    "more keys than queries": Case((1, 2, 140, 16), (1, 2, 333, 16), 16, causal=True),
    "fewer keys than queries": Case((1, 2, 200, 16), (1, 2, 77, 16), 16, causal=True),
    "a mask as well": Case((1, 2, 260, 16), (1, 2, 260, 16), 16, (1, 1, 260, 260), causal=True),
    "a mask of choices": Case((2, 2, 129, 8), (2, 2, 129, 8), 24, (2, 1, 1, 129), "i1", causal=True),
    "grouped": Case((1, 4, 280, 16), (1, 2, 280, 16), 16, causal=True),
    "one head": Case((1, 1, 257, 16), (1, 1, 257, 16), 16, causal=True),
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_hidden_is_not_computed(name: str, threads: int) -> None:
    """Blocks end where the last of their rows sees no more: whole panels, the rest of a row, a part of the sum."""
    case = HIDDEN[name]
    arrays = case.arrays()
    # Garbage in what is hidden from everyone would be seen if it was computed with.
    visible = case.query[2]
    for array in arrays[1:3]:
        array[:, :, visible + 64 :] = np.nan
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), threads=threads, cache=False)
    clean = [array if i not in (1, 2) else np.nan_to_num(array) for i, array in enumerate(arrays)]
    np.testing.assert_allclose(executable(*arrays), case.expected(clean), rtol=2e-5, atol=2e-6)


def test_rows_and_hidden_columns_are_analyzed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("shared_rows", "_hidden_columns"):
        analysis = getattr(row_blocks, name)
        counted = lambda *arguments, name=name, analysis=analysis: calls.append(name) or analysis(*arguments)  # noqa: E731
        monkeypatch.setattr(row_blocks, name, counted)
    with make_context(), ir.Location.unknown():
        session = Session()
        Pipeline("legalize{target=llvm},schedule").run(ir.Module.parse(HIDDEN["blocks"].text()), session)
    assert sorted(calls) == ["_hidden_columns", "shared_rows"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("rows", [17, 30, 61, 257, 300])
def test_blocks_at_the_same_time_have_memory_of_their_own(rows: int) -> None:
    """Whatever number of blocks and rows after them there is, threads share neither scores nor weights."""
    case = Case((1, 1, rows, 16), (1, 1, 257, 16), 16)
    arrays = case.arrays()
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), threads=2, cache=False)
    expected = case.expected(arrays)
    for _ in range(100):
        np.testing.assert_allclose(executable(*arrays), expected, rtol=2e-5, atol=2e-6)


@mirlo.prim_func
def numbered_rows(
    q: T.Buffer[(400, 16), T.f32],
    k: T.Buffer[(400, 16), T.f32],
    v: T.Buffer[(400, 16), T.f32],
    o: T.Out[(400, 16), T.f32],
):
    scores = T.alloc((400, 400), T.f32)
    highest = T.alloc((400, 1), T.f32)
    weights = T.alloc((400, 400), T.f32)
    for i, j, c in T.grid(400, 400, 16):
        with T.block("scores"):
            vi, vj, vc = T.axes("SSR", i, j, c)
            with T.init():
                scores[vi, vj] = 0.0
            scores[vi, vj] += q[vi, vc] * k[vj, vc]
    for i, u, j in T.grid(400, 1, 400):
        with T.block("highest"):
            vi, vu, vj = T.axes("SSR", i, u, j)
            with T.init():
                highest[vi, vu] = T.f32("-inf")
            highest[vi, vu] = T.max(highest[vi, vu], scores[vi, vj])
    for i, j in T.grid(400, 400):
        with T.block("weights"):
            vi, vj = T.axes("SS", i, j)
            weights[vi, vj] = (scores[vi, vj] - highest[vi, 0]) * T.f32(vi)
    for i, c, j in T.grid(400, 16, 400):
        with T.block("result"):
            vi, vc, vj = T.axes("SSR", i, c, j)
            with T.init():
                o[vi, vc] = 0.0
            o[vi, vc] += weights[vi, vj] * v[vj, vc]


def test_rows_that_compute_with_their_number() -> None:
    """Compare with numpy: a row has another number in its block than among all rows."""

    @mirlo.script
    def model(q: R.Tensor[(400, 16), R.f32], k: R.Tensor[(400, 16), R.f32], v: R.Tensor[(400, 16), R.f32]):
        return R.call_tir(numbered_rows, q, k, v)

    q, k, v = (np.random.default_rng(i).standard_normal((400, 16), dtype=np.float32) for i in range(3))
    scores = q.astype(np.float64) @ k.T
    expected = (scores - scores.max(-1, keepdims=True)) * np.arange(400)[:, None] @ v
    np.testing.assert_allclose(mirlo.compile(model)(q, k, v), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_operands_that_are_slices_and_permutes() -> None:
    """Query, keys and values as parts of one tensor, heads between: none of it is copied."""
    text = """func.func @main(%qkv: tensor<2x19x9x16xf32>) -> tensor<2x19x3x16xf32> {
      %0:3 = "relax.split"(%qkv) {axis = 2 : i64, sizes = [3, 3, 3],
        resultSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
        : (tensor<2x19x9x16xf32>) -> (tensor<2x19x3x16xf32>, tensor<2x19x3x16xf32>, tensor<2x19x3x16xf32>)
      %q = "relax.permute"(%0#0) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %k = "relax.permute"(%0#1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %v = "relax.permute"(%0#2) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %1 = "relax.attention"(%q, %k, %v) {causal = true}
        : (tensor<2x3x19x16xf32>, tensor<2x3x19x16xf32>, tensor<2x3x19x16xf32>) -> tensor<2x3x19x16xf32>
      %2 = "relax.permute"(%1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x3x19x16xf32>) -> tensor<2x19x3x16xf32>
      return %2 : tensor<2x19x3x16xf32>
    }"""
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(text))
    x = np.random.default_rng(0).standard_normal((2, 19, 9, 16), dtype=np.float32)
    q, k, v = (x[:, :, i : i + 3].transpose(0, 2, 1, 3) for i in (0, 3, 6))
    want = reference(q, k, v, None, None, 0).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(executable(x), want, rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", OPEN_CASES)
def test_lengths_of_run_time(name: str, threads: int) -> None:
    """One compilation for all sizes: blocks of rows that are not full, panels of keys that are not, nothing at all."""
    case = OPEN_CASES[name]
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), threads=threads, cache=False)
    assert len(executable.artifact.kernels) == 1
    for sizes in (*OPEN_SIZES, {"b": 1, "s": 200, "t": 333}, {"b": 1, "s": 257, "t": 257}):
        arrays = case.at(**sizes).arrays()
        found = executable(*arrays)
        np.testing.assert_allclose(found, case.expected(arrays), rtol=2e-5, atol=2e-6, err_msg=str(sizes))


CAPPED = {
    "plain": Case((1, 2, 33, 16), (1, 2, 40, 16), 16, softcap=0.7),
    "grouped, causal, a mask": Case((2, 4, 30, 16), (2, 2, 30, 16), 24, (2, 1, 30, 30), causal=True, softcap=2.0),
    "a mask of choices": Case((1, 2, 20, 16), (1, 2, 20, 16), 16, (20, 20), "i1", softcap=0.5),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CAPPED)
def test_capped_scores(name: str, threads: int) -> None:
    """Scores are capped before the mask, in the same kernel."""
    case = CAPPED[name]
    arrays = case.arrays()
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), threads=threads, cache=False)
    np.testing.assert_allclose(executable(*arrays), case.expected(arrays), rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1
    uncapped = replace(case, softcap=None).expected(arrays)
    assert np.abs(uncapped - case.expected(arrays)).max() > 1e-2


SCHEDULED = "legalize{target=llvm},annotate-kinds,fuse-ops,fuse-tir,canonicalize,cse,schedule{target=llvm}"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("processor", ["icelake", "zen3", "neoverse-n1"])
@pytest.mark.parametrize("keys", [5, 64, 65, 197, 512, 555, "t"])
def test_keys_are_transposed_by_one_copy(keys: int | str, processor: str, causal: bool) -> None:
    """Panels of keys that are whole and one that is not have one loop, which transposes squares of a vector's lanes."""
    case = Case((1, 2, 555, 64), (1, 2, keys, 64), 64, causal=causal)
    scheduled = SCHEDULED.replace("schedule{", f"schedule{{machine={PROCESSORS[processor]} ")
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(case.text())
        Pipeline(f"builtin.module({scheduled})").run(module)
    text = str(module)
    assert text.count('rule = "blocked"') == 1
    lanes = {"icelake": 16, "zen3": 8, "neoverse-n1": 4}[processor]
    block = re.search(r"\bblock = (\d+) : i64", text)
    sizes_of_blocks = 1 if block is None or case.query[2] % int(block[1]) == 0 else 2
    assert text.count("vector.shuffle") == sizes_of_blocks * lanes * (lanes.bit_length() - 1)


@pytest.mark.sample(4)
@pytest.mark.parametrize("processor", ["icelake", "zen3", "neoverse-n1"])
@pytest.mark.parametrize("name", [*CASES, *HIDDEN, *CAPPED, *(f"open: {name}" for name in OPEN_CASES)])
def test_printed_primitives_make_the_same_code(name: str, processor: str) -> None:
    """The two products and the rows of a block are one schedule, which may be edited and given back."""
    case = {**CASES, **HIDDEN, **CAPPED, **{f"open: {each}": OPEN_CASES[each] for each in OPEN_CASES}}[name]
    options = {"machine": PROCESSORS[processor], "threads": 2}
    texts, has_own_row = list[str](), False
    schedules: dict[str, object] = {}
    for _ in range(2):
        with make_context(), ir.Location.unknown():
            module, session = ir.Module.parse(case.text()), Session(options={**options, "schedules": schedules})
            Pipeline(f"builtin.module({SCHEDULED})").run(module, session)
            has_own_row = has_own_row or "one_row" in str(module)
            texts.append(re.sub(r"attributes \{.*\} \{$", "", str(module), flags=re.MULTILINE))
        record = next(note for note in session.notes if isinstance(note, ScheduleRecord))
        if not schedules and record.rule.name != "blocked":
            return
        schedules = {record.function: record.trace}
    assert "block_rows" in str(record.trace)
    assert ("specialize" in str(record.trace)) == has_own_row
    assert texts[0] == texts[1]


WITH_SINKS = {
    "plain": Case((1, 2, 33, 16), (1, 2, 40, 16), 16, sinks=True),
    "grouped, causal, a mask": Case((2, 4, 30, 16), (2, 2, 30, 16), 24, (2, 1, 30, 30), causal=True, sinks=True),
    "capped, a mask of choices": Case((1, 2, 20, 16), (1, 2, 20, 16), 16, (20, 20), "i1", softcap=0.5, sinks=True),
    "behind a cache": Case((2, 4, 1, 32), (2, 2, 75, 32), 32, causal=True, at_end=True, sinks=True),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", WITH_SINKS)
def test_sinks(name: str, threads: int) -> None:
    """Sinks are part of the sums of the weights, in the same kernel; a target without a rule of its own agrees."""
    case = WITH_SINKS[name]
    arrays = case.arrays()
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), threads=threads, cache=False)
        options = {"legalize": {"relax.attention_with_sinks": decomposed_attention}}
        decomposed = mirlo.compile(ir.Module.parse(case.text()), threads=threads, cache=False, **options)
        module = ir.Module.parse(case.text())
        Pipeline(f"builtin.module({SCHEDULED})").run(module)
        assert str(module).count('rule = "blocked"') == 1
    np.testing.assert_allclose(executable(*arrays), case.expected(arrays), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(decomposed(*arrays), case.expected(arrays), rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1 < len(decomposed.artifact.kernels)
    without = replace(case, sinks=False).expected(arrays[:-1])
    assert np.abs(without - case.expected(arrays)).max() > 1e-2


SHARED_KEYS = {
    "sinks": Case(("b", 4, "s", 16), ("b", 2, "t", 16), 16, ("b", 1, "s", "t"), softcap=0.8, sinks=True),
    "capped scores": Case(("b", 4, "s", 16), ("b", 2, "t", 16), 16, ("b", 1, "s", "t"), softcap=0.8),
    "plain": Case(("b", 6, "s", 16), ("b", 2, "t", 16), 24),
    "a mask of heads": Case(("b", 4, "s", 16), ("b", 2, "t", 16), 16, ("b", 4, "s", "t")),
    "a mask of choices": Case(("b", 4, "s", 16), ("b", 1, "t", 16), 16, (1, 1, "s", "t"), "i1"),
    "behind a cache": Case(("b", 8, "s", 8), ("b", 2, "t", 8), 8, causal=True, at_end=True),
    "tokens before heads": Case(("b", 4, "s", 16), ("b", 2, "t", 16), 16, ("b", 1, "s", "t"), transposed=True),
    "one sequence": Case((1, 4, "s", 16), (1, 2, "t", 16), 16),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SHARED_KEYS)
def test_one_query_of_heads_that_share_keys(name: str, threads: int) -> None:
    """One query has a variant of its own: its heads are the rows of a tile."""
    case = SHARED_KEYS[name]
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), threads=threads, cache=False)
        module = ir.Module.parse(case.text())
        Pipeline(f"builtin.module({SCHEDULED})").run(module)
        assert str(module).count("one_row") == 1
    for size, keys, batch in ((1, 1, 1), (1, 37, 2), (1, 300, 1), (2, 40, 1), (9, 65, 2), (1, 0, 1), (1, 5, 0)):
        arrays = case.at(b=batch, s=size, t=keys).arrays()
        found = executable(*arrays)
        np.testing.assert_allclose(found, case.expected(arrays), rtol=2e-5, atol=2e-6, err_msg=f"{size} {keys} {batch}")


PERMUTATIONS = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])


@pytest.mark.parametrize("processor", ["icelake", "zen3"])
def test_heads_of_one_tensor_are_read_where_they_are(processor: str) -> None:
    """Queries, keys and values are parts of the result of one product: the copy of a panel has keys of one head."""
    nodes = [
        node("Split", "x", "q k v", axis=2, num_outputs=3),
        *(node("Transpose", name, f"{name}t", perm=perm) for name, perm in zip("qkv", PERMUTATIONS, strict=True)),
        node("MatMul", "qt kt", "scores"), node("Softmax", "scores", "weights"), node("MatMul", "weights vt", "a"),
        node("Transpose", "a", "y", perm=[0, 2, 1, 3]),
    ]  # fmt: skip
    model = make_model(nodes, {"x": (F32, [1, 32, 12, 16])}, ["y"])
    explained = explain_model(model, f"llvm{{{PROCESSORS[processor]}}}", follow=True, tune=False)
    (kernel,) = explained.kernels
    assert kernel.schedule is not None and "block_rows" in str(kernel.schedule.trace)
    text = "".join(stage.text for stages in explained.stages.values() for stage in stages)
    assert set(re.findall(r"memref<1x(\d+)x16x\d+xf32>", text)) == {"1"}
