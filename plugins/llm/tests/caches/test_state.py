"""Caches in place: outputs in the memory of inputs, and states that keep them from call to call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from mirlo_llm import caches

import mirlo
from mirlo.extend.runtime import ArtifactError, Executable, InputError
from mirlo.testing.cached_attention import CACHES, HEADS, KV_HEADS, SIZE, attention_model, grown_model, tokens


@pytest.fixture(scope="module")
def executable() -> Executable:
    return mirlo.compile(attention_model())


@pytest.mark.sample(0)
@pytest.mark.parametrize("rows", ("rows", 24))
@pytest.mark.parametrize("total", ("mask", "input"))
@pytest.mark.parametrize("threads", (1, 2))
def test_caches_in_place_are_those_of_onnxruntime(rows: int | str, total: str, threads: int) -> None:
    model = attention_model(rows, total)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    compiled = mirlo.compile(model, threads=threads)
    assert compiled.aliases == CACHES
    random = np.random.default_rng(0)
    caches = {name: random.standard_normal((1, KV_HEADS, 24, SIZE)).astype(np.float32) for name in CACHES.values()}
    past = 0
    for count in (5, 1, 1, 3, 1):
        given = tokens(count, past, total=total) | caches
        expected = session.run(None, given)
        before = {name: array.copy() for name, array in caches.items()}
        found = compiled.run(given, out={output: caches[name] for output, name in CACHES.items()})
        np.testing.assert_allclose(found["y"], expected[0], rtol=2e-4, atol=2e-5)
        for wanted, (output, name) in zip(expected[1:], CACHES.items(), strict=True):
            assert found[output] is caches[name]
            np.testing.assert_array_equal(caches[name][:, :, : past + count], wanted[:, :, : past + count])
            np.testing.assert_array_equal(caches[name][:, :, past + count :], before[name][:, :, past + count :])
        past += count


def test_more_tokens_than_rows_write_nothing_outside(executable: Executable) -> None:
    whole = np.zeros((1, KV_HEADS, 8, SIZE), np.float32)
    given = tokens(3, 0) | {"past_key": whole, "past_value": whole.copy()} | {"last": np.array([2**31 - 1], np.int32)}
    found = executable.run(given, out={"present_key": whole})
    assert found["present_key"] is whole and not whole.any()  # positions far outside are left out
    given = tokens(3, 7) | {"past_key": whole, "past_value": whole.copy()}
    with pytest.raises(InputError, match=r"output 'present_key': out must be f32\[1, 2, 10, 16\]"):
        executable.run(given, out={"present_key": whole})


def overlapping(case: str, caches: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    key, value = caches["past_key"], caches["past_value"]
    if case == "other input":
        return {"present_key": value}
    if case == "both":
        return {"present_key": key, "present_value": key}
    memory = np.zeros(key.size + 4, np.float32)
    caches["past_key"] = memory[: key.size].reshape(key.shape)
    return {"present_key": memory[4:].reshape(key.shape)}


@pytest.mark.parametrize("case", ("other input", "both", "shifted"))
def test_arrays_that_overlap_otherwise_are_refused(executable: Executable, case: str) -> None:
    caches = {name: np.zeros((1, KV_HEADS, 8, SIZE), np.float32) for name in CACHES.values()}
    out = overlapping(case, caches)
    with pytest.raises(InputError, match="out shares memory with an input or another output"):
        executable.run(tokens(1, 0) | caches, out=out)


def test_an_input_that_is_not_updated_is_refused(executable: Executable) -> None:
    given = tokens(1, 0) | {name: np.zeros((1, KV_HEADS, 8, SIZE), np.float32) for name in CACHES.values()}
    with pytest.raises(InputError, match="output 'y': out shares memory"):
        executable.run(given, out={"y": given["query"]})


@pytest.mark.parametrize(
    "aliases",
    ([], {"y": "past_key"}, {"present_key": "none"}, {"none": "past_key"}, {"present_key": 3}, {"present_key": "last"},
     {"present_key": "past_key", "present_value": "past_key"}),
)  # fmt: skip
def test_hostile_aliases(executable: Executable, aliases: Any) -> None:
    artifact = replace(executable.artifact, metadata=executable.artifact.metadata | {"aliases": aliases})
    with pytest.raises(ArtifactError, match="metadata 'aliases'"):
        Executable(artifact, executable._store)


def test_aliases_are_saved(executable: Executable, tmp_path: Any) -> None:
    executable.save(tmp_path / "model.mirlo")
    assert mirlo.load(tmp_path / "model.mirlo").aliases == CACHES


def run_all(state: Any, counts: list[int], start: int = 0, seed: int = 0) -> list[np.ndarray]:
    made, past = [], start
    for count in counts:
        made.append(state.run(tokens(count, past, seed=seed), count)["y"])
        past += count
    return made


def test_state_grows_and_is_the_same_as_a_large_one(executable: Executable) -> None:
    small, large = caches.state(executable, capacity=2), caches.state(executable, capacity=64)
    counts = [3, 1, 1, 7, 1, 20, 1]
    for found, expected in zip(run_all(small, counts), run_all(large, counts), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert small.length == large.length == sum(counts) <= small.capacity
    for name in CACHES.values():
        np.testing.assert_array_equal(small.arrays[name], large.arrays[name])


def test_rewound_is_fresh(executable: Executable) -> None:
    state, fresh = caches.state(executable, capacity=16), caches.state(executable, capacity=16)
    run_all(state, [4, 1, 1])
    run_all(state, [2, 1], start=6, seed=1)
    state.rewind(5)
    expected = run_all(fresh, [4, 1]) + run_all(fresh, [1, 3], start=5, seed=2)
    for found, wanted in zip(run_all(state, [1, 3], start=5, seed=2), expected[2:], strict=True):
        np.testing.assert_array_equal(found, wanted)
    state.rewind(-2)
    assert state.length == 7
    for wrong in (8, -8):
        with pytest.raises(InputError, match="cannot go back"):
            state.rewind(wrong)


def test_forks_do_not_see_each_other(executable: Executable) -> None:
    state, plain = caches.state(executable, capacity=4), caches.state(executable, capacity=32)
    run_all(state, [3]), run_all(plain, [3])
    fork = state.fork()
    run_all(fork, [5, 1], start=3, seed=9)
    (found,), (expected,) = run_all(state, [4], start=3), run_all(plain, [4], start=3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (fork.length, state.length) == (9, 7)


@pytest.mark.sample(0)
def test_limit(executable: Executable) -> None:
    state = caches.state(executable, capacity=64, limit=6)
    assert state.capacity == 6
    run_all(state, [5])
    with pytest.raises(InputError, match="the cache may have 6 rows, 7 are needed"):
        run_all(state, [2], start=5)
    assert len(run_all(state, [1], start=5)) == 1
    fixed = caches.state(mirlo.compile(attention_model(rows=7)))
    run_all(fixed, [7])
    with pytest.raises(InputError, match="the cache has 7 rows, 8 are needed"):
        run_all(fixed, [1], start=7)


def test_prepared_calls_check_their_inputs(executable: Executable) -> None:
    state = caches.state(executable, capacity=8)
    given = tokens(2, 0)
    state.run(given, 2)
    cache = state.arrays["past_key"]  # [1, 2, 2 of 8, 16]
    shared = np.lib.stride_tricks.as_strided(cache, (1, 2, HEADS * SIZE), (0, 4 * HEADS * SIZE, 4))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"query": shared}, "input 'query' shares memory with an array that the call updates"),
        ({"query": given["query"].astype(np.float64)}, "input 'query': expected f32"),
        ({"key": given["key"][:, :1]}, "input 'key': dim 1 .* is 1, an earlier input has 2"),
        ({"mask": np.ones((2, 3), np.int64)}, "input 'mask': dim 0 .* is 2, an earlier input has 1"),
        ({"mask": np.ones((1, 9), np.int64)}, "it would be \\(1, 2, 9, 16\\), the array that it updates is"),
        ({"other": given["query"]}, "expected the inputs query: .*, found 'query', 'key'"),
    ]
    before = state.arrays["past_key"].copy()
    for change, message in cases:
        with pytest.raises(InputError, match=message):
            state.run(tokens(2, 2) | change, 2)
        assert state.length == 2
    with pytest.raises(InputError, match="expected the inputs"):
        state.run({name: array for name, array in given.items() if name != "last"}, 2)
    np.testing.assert_array_equal(state.arrays["past_key"], before)
    with pytest.raises(InputError, match="these outputs do not update the arrays in place"):
        executable.updating({"past_key": np.zeros((1, 2, 4, 16), np.float32)}, {"past_key": "present_value"})


def test_a_cache_that_is_not_in_place() -> None:
    compiled = mirlo.compile(grown_model())
    with pytest.raises(InputError, match=r"no outputs that update inputs in place: name the pairs, state\(pairs"):
        caches.state(compiled)
    state = caches.state(compiled, pairs={"past": "present"}, limit=5)
    rows = np.arange(40, dtype=np.float32).reshape(1, 2, 5, 4)
    assert state.run({"x": rows[:, :, :3]}, 3)["y"] == rows[:, :, :3].sum()
    fork = state.fork()
    state.rewind(2)
    assert state.run({"x": rows[:, :, 3:4]}, 1)["y"] == rows[:, :, [0, 1, 3]].sum()
    assert fork.run({"x": rows[:, :, 3:]}, 2)["y"] == rows.sum() and not fork.is_in_place
    np.testing.assert_array_equal(fork.arrays["past"], rows)
    with pytest.raises(InputError, match="the cache may have 5 rows, 6 are needed"):
        fork.run({"x": rows[:, :, :1]}, 1)


@pytest.mark.parametrize(
    ("pairs", "message"),
    (
        ({"x": "nothing"}, "'x' and 'nothing' are no input and output"),
        ({"x": "y"}, r"expected caches \[batch, heads, rows, size\]"),
    ),
)
def test_wrong_pairs(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        caches.state(mirlo.compile(grown_model()), pairs=pairs)


@pytest.mark.parametrize("make", (lambda e: caches.state(e, capacity=0), lambda e: caches.state(e, batch=0)))
def test_wrong_sizes(executable: Executable, make: Callable[[Executable], Any]) -> None:
    with pytest.raises(InputError, match="expected a capacity and a batch of 1 or more"):
        make(executable)


def test_no_memory_grows(executable: Executable) -> None:
    """Caches and arenas have their memory before the last tokens."""
    import tracemalloc

    state = caches.state(executable, capacity=1024)
    run_all(state, [800])
    tracemalloc.start()
    try:
        run_all(state, [1] * 40, start=800)
        before = tracemalloc.get_traced_memory()[0]
        run_all(state, [1] * 120, start=840)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 100_000  # one cache of these rows has 262 KB


@pytest.mark.sample(0)
@pytest.mark.parametrize("total", ("mask", "input"))
def test_constants_of_states(total: str) -> None:
    """Inputs that stay the same are given once."""
    compiled = mirlo.compile(attention_model(total=total))
    given = tokens(3, 0, total=total)
    expected = caches.state(compiled).run(given, 3)["y"]
    constants = {name: given.pop(name) for name in ("value", "last")}
    state = caches.state(compiled, constants=constants)
    np.testing.assert_array_equal(state.run(given, 3)["y"], expected)
    np.testing.assert_array_equal(caches.pool(compiled, 2).select([1], constants).run(given, 3)["y"], expected)


def test_constants_are_not_what_calls_update(executable: Executable) -> None:
    caches = {name: np.zeros((1, KV_HEADS, 8, SIZE), np.float32) for name in CACHES.values()}
    inside = caches["past_key"].reshape(-1)[:96].reshape(1, 3, 32)
    pairs = {name: output for output, name in CACHES.items()}
    with pytest.raises(InputError, match="input 'value' shares memory with an array that the call updates"):
        executable.updating(caches, pairs, {"value": inside})
