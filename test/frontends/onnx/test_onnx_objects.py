"""Models on sequences, optional values and strings: imported, compiled to programs, run, saved and loaded."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.frontends.onnx import OnnxImportError, import_model
from mirlo.runtime.errors import ArtifactError, InputError, PackedFunctionError
from mirlo.runtime.host import host_function
from mirlo.runtime.program import Program
from mirlo.testing import oracle


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}')


WORDS = model("""
words (string[3] x, float[3] scale) => (string[2, 3] y, float[3] numbers, bool[3] same) {
  suffix = Constant<value_strings: strings = ["0"]>()
  longer = StringConcat(x, suffix)
  shape = Constant<value = int64[2] {1, 3}>()
  row = Reshape(longer, shape)
  first = Reshape(x, shape)
  y = Concat<axis = 0>(row, first)
  parsed = Cast<to = 1>(longer)
  numbers = Mul(parsed, scale)
  same = Equal(x, suffix)
}""")


def test_strings_move_and_become_numbers() -> None:
    f = mirlo.compile(WORDS)
    assert isinstance(f, Program)
    y, numbers, same = f(["1", "0", "-2"], np.float32([1, 2, 3]))
    assert y.tolist() == [["10", "00", "-20"], ["1", "0", "-2"]] and y.dtype == object
    np.testing.assert_array_equal(numbers, np.float32([10, 0, -60]))
    np.testing.assert_array_equal(same, [False, True, False])


@pytest.mark.parametrize("reduction", ["add", "max"])
def test_strings_are_not_reduced(reduction: str) -> None:
    scatter = f'ScatterElements<axis = 0, reduction = "{reduction}">(x, places, new)'
    with pytest.raises(OnnxImportError, match=f"'reduction' must be 'none' for strings, got '{reduction}'"):
        mirlo.compile(model(f"g (string[4] x, int64[2] places, string[2] new) => (string[4] y) {{ y = {scatter} }}"))


def test_a_program_is_saved_and_loaded(tmp_path: Path) -> None:
    mirlo.compile(WORDS).save(tmp_path / "words.mirlo")
    loaded = mirlo.load(tmp_path / "words.mirlo")
    results = loaded.run({"x": ["1", "0", "-2"], "scale": np.float32([1, 2, 3])})
    assert list(results) == ["y", "numbers", "same"]
    np.testing.assert_array_equal(results["numbers"], np.float32([10, 0, -60]))
    damaged = bytearray((tmp_path / "words.mirlo").read_bytes())
    damaged[100] ^= 1
    (tmp_path / "bad.mirlo").write_bytes(damaged)
    with pytest.raises(ArtifactError):
        mirlo.load(tmp_path / "bad.mirlo")


def test_equal_parts_are_compiled_once_and_weights_are_shared() -> None:
    f = mirlo.compile(
        model("""
    parts (string[2] a, string[2] b) => (float[2] c, float[2] d) {
      x = Cast<to = 1>(a)
      c = Exp(x)
      text = Cast<to = 8>(c)
      again = Cast<to = 1>(text)
      d = Exp(again)
    }""")
    )
    assert len(f.compiled.parts) == 1
    c, d = f(["0", "1"], ["", ""])
    np.testing.assert_allclose(c, np.exp([0, 1]), rtol=1e-6)
    np.testing.assert_allclose(d, np.exp(c), rtol=1e-6)


SEQUENCES = model("""
sequences (seq(float[2]) xs, int64 at, bool flip) => (float[2] picked, seq(float[2]) more, int64 count) {
  got = SequenceAt(xs, at)
  picked = Neg(got)
  more = If(flip) <
    then_branch = t() => (seq(float[2]) inserted) { inserted = SequenceInsert(xs, picked) },
    else_branch = e() => (seq(float[2]) erased) { erased = SequenceErase(xs, at) }
  >
  count = SequenceLength(more)
}""")


def test_sequences_at_run_time() -> None:
    f = mirlo.compile(SEQUENCES)
    xs = [np.float32([i, i + 1]) for i in range(3)]
    picked, more, count = f(xs, np.int64(-1), np.array(True))
    np.testing.assert_array_equal(picked, [-2, -3])
    assert isinstance(more, tuple) and count == 4
    np.testing.assert_array_equal(more[3], [-2, -3])
    _, more, count = f(xs, np.int64(0), np.array(False))
    assert count == 2 and [item[0] for item in more] == [1, 2]
    # What comes out is the caller's: writing to it changes nothing that was put in.
    more[0][...] = 9
    assert xs[1][0] == 1


def test_a_loop_over_a_sequence() -> None:
    f = mirlo.compile(
        model("""
    total (seq(float[2]) xs) => (float[2] total, seq(float[2]) steps) {
      n = SequenceLength(xs)
      go = Constant<value = bool {1}>()
      zero = Constant<value = float[2] {0.0, 0.0}>()
      none = SequenceEmpty<dtype = 1>()
      total, steps = Loop(n, go, zero, none) <
        body = b(int64 i, bool on, float[2] sum, seq(float[2]) seen) => (bool still, float[2] next, seq(float[2]) now) {
          still = Identity(on)
          x = SequenceAt(xs, i)
          next = Add(sum, x)
          now = SequenceInsert(seen, next)
        }
      >
    }""")
    )
    xs = [np.float32([i, 1]) for i in range(4)]
    total, steps = f(xs)
    np.testing.assert_array_equal(total, [6, 4])
    np.testing.assert_array_equal(np.stack(steps), np.cumsum(xs, 0))
    total, steps = f([])
    assert not total.any() and steps == ()


def test_optional_values() -> None:
    f = mirlo.compile(
        model("""
    maybe (optional(float[3]) x) => (bool there, float[3] y) {
      there = OptionalHasElement(x)
      y = If(there) <
        then_branch = t() => (float[3] a) { v = OptionalGetElement(x) a = Neg(v) },
        else_branch = e() => (float[3] b) { b = Constant<value = float[3] {1.0, 2.0, 3.0}>() }
      >
    }""")
    )
    there, y = f(None)
    assert not there and y.tolist() == [1, 2, 3]
    there, y = f(np.float32([4, 5, 6]))
    assert there and y.tolist() == [-4, -5, -6]


@oracle.needs_onnx(1, 19)
def test_a_loop_that_carries_an_optional_sequence() -> None:
    """ONNX's own case, which its suite cannot compare: elements of sequences of rank 0."""
    from onnx.backend.test.case import node

    # An import adds the cases of an operator; to collect those of all takes seconds.
    importlib.import_module(f"{node.__name__}.loop")
    case = next(case for case in node._NodeTestCases if case.name == "test_loop16_seq_none")
    inputs, (expected,) = case.data_sets[0]
    found = mirlo.compile(case.model)(*inputs)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_errors_name_node_and_input() -> None:
    f = mirlo.compile(SEQUENCES)
    xs = [np.float32([0, 1])]
    with pytest.raises(PackedFunctionError, match="node 'SequenceAt_0': .*position 5 is outside a sequence of 1"):
        f(xs, np.int64(5), np.array(True))
    with pytest.raises(InputError, match=r"input 'xs': expected a list for sequence\(f32\[2\]\), found ndarray"):
        f(xs[0], np.int64(0), np.array(True))
    with pytest.raises(InputError, match=r"input 'xs\[1\]': expected f32\[2\], found f32\[3\]|xs\[1\]"):
        f([xs[0], np.zeros(3, np.float32)], np.int64(0), np.array(True))
    with pytest.raises(InputError, match=r"the model has 3 inputs .*, found 1: missing at: i64\[\], flip: bool\[\]"):
        f(xs)
    with pytest.raises(InputError, match="expected strings for string"):
        mirlo.compile(WORDS)([1, 2, 3], np.float32([1, 2, 3]))


def test_what_is_declared_must_be_made() -> None:
    wrong = model("wrong (seq(float[2]) xs) => (float[2] y) { y = Identity(xs) }")
    with pytest.raises(OnnxImportError, match=r"output 'y' is declared f32\[2\], but the nodes .* sequence"):
        import_model(wrong)


def test_a_host_function_of_the_user() -> None:
    from mirlo.extend.ops import converter
    from mirlo.frontends.onnx.registry import CONVERTERS
    from mirlo.runtime.kinds import Kind

    @host_function("test.longest", override=True)
    def longest(words: Any, *, least: int) -> Any:
        return np.array(max((len(word) for word in words.flat), default=least), np.int64)

    @converter("Longest", domain="test.objects")
    def convert(node: Any) -> Any:
        return node.host("test.longest", node.object(0), results=[Kind("i64", ())], least=node.attr.int("least", 0))

    try:
        made = model("g (string[N] x) => (int64 y) { y = test.objects.Longest<least = 2>(x) }")
        made.opset_import.append(onnx.helper.make_opsetid("test.objects", 1))
        assert mirlo.compile(made)(["a", "abcd"]) == 4
    finally:
        CONVERTERS.users.__init__()  # type: ignore[misc]


MOVEMENTS = {
    "Gather<axis = 1>(x, scalar)": True, "Gather<axis = -1>(x, last)": True, "Gather<axis = 1>(x, some)": True,
    "Gather<axis = 1>(x, range)": True, "Gather<axis = 1>(x, square)": True, "Gather<axis = 0>(x, some)": False,
    "Reshape(x, flat)": True, "Reshape(x, split)": True, "Unsqueeze(x, axes)": True,
    "Transpose<perm = [1, 0]>(x)": False,
    "Slice(x, scalars, ends, axes)": False, "Concat<axis = 1>(x, x)": False,
}  # fmt: skip


@pytest.mark.parametrize("operator", MOVEMENTS)
@pytest.mark.parametrize("then", ["Identity(m)", "Unsqueeze(m, axes)", "Flatten(m)"])
def test_strings_of_a_dynamic_size_move(operator: str, then: str) -> None:
    """Columns and other shapes are taken by the host itself: no compiled part moves indices."""
    moving = model(f"""g (string[n, 4] x) => (string[] y) <
        int64 scalar = {{2}}, int64[1] last = {{-1}}, int64[3] some = {{3, 0, 0}}, int64[2] range = {{1, 2}},
        int64[2, 2] square = {{0, 1, 2, 3}}, int64[1] flat = {{-1}}, int64[3] split = {{0, 2, 2}},
        int64[1] axes = {{1}}, int64[1] scalars = {{1}}, int64[1] ends = {{3}}>
      {{ m = {operator}  y = {then} }}""")
    moving.graph.output[0].type.tensor_type.ClearField("shape")
    f, reference = mirlo.compile(moving), ReferenceEvaluator(moving)  # ONNX Runtime gathers the first of a row only
    for rows in (5, 4):
        x = np.array([f"{i}.{j}" for i in range(rows) for j in range(4)], object).reshape(rows, 4)
        found, expected = f(x), reference.run(None, {"x": x})[0]
        assert found.shape == expected.shape and (found == expected).all()
    if MOVEMENTS[operator]:
        assert not f.compiled.parts


SELECTED = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]>
g (int64[n, 2] x, bool c) => (string[n, 4] y, int64[2] sizes) <
    string[1, 2] fixed = {"5", "six"}, int64[2] turned = {1, 0}>
  {
    a = ai.onnx.ml.LabelEncoder<keys_int64s = [1, 2], values_strings = ["one", "two"], default_string = "?">(x)
    b = ai.onnx.ml.LabelEncoder<keys_int64s = [4, 1, 4], values_strings = ["4", "1", "last"], default_string = "">(x)
    OTHER
    y = Concat<axis = 1>(LEFT, RIGHT)
    sizes = Shape(y)
  }"""
SELECTIONS = {
    ("", "a", "b"): 2,
    ("", "a", "a"): 2,
    ("e = Gather<axis = 1>(a, turned)", "b", "e"): 2,
    ("s = Shape(a)  d = Expand(fixed, s)  e = Where(c, a, d)", "b", "e"): 2,
    ("e = If(c) <then_branch = t () => (string[n, 2] u) { u = Identity(b) }, "
     "else_branch = f () => (string[n, 2] v) { v = Identity(a) }>", "a", "e"): None,
    ("e = StringConcat(a, b)", "a", "e"): None,
}  # fmt: skip
"""Movements of strings that are selected from tables, and the host functions of the programs if no others are."""


@pytest.mark.parametrize(("other", "left", "right"), SELECTIONS)
def test_strings_of_tables_move_as_positions(other: str, left: str, right: str) -> None:
    """Strings of tables at import are taken once, as results, from one table: compiled code moves their positions."""
    text = SELECTED.replace("OTHER", other).replace("LEFT", left).replace("RIGHT", right)
    moving = parser.parse_model(text)
    f, reference = mirlo.compile(moving), ReferenceEvaluator(moving)
    for rows, flag in ((3, True), (1, False), (0, True)):
        x = np.arange(rows * 2).reshape(rows, 2)
        inputs = {"x": x, "c": np.array(flag)}
        expected = reference.run(None, inputs)
        found = f(**inputs)
        assert found[0].shape == expected[0].shape and (found[0] == expected[0]).all()
        np.testing.assert_array_equal(found[1], expected[1])
    count = SELECTIONS[other, left, right]
    assert count is None or sum(step.kind == "host" for step in f.compiled.body.steps) == count


def test_movements_of_constant_strings_are_constants() -> None:
    """Strings that are known at import are moved at import."""
    f = mirlo.compile(
        model("""g (int64 n) => (string[2, 2] y) <string[2] a = {"x", "y"}, int64[2, 2] places = {1, 0, 0, 3}>
      { twice = Concat<axis = 0>(a, a)  y = Gather(twice, places) }""")
    )
    assert [step.function for step in f.compiled.body.steps] == ["mirlo.string.constant"]
    assert f(np.int64(0)).tolist() == [["y", "x"], ["x", "y"]]
