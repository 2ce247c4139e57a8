"""Loops that carry tensors whose sizes change in each iteration, and branches of different sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import mirlo
from mirlo.frontends.onnx import OnnxImportError
from mirlo.runtime.errors import InputError

HEAD = '<ir_version: 10, opset_import: ["": 18]>'


def assert_like_onnxruntime(text: str, *calls: dict[str, Any]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = parser.parse_model(HEAD + text)
    compiled = mirlo.compile(model, cache=False)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for inputs in calls:
        given = {name: np.asarray(value) for name, value in inputs.items()}
        wanted = session.run(None, given)
        for got, expected in zip(compiled.run(given).values(), wanted, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
            assert got.shape == expected.shape


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.sample(3)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("start", [0, 2])
def test_growth_along_an_axis(axis: int, start: int) -> None:
    shape = [2, 3, 4]
    declared = ["2", "3", "4"]
    shape[axis], declared[axis] = start, "n"
    row = [2, 3, 4]
    row[axis] = 1
    assert_like_onnxruntime(
        f"""g (float[{", ".join(map(str, shape))}] x, float[{", ".join(map(str, row))}] row, int64 M)
              => (float[a, b, c] y, float[d, e, f] z) {{
          yes = Constant<value = bool {{1}}>()
          y = Loop(M, yes, x) <body = body (int64 i, bool c, float[p, q, r] v) => (bool more, float[s, t, u] w) {{
            more = Identity(c)
            f = Cast<to = 1>(i)
            scaled = Mul(row, f)
            w = Concat<axis = {axis}>(v, scaled)
          }}>
          z = Relu(y)
        }}""",
        *({"x": array(*shape), "row": array(*row), "M": rounds} for rounds in (0, 1, 2, 9, 100)),
    )


def test_a_loop_whose_count_is_known_but_large() -> None:
    assert_like_onnxruntime(
        """g (float[n] x) => (float[k] y) {
          M = Constant<value = int64 {2000}>()
          y = Loop(M, , x) <body = body (int64 i, bool c, float[p] v) => (bool c2, float[q] w) {
            c2 = Identity(c)  f = Cast<to = 1>(i)  a = Constant<value_ints = [0]>()  row = Unsqueeze(f, a)
            w = Concat<axis = 0>(v, row) }>
        }""",
        {"x": array(0)},
        {"x": array(3)},
    )


def test_growth_by_counts_that_depend_on_data() -> None:
    assert_like_onnxruntime(
        """g (float[n] x, int64 M) => (int64[k] y) {
          yes = Constant<value = bool {1}>()
          none = Constant<value_ints = [-1]>()
          one = Constant<value_ints = [1]>()
          y = Loop(M, yes, none) <body = body (int64 i, bool c, int64[p] v) => (bool c2, int64[q] w) {
            c2 = Identity(c)  f = Cast<to = 1>(i)  above = Greater(x, f)  where = NonZero(above)
            minus = Constant<value_ints = [-1]>()  flat = Reshape(where, minus)
            w = Concat<axis = 0>(v, flat) }>
        }""",
        *({"x": np.arange(n, dtype=np.float32), "M": rounds} for n, rounds in ((0, 2), (5, 0), (5, 3), (40, 50))),
    )


def test_values_that_grow_shrink_and_change_places() -> None:
    assert_like_onnxruntime(
        """g (float[n] x, float[m] y, int64 M) => (float[a] p, float[b] q, float[c] r) {
          yes = Constant<value = bool {1}>()
          p, q, r = Loop(M, yes, x, y, x) <body = body (int64 i, bool c, float[d] u, float[e] v, float[f] w)
              => (bool c2, float[g] v2, float[h] u2, float[j] w2) {
            c2 = Identity(c)
            v2 = Concat<axis = 0>(v, v)
            u2 = Identity(u)
            begin = Constant<value_ints = [1]>()
            end = Constant<value_ints = [1000000]>()
            w2 = Slice(w, begin, end) }>
        }""",
        *({"x": array(n), "y": array(m), "M": rounds} for n, m in ((0, 3), (2, 1)) for rounds in (0, 1, 2, 7)),
    )


def test_growth_where_a_branch_is_taken() -> None:
    assert_like_onnxruntime(
        """g (float[n, 3] x, int64 M) => (float[a, 3] y, float[3] s) {
          yes = Constant<value = bool {1}>()
          none = Constant<value = float[0, 3] {}>()
          y = Loop(M, yes, none) <body = body (int64 i, bool c, float[p, 3] v) => (bool c2, float[q, 3] w) {
            c2 = Identity(c)
            two = Constant<value = int64 {2}>()  odd = Mod(i, two)  is_odd = Cast<to = 9>(odd)
            w = If (is_odd) <then_branch = t () => (float[r, 3] j) { j = Concat<axis = 0>(v, x) },
                             else_branch = e () => (float[s, 3] k) { k = Neg(v) }> }>
          axes = Constant<value_ints = [0]>()
          s = ReduceSum<keepdims = 0>(y, axes)
        }""",
        *({"x": array(n, 3), "M": rounds} for n in (0, 2) for rounds in (0, 1, 2, 9)),
    )


def test_growth_in_nested_loops_until_a_condition_fails() -> None:
    assert_like_onnxruntime(
        """g (float[n] x, int64 M, float most) => (float[a] y, int64 size) {
          yes = Constant<value = bool {1}>()
          y = Loop(M, yes, x) <body = outer (int64 i, bool c, float[p] v) => (bool go, float[q] w) {
            head = Constant<value_ints = [0]>()
            w = Loop(i, yes, v) <body = inner (int64 j, bool c3, float[r] u) => (bool c4, float[s] t) {
              c4 = Identity(c3)
              f = Cast<to = 1>(j)  axes = Constant<value_ints = [0]>()  row = Unsqueeze(f, axes)
              t = Concat<axis = 0>(row, u) }>
            total = ReduceSum<keepdims = 0>(w)
            go = Less(total, most) }>
          size = Size(y)
        }""",
        *({"x": array(n), "M": rounds, "most": np.float32(20)} for n in (0, 3) for rounds in (0, 1, 2, 5, 30)),
    )


@pytest.mark.sample(0)
def test_scan_outputs_beside_a_value_that_grows() -> None:
    assert_like_onnxruntime(
        """g (float[2] x, int64 M) => (float[a] y, float[b, 2] rows, int64[d] sizes) {
          yes = Constant<value = bool {1}>()
          y, rows, sizes = Loop(M, yes, x) <body = body (int64 i, bool c, float[p] v)
              => (bool c2, float[q] w, float[2] row, int64 size) {
            c2 = Identity(c)  w = Concat<axis = 0>(v, x)  size = Size(w)
            f = Cast<to = 1>(size)  row = Mul(x, f) }>
        }""",
        *({"x": array(2), "M": rounds} for rounds in (1, 2, 9)),
    )


@pytest.mark.sample(0)
def test_a_decoder_that_reads_all_that_it_wrote() -> None:
    """Greedy decoding: the next row depends on all rows before it, until their sum is large."""
    assert_like_onnxruntime(
        """g (float[1, 4] start, float[4, 4] w, int64 M) => (float[t, 4] y) {
          yes = Constant<value = bool {1}>()
          limit = Constant<value = float {30.0}>()
          y = Loop(M, yes, start) <body = body (int64 i, bool c, float[p, 4] v) => (bool go, float[q, 4] next) {
            h = MatMul(v, w)  s = Softmax<axis = 0>(h)  m = Mul(s, v)
            row = ReduceMean<keepdims = 1>(m)
            ones = Constant<value = float[1, 4] {1.0, 1.0, 1.0, 1.0}>()
            wide = Mul(ones, row)
            next = Concat<axis = 0>(v, wide)
            total = ReduceSum<keepdims = 0>(next)  go = Less(total, limit) }>
        }""",
        *({"start": array(1, 4) + 2, "w": array(4, 4), "M": rounds} for rounds in (0, 1, 5, 40)),
    )


def random_loop(seed: int) -> tuple[str, list[dict[str, Any]]]:
    """Return a model whose loop carries several tensors, each of which the body may resize, and inputs for calls."""
    choose = random.Random(seed)
    count = choose.randint(1, 3)
    names = [f"v{i}" for i in range(count)]
    lines: list[str] = []

    def resized(value: str, depth: int) -> str:
        kind = choose.choice(["grow", "double", "drop", "keep", "swap", "nested", "if", "pick"][: 8 if depth else 6])
        other, out = choose.choice(names), f"o{len(lines)}"
        if kind == "grow":
            lines.append(f"{out} = Concat<axis = 0>({value}, x)")
        elif kind == "double":
            lines.append(f"{out}_b = Constant<value_ints = [0]>() {out}_e = Constant<value_ints = [40]>()")
            lines.append(f"{out}_c = Concat<axis = 0>({value}, {value}) {out} = Slice({out}_c, {out}_b, {out}_e)")
        elif kind == "drop":
            lines.append(f"{out}_b = Constant<value_ints = [1]>() {out}_e = Constant<value_ints = [99]>()")
            lines.append(f"{out} = Slice({value}, {out}_b, {out}_e)")
        elif kind == "keep":
            lines.append(f"{out} = Neg({value})")
        elif kind == "swap":
            lines.append(f"{out} = Identity({other})")
        elif kind == "nested":
            head = f"{other}_h{out}"
            lines.append(f"{head}_b = Constant<value_ints = [0]>() {head}_e = Constant<value_ints = [1]>()")
            lines.append(f"{head} = Slice({other}, {head}_b, {head}_e)")
            lines.append(
                f"{out} = Loop(two, yes, {value}) <body = b{out} (int64 j, bool d, float[aa] u) => (bool d2, "
                f"float[bb] t) {{ d2 = Identity(d) t = Concat<axis = 0>(u, {head}) }}>"
            )
        elif kind == "if":
            lines.append(
                f"{out} = If (odd) <then_branch = t{out} () => (float[cc] q{out}) "
                f"{{ q{out} = Concat<axis = 0>(x, {value}) }}, else_branch = e{out} () => (float[dd] r{out}) "
                f"{{ r{out} = Identity({other}) }}>"
            )
        else:
            lines.append(f"{out}_w = Greater({value}, zero) {out}_n = Compress<axis = 0>({value}, {out}_w)")
            lines.append(f"{out} = Concat<axis = 0>({out}_n, x)")
        return out

    outs = [resized(resized(name, 1) if choose.random() < 0.5 else name, 1) for name in names]
    formal = ", ".join(f"float[n{i}] {name}" for i, name in enumerate(names))
    results = ", ".join(f"float[m{i}] {out}" for i, out in enumerate(outs))
    if len(set(outs)) < len(outs):
        return random_loop(seed + 10_000)
    text = f"""g (float[a] x, float[b] s, int64 M) => ({", ".join(f"float[k{i}] y{i}" for i in range(count))}) {{
      yes = Constant<value = bool {{1}}>()
      two = Constant<value = int64 {{2}}>()
      zero = Constant<value = float {{0.0}}>()
      {", ".join(f"y{i}" for i in range(count))} = Loop(M, yes, {", ".join(choose.choice("xs") for _ in names)})
        <body = body (int64 i, bool c, {formal}) => (bool c2, {results}) {{
          c2 = Identity(c) left = Mod(i, two) odd = Cast<to = 9>(left)
          {" ".join(lines)} }}>
    }}"""
    calls = [
        {"x": array(n), "s": array(m), "M": rounds} for n, m in ((1, 2), (2, 0), (0, 3)) for rounds in (0, 1, 2, 5)
    ]
    return text, calls


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(24))
def test_random_loops(seed: int) -> None:
    text, calls = random_loop(seed)
    assert_like_onnxruntime(text, *calls)


def test_memory_of_a_loop_does_not_grow_with_the_square_of_its_rounds() -> None:
    """Each round's intermediate tensors use the memory of those before it."""
    model = parser.parse_model(
        HEAD
        + """g (float[1000] x, int64 M) => (float[a] y) {
          yes = Constant<value = bool {1}>()
          y = Loop(M, yes, x) <body = body (int64 i, bool c, float[p] v) => (bool c2, float[q] w) {
            c2 = Identity(c)  n = Neg(v)  w = Concat<axis = 0>(n, x) }>
        }"""
    )
    compiled = mirlo.compile(model, cache=False)
    sizes: list[int] = []
    from mirlo.runtime.sizes import Allocations

    allocate = Allocations._allocate

    def counted(self: Allocations, record: int, number: int, size: int) -> int | None:
        sizes.append(size)
        return allocate(self, record, number, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allocations, "_allocate", counted)
        y = np.empty(301_000, np.float32)
        compiled.run({"x": array(1000), "M": np.array(300)}, out={"y": y})
    assert len(sizes) < 60
    assert sum(sizes) < 20 * y.nbytes


def refused(text: str, *parts: str) -> None:
    with pytest.raises(OnnxImportError) as raised:
        mirlo.compile(parser.parse_model(HEAD + text), cache=False)
    for part in parts:
        assert part in str(raised.value)


def test_a_rank_or_type_that_changes_is_refused() -> None:
    text = """g (float[2] x, int64 M) => (float[a] y) {
      yes = Constant<value = bool {1}>()
      y = Loop(M, yes, x) <body = body (int64 i, bool c, float[p] v) => (bool c2, float[q] w) { c2 = Identity(c) BODY }>
    }"""
    axes = "axes = Constant<value_ints = [0]>() w = Unsqueeze(v, axes)"
    refused(text.replace("BODY", axes), "'x' is f32[2] before the loop and f32[1, 2] after an iteration", "its rank")
    refused(text.replace("BODY", "w = Cast<to = 11>(v)"), "f64[2] after an iteration", "keep its element type")


def test_rows_of_a_size_that_changes_are_refused_by_the_call() -> None:
    text = """g (float[2] x, int64 M) => (float[a] y, float[b, d] rows) {
      yes = Constant<value = bool {1}>()
      y, rows = Loop(M, yes, x) <body = body (int64 i, bool c, float[p] v) => (bool c2, float[q] w, float[r] row) {
        c2 = Identity(c)  w = Concat<axis = 0>(v, x)  row = Neg(w) }>
    }"""
    assert_like_onnxruntime(text, {"x": array(2), "M": 1})
    compiled = mirlo.compile(parser.parse_model(HEAD + text), cache=False)
    with pytest.raises(InputError, match="what the loop carries as f32"):
        compiled.run({"x": array(2), "M": np.array(2)})


@pytest.mark.parametrize("depth", [1, 6])
def test_nested_loops_are_imported_in_linear_time(depth: int) -> None:
    text = f"w{depth} = Concat<axis = 0>(v{depth}, x)"
    for level in reversed(range(depth)):
        inner = level + 1
        text = (
            f"w{level} = Loop(M, yes, v{level}) <body = b{inner} (int64 i{inner}, bool c{inner}, float[p{inner}] "
            f"v{inner}) => (bool d{inner}, float[q{inner}] w{inner}) {{ d{inner} = Identity(c{inner}) {text} }}>"
        )
    assert_like_onnxruntime(
        f"g (float[1] x, float[n] v0, int64 M) => (float[a] w0) {{ yes = Constant<value = bool {{1}}>() {text} }}",
        *({"x": array(1), "v0": array(n), "M": rounds} for n, rounds in ((0, 1), (2, 2), (3, 0))),
    )


def models_of_sequences() -> Sequence[onnx.ModelProto]:
    return [
        parser.parse_model(
            HEAD
            + """g (float[n] x, seq(float[n]) s, int64 M) => (float[a] y, float[b] z) {
          yes = Constant<value = bool {1}>()
          empty = SequenceEmpty<dtype = 1>()
          y, all = Loop(M, yes, x, s) <body = body (int64 i, bool c, float[p] v, seq(float[d]) t)
              => (bool c2, float[q] w, seq(float[e]) t2) {
            c2 = Identity(c)
            two = Constant<value = int64 {2}>()  odd = Mod(i, two)  is_odd = Cast<to = 9>(odd)
            w = If (is_odd) <then_branch = h () => (float[r] j) { j = Concat<axis = 0>(v, x) },
                             else_branch = k () => (float[u] l) { l = Neg(v) }>
            t2 = SequenceInsert(t, w) }>
          z = ConcatFromSequence<axis = 0>(all)
        }"""
        )
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_growth_beside_a_sequence(rounds: int) -> None:
    """The loop is one of the program: its steps pass on arrays of any shape."""
    runtime = pytest.importorskip("onnxruntime")
    (model,) = models_of_sequences()
    compiled = mirlo.compile(model, cache=False)
    inputs = {"x": array(3), "s": [array(1), array(2)], "M": np.array(rounds)}
    wanted = runtime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for got, expected in zip(compiled.run(inputs).values(), wanted, strict=True):
        np.testing.assert_allclose(got, expected)
