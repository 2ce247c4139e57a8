"""Executables: accepted arguments, results, and errors for arrays that do not match."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.errors import ArtifactError, InputError
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore

A = np.linspace(-1, 1, 8, dtype=np.float32)
B = np.full(8, 3, np.float32)
W = np.arange(8, dtype=np.float32)
EXPECTED = (A + W) * B


class Interface:
    """An array of some library that has numpy's array interface only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def test_by_position_and_by_name(affine):
    exe = affine()
    for result in (exe(A, B), exe(A, b=B), exe(b=B, a=A), exe.run({"b": B, "a": A})["y"]):
        assert isinstance(result, np.ndarray) and result.dtype == np.float32
        np.testing.assert_array_equal(result, EXPECTED)
    assert [str(spec) for spec in exe.inputs] == ["a: f32[8]", "b: f32[8]"]
    assert [str(spec) for spec in exe.outputs] == ["y: f32[8]"]
    assert (exe.memory.weights_bytes, exe.memory.arena_bytes) == (32, 32)
    assert repr(exe).startswith("<Executable for llvm: (a: f32[8], b: f32[8]) -> (y: f32[8]); weights 0.0 MiB")


def test_results_are_new_and_writeable(affine):
    exe = affine()
    first, second = exe(A, B), exe(B, A)
    np.testing.assert_array_equal(first, EXPECTED)
    assert not np.shares_memory(first, second) and first.flags.writeable


def test_large_results_are_aligned(affine):
    exe = affine(1024)
    ones = np.ones(1024, np.float32)
    kept = [exe(ones, ones) for _ in range(9)]
    assert all(array.ctypes.data % 64 == 0 for array in kept)


def test_arrays_that_fit_go_the_short_way(affine, monkeypatch):
    """The slow path takes some microseconds more, which results do not show."""
    exe = affine()
    read_only = A.copy()
    read_only.flags.writeable = False

    def long_way(*_):
        raise NotImplementedError

    monkeypatch.setattr(exe, "_execute", long_way)
    for a in (A, read_only, A.reshape(2, 4).reshape(8)):
        np.testing.assert_array_equal(exe(a, B), EXPECTED)
        np.testing.assert_array_equal(exe.run({"b": B, "a": a})["y"], EXPECTED)
    # A dim of another size, another rank, type, order, class, one too few or many: explained by the long way.
    others = (A[:7], A.reshape(8, 1), A.astype(np.float64), A.astype(">f4"), A[::-1], np.ma.masked_array(A), 1.0, None)
    for values in (*((a, B) for a in others), (A,), (A, B, B), ()):
        with pytest.raises((NotImplementedError, InputError)):
            exe(*values)


def test_the_short_way_leaves_no_references(affine):
    exe = affine()
    a, result = A.copy(), exe(A, B)
    before = sys.getrefcount(a), sys.getrefcount(a.dtype), sys.getrefcount(True), sys.getrefcount(False)
    for _ in range(50):
        result = exe(a, B)
        exe._direct._call(None, B, 0, 0)
    after = sys.getrefcount(a), sys.getrefcount(a.dtype), sys.getrefcount(True), sys.getrefcount(False)
    assert all(abs(x - y) < 40 for x, y in zip(before, after, strict=True)), (before, after)
    other = object()
    assert sys.getrefcount(result) == sys.getrefcount(other)  # 2, or 1 where a local name is no reference


def test_arrays_that_are_not_as_memory_wants_them(affine):
    exe = affine()
    strided = np.repeat(A, 2)[::2]
    read_only = A.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + A.tobytes(), np.uint8)[1:].view(np.float32)
    for value in (strided, read_only, unaligned, A.astype(">f4"), Interface(A), A[::-1][::-1]):
        np.testing.assert_array_equal(exe(value, B), EXPECTED)


def test_contiguous_inputs_are_not_copied(make_artifact):
    """The entry function reports the address that it got."""
    spec = TensorSpec("x", "f32", (4,)), TensorSpec("address", "i64", ())
    body = """
      %x = load ptr, ptr %tensors
      %p = getelementptr ptr, ptr %tensors, i64 1
      %out = load ptr, ptr %p
      %n = ptrtoint ptr %x to i64
      store i64 %n, ptr %out
      ret void"""
    exe = Executable(make_artifact(body, inputs=spec[:1], outputs=spec[1:]), ParameterStore())
    x = np.ones(4, np.float32)
    assert int(exe(x)) == x.ctypes.data
    assert int(exe(Interface(x))) == x.ctypes.data
    assert int(exe(x[::-1])) != x.ctypes.data


@pytest.mark.parametrize(
    ("positional", "named", "message"),
    [
        ((), {}, r"the model has 2 inputs \(a: f32\[8\], b: f32\[8\]\), found 0: missing a: f32\[8\], b: f32\[8\]"),
        ((A,), {}, r"found 1: missing b: f32\[8\]"),
        ((A, B, A), {}, r"the model has 2 inputs .*, found 3 arrays"),
        ((A,), {"a": A}, "input 'a' is given twice, by position and by name"),
        ((A,), {"bb": B}, "no input is named 'bb': the model has 2 inputs .*; did you mean 'b'"),
        ((A, B.astype(np.float64)), {}, r"input 'b': expected f32\[8\], found f64\[8\]: pass array.astype"),
        ((A, B.astype(ml_dtypes.bfloat16)), {}, r"input 'b': expected f32\[8\], found bf16\[8\]"),
        ((A, np.array(["x"] * 8)), {}, r"input 'b': expected f32\[8\], found numpy type <U1\[8\]"),
        ((A, B.astype(object)), {}, r"input 'b': expected f32\[8\], found numpy type object\[8\]"),
        ((A.reshape(2, 4), B), {}, r"input 'a': expected f32\[8\], found f32\[2, 4\]: pass array.reshape\(\(8,\)\)"),
        ((A[:5], B), {}, r"input 'a': expected f32\[8\], found f32\[5\]: pass an array of that shape"),
        ((A, 3.0), {}, r"input 'b': expected an array f32\[8\]: a float is not an array: pass numpy.asarray"),
        ((A, [1.0] * 8), {}, "a list is not an array"),
        ((A, None), {}, "a NoneType is not an array"),
        ((np.float32(1), B), {}, r"input 'a': expected f32\[8\], found f32\[\]"),
    ],
)
def test_inputs_that_do_not_fit(affine, positional, named, message):
    with pytest.raises(InputError, match=message):
        affine()(*positional, **named)


def test_out(affine):
    exe = affine()
    out = np.empty(8, np.float32)
    assert exe(A, B, out=out) is out
    np.testing.assert_array_equal(out, EXPECTED)
    assert exe(A, B, out=[out]) is out
    assert exe.run({"a": A, "b": B}, out={"y": out})["y"] is out
    assert exe(A, B, out=[None]) is not out


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty(7, np.float32), r"output 'y': out must be f32\[8\], found f32\[7\]"),
        (np.empty(8, np.float64), r"output 'y': out must be f32\[8\], found f64\[8\]"),
        (np.empty(16, np.float32)[::2], "output 'y': out must be contiguous, aligned and writeable"),
        (np.broadcast_to(np.float32(0), (8,)), "output 'y': out must be contiguous"),
        ("text", "output 'y': out must be a numpy array, found str"),
        ([], r"out: expected 1 arrays \(y: f32\[8\]\), found 0"),
        ({"z": np.empty(8, np.float32)}, r"out: no output is named 'z'; outputs: y: f32\[8\]"),
        (A, "output 'y': out shares memory with an input"),
    ],
)
def test_out_that_does_not_fit(affine, out, message):
    with pytest.raises(InputError, match=message):
        affine()(A, B, out=out)


TWO_OUTPUTS = """
  %x = load ptr, ptr %tensors
  %p1 = getelementptr ptr, ptr %tensors, i64 1
  %y1 = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %tensors, i64 2
  %y2 = load ptr, ptr %p2
  %v = load i32, ptr %x
  %plus = add i32 %v, 1
  %twice = mul i32 %v, 2
  store i32 %plus, ptr %y1
  store i32 %twice, ptr %y2
  ret void"""


def test_several_outputs_and_scalars(make_artifact):
    scalar = [TensorSpec(name, "i32", ()) for name in ("x", "plus", "twice")]
    exe = Executable(make_artifact(TWO_OUTPUTS, inputs=scalar[:1], outputs=tuple(scalar[1:])), ParameterStore())
    plus, twice = exe(np.int32(20))
    assert (plus.shape, int(plus), int(twice)) == ((), 21, 40)
    out = np.empty((), np.int32)
    assert exe(np.int32(1), out={"twice": out})[1] is out and int(out) == 2
    with pytest.raises(InputError, match="output 'twice': out shares memory with an input or another output"):
        exe(np.int32(1), out=[out, out])


SUM_OF_SYMBOLS = """
  %p1 = getelementptr ptr, ptr %tensors, i64 2
  %y = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %tensors, i64 3
  %record = load ptr, ptr %p2
  %pn = getelementptr i64, ptr %record, i64 2
  %pm = getelementptr i64, ptr %record, i64 3
  %n = load i64, ptr %pn
  %m = load i64, ptr %pm
  %n10 = mul i64 %n, 10
  %s = add i64 %n10, %m
  store i64 %s, ptr %y
  ret void"""


def test_symbolic_dims_are_bound_and_passed(make_artifact):
    inputs = TensorSpec("ids", "i64", ("batch", 4)), TensorSpec("mask", "bool", ("batch", "length"))
    artifact = make_artifact(SUM_OF_SYMBOLS, inputs=inputs, outputs=(TensorSpec("y", "i64", ("batch",)),))
    exe = Executable(artifact, ParameterStore())
    result = exe(np.zeros((3, 4), np.int64), np.zeros((3, 5), bool))
    assert result.shape == (3,) and result[0] == 35
    with pytest.raises(InputError, match=r"input 'mask': dim 0 \('batch'\) is 2, an earlier input has 3 there"):
        exe(np.zeros((3, 4), np.int64), np.zeros((2, 5), bool))
    with pytest.raises(InputError, match=r"input 'ids': expected i64\[batch, 4\], found i64\[3, 5\]"):
        exe(np.zeros((3, 5), np.int64), np.zeros((3, 5), bool))
    with pytest.raises(InputError, match=r"input ids: i64\[batch, 4\]: give the size of its dim 'batch'"):
        exe.random_inputs()
    inputs = exe.random_inputs(dims={"batch": 2, "length": 3})
    assert inputs["mask"].shape == (2, 3) and inputs["ids"].max() <= 1


def test_output_dim_of_no_input(make_artifact):
    artifact = make_artifact("ret void", outputs=(TensorSpec("y", "f32", ("n",)),))
    with pytest.raises(ArtifactError, match=r"output y: f32\[n\]: no input has the dim 'n'"):
        Executable(artifact, ParameterStore())


def test_parameters_must_be_there(artifact, store):
    with pytest.raises(ArtifactError, match="weights are not in the store: no parameter 'w'"):
        Executable(artifact, ParameterStore())
    other = ParameterStore()
    other.add("w", np.zeros(9, np.float32))
    with pytest.raises(ArtifactError, match=r"parameter 'w': compiled for f32\[8\], the store has f32\[9\]"):
        Executable(artifact, other)


def test_weights_are_held_once_and_freed(artifact):
    owner = np.arange(8, dtype=np.float32)
    store = ParameterStore()
    store.add("w", owner)
    exe = Executable(artifact, store)
    owner += 1  # the executable sees it: it uses the same memory
    np.testing.assert_array_equal(exe(A, B), (A + W + 1) * B)
    freed = weakref.ref(owner)
    del owner, store
    np.testing.assert_array_equal(exe(A, B), (A + W + 1) * B)
    assert freed() is not None
    del exe
    gc.collect()
    assert freed() is None


def test_inputs_are_released_after_the_call(affine):
    exe = affine()
    a = A.copy()
    freed = weakref.ref(a)
    result = exe(a, B)
    del a
    gc.collect()
    assert freed() is None and result is not None


def test_from_several_threads(affine):
    """Each call writes the arena and reads it again later: a shared one would give wrong results."""
    count, calls = 1 << 16, 24
    exe = affine(count)
    weight = np.arange(count, dtype=np.float32)
    start = threading.Barrier(8)
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        a, b = (rng.standard_normal(count, dtype=np.float32) for _ in range(2))
        expected = (a + weight) * b
        start.wait()
        for call in range(calls):
            # The only reference to the inputs is the call's own: others could free them meanwhile.
            if not np.array_equal(exe(a.copy(), b.copy()), expected):
                wrong.append(f"thread {seed}, call {call}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert exe._arenas.idle <= 2
    exe.release_arenas()
    assert exe._arenas.idle == 0


def test_arena_is_reused(affine):
    exe = affine()
    exe(A, B)
    with exe._arenas.arena() as first:
        pass
    with exe._arenas.arena() as second, exe._arenas.arena() as third:
        assert first == second != third


def test_calls_at_the_same_time_keep_their_arrays_apart(affine):
    exe = affine()
    wrong: list[int] = []

    def call(number: int) -> None:
        a = np.full(8, number, np.float32)
        for _ in range(300):
            if not np.array_equal(exe(a, B), (a + W) * B):
                wrong.append(number)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_subclasses_of_arrays_go_the_long_way(affine):
    matrix = np.ma.masked_array(A)
    result = affine()(matrix, B)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, EXPECTED)


class Liar(np.ndarray):
    """An array that says that it is somewhere else, and larger."""

    @property
    def __array_interface__(self) -> dict:
        return {"version": 3, "data": (8, False), "shape": (8,), "typestr": "<f4", "strides": None}


def test_a_subclass_is_taken_for_what_it_is_not_for_what_it_says(affine: Callable[[int], Executable]) -> None:
    exe = affine(8)
    a, b, out = A.view(Liar), B.view(Liar), np.empty(8, np.float32).view(Liar)
    np.testing.assert_array_equal(exe(a, b), EXPECTED)
    made = exe(a, b, out=out)
    np.testing.assert_array_equal(np.asarray(made), EXPECTED)
    np.testing.assert_array_equal(np.asarray(out), EXPECTED)


class Raising:
    """Methods of an object that is given as an array."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> object:
        if name == self.name or (self.name == "__dlpack__" and name == "__dlpack_device__"):

            def method(*unused: object, **named: object) -> object:
                raise LookupError("not today")

            return method
        raise AttributeError(name)


@pytest.mark.parametrize("name", ["__dlpack__", "__array__"])
def test_methods_that_raise_are_told(affine: Callable[[int], Executable], name: str) -> None:
    exe = affine(8)
    with pytest.raises(InputError, match=r"input 'a': expected an array f32\[8\], found a Raising, which raised"):
        exe(Raising(name), B)
