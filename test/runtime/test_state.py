"""Caches in place: outputs in the memory of inputs, and states that keep them from call to call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import mirlo
from mirlo.runtime.errors import ArtifactError, InputError
from mirlo.runtime.executable import Executable

HEADS, KV_HEADS, SIZE = 4, 2, 16
NAMES = ("query", "key", "value", "past_key", "past_value", "last", "total")
CACHES = {"present_key": "past_key", "present_value": "past_value"}


def attention_model(rows: int | str = "rows", total: str = "mask") -> Any:
    """Return one attention; `total` comes from the shape of a mask, or is an input."""
    shapes: dict[str, list[Any]] = {
        "query": ["b", "s", HEADS * SIZE], "key": ["b", "s", KV_HEADS * SIZE], "value": ["b", "s", KV_HEADS * SIZE],
        "past_key": ["b", KV_HEADS, rows, SIZE], "past_value": ["b", KV_HEADS, rows, SIZE], "last": ["b"],
    }  # fmt: skip
    nodes = []
    if total == "mask":
        shapes["mask"] = ["b", "t"]
        nodes = [
            helper.make_node("Shape", ["mask"], ["sizes"], start=1),
            helper.make_node("Cast", ["sizes"], ["total"], to=6),
        ]
    else:
        shapes["total"] = []
    nodes.append(
        helper.make_node(
            "GroupQueryAttention", list(NAMES), ["y", *CACHES], domain="com.microsoft", num_heads=HEADS,
            kv_num_heads=KV_HEADS,
        )
    )  # fmt: skip
    kinds = {"last": 6, "total": 6, "mask": 7}
    inputs = [helper.make_tensor_value_info(name, kinds.get(name, 1), shape) for name, shape in shapes.items()]
    outputs = [
        helper.make_tensor_value_info("y", 1, None),
        *(helper.make_tensor_value_info(n, 1, None) for n in CACHES),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def tokens(count: int, past: int, batch: int = 1, seed: int = 0, total: str = "mask") -> dict[str, Any]:
    random = np.random.default_rng([seed, past])
    widths = {"query": HEADS, "key": KV_HEADS, "value": KV_HEADS}
    made: dict[str, Any] = {
        name: random.standard_normal((batch, count, heads * SIZE)).astype(np.float32) for name, heads in widths.items()
    }
    made["last"] = np.full(batch, past + count - 1, np.int32)
    after = past + count
    made |= {"mask": np.ones((batch, after), np.int64)} if total == "mask" else {"total": np.array(after, np.int32)}
    return made


@pytest.fixture(scope="module")
def executable() -> Executable:
    return mirlo.compile(attention_model())


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
    small, large = executable.state(capacity=2), executable.state(capacity=64)
    counts = [3, 1, 1, 7, 1, 20, 1]
    for found, expected in zip(run_all(small, counts), run_all(large, counts), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert small.length == large.length == sum(counts) <= small.capacity
    for name in CACHES.values():
        np.testing.assert_array_equal(small.arrays[name], large.arrays[name])


def test_rewound_is_fresh(executable: Executable) -> None:
    state, fresh = executable.state(capacity=16), executable.state(capacity=16)
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
    state, plain = executable.state(capacity=4), executable.state(capacity=32)
    run_all(state, [3]), run_all(plain, [3])
    fork = state.fork()
    run_all(fork, [5, 1], start=3, seed=9)
    (found,), (expected,) = run_all(state, [4], start=3), run_all(plain, [4], start=3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (fork.length, state.length) == (9, 7)


def test_limit(executable: Executable) -> None:
    state = executable.state(capacity=64, limit=6)
    assert state.capacity == 6
    run_all(state, [5])
    with pytest.raises(InputError, match="the cache may have 6 rows, 7 are needed"):
        run_all(state, [2], start=5)
    assert len(run_all(state, [1], start=5)) == 1
    fixed = mirlo.compile(attention_model(rows=7)).state()
    run_all(fixed, [7])
    with pytest.raises(InputError, match="the cache has 7 rows, 8 are needed"):
        run_all(fixed, [1], start=7)


def test_prepared_calls_check_their_inputs(executable: Executable) -> None:
    state = executable.state(capacity=8)
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


def grown_model() -> Any:
    """Return a model that appends its input to a cache."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=2),
        helper.make_node("ReduceSum", ["present"], ["y"], keepdims=0),
    ]
    shapes = {"x": ["b", 2, "s", 4], "past": ["b", 2, "p", 4]}
    inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", 1, []), helper.make_tensor_value_info("present", 1, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_cache_that_is_not_in_place() -> None:
    compiled = mirlo.compile(grown_model())
    with pytest.raises(InputError, match=r"no outputs that update inputs in place: name the pairs, state\(pairs"):
        compiled.state()
    state = compiled.state(pairs={"past": "present"}, limit=5)
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
        mirlo.compile(grown_model()).state(pairs=pairs)


@pytest.mark.parametrize("make", (lambda e: e.state(capacity=0), lambda e: e.state(batch=0)))
def test_wrong_sizes(executable: Executable, make: Callable[[Executable], Any]) -> None:
    with pytest.raises(InputError, match="expected a capacity and a batch of 1 or more"):
        make(executable)


def test_no_memory_grows(executable: Executable) -> None:
    """Caches and arenas have their memory before the last tokens."""
    import tracemalloc

    state = executable.state(capacity=1024)
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


@pytest.mark.parametrize("seed", range(5))
def test_pools_are_as_states(executable: Executable, seed: int) -> None:
    """Any sequences run together, rewind and begin as others do: each computes what it computes alone."""
    random = np.random.default_rng(seed)
    count = 5
    pool = executable.pool(count, capacity=4)
    states = [executable.state(capacity=64) for _ in range(count)]
    for step in range(40):
        action = random.integers(4)
        if action == 0:
            sequence = int(random.integers(count))
            length = int(random.integers(pool.lengths[sequence] + 1))
            pool.rewind(sequence, length), states[sequence].rewind(length)
            continue
        if action == 1:
            source, target = (int(i) for i in random.permutation(count)[:2])
            length = int(random.integers(pool.lengths[source] + 1))
            if random.integers(2):
                pool.copy(source, target, length)
            else:
                rows = [pool.rows(source, 0, length // 2), pool.rows(source, length // 2, length)]
                pool.rewind(target, 0), pool.extend(target, rows, length, {})
            states[target] = states[source].fork()
            states[target].rewind(length)
            continue
        tokens_each = int(random.integers(1, 4))
        chosen = [int(i) for i in random.permutation(count)[: random.integers(1, count + 1)]]
        some = pool.select(chosen)
        assert sorted(some.sequences) == sorted(chosen)
        assert some.lengths.tolist() == [states[i].length for i in some.sequences]
        made = [tokens(tokens_each, states[i].length, seed=step * count + i) for i in some.sequences]
        given = {name: np.concatenate([each[name] for each in made]) for name in ("query", "key", "value", "last")}
        found = some.run(given | {"mask": some.mask(tokens_each)}, tokens_each)["y"]
        for row, i, each in zip(found, some.sequences, made, strict=True):
            np.testing.assert_allclose(row, states[i].run(each, tokens_each)["y"][0], rtol=2e-5, atol=1e-6)
    assert pool.lengths == [state.length for state in states]


def test_pools_of_caches_that_grow() -> None:
    pool = mirlo.compile(grown_model()).pool(2, pairs={"past": "present"}, limit=4)
    rows = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    assert pool.select([1]).run({"x": rows}, 4)["y"] == rows.sum()
    pool.copy(1, 0, 2), pool.rewind(1, 1)
    both = pool.select([0, 1])
    np.testing.assert_array_equal(both.mask(1), [[1, 1, 1], [0, 1, 1]])
    y = both.run({"x": rows.repeat(2, 0)[:, :, 3:]}, 1)["y"]
    assert y == rows[:, :, [0, 1, 3, 0, 3]].sum() and pool.lengths == [3, 2]
    with pytest.raises(InputError, match="a sequence may have 4 tokens, 5 are needed"):
        pool.select([0]).run({"x": rows[:, :, :2]}, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    (
        (lambda pool: pool.select([]), r"expected different numbers below 3, found \[\]"),
        (lambda pool: pool.select([1, 1]), "found .1, 1."),
        (lambda pool: pool.select([3]), "found .3."),
        (lambda pool: pool.select([0]).run({}, 0), "expected 1 token or more, found 0"),
        (lambda pool: pool.rewind(0, 1), "sequence 0 has 0 tokens, not 1"),
        (lambda pool: pool.copy(0, 1, 1), "sequence 0 has 0 tokens, not 1"),
        (lambda pool: pool.copy(1, 1, 0), "sequence 1 cannot be copied to itself"),
    ),
)
def test_wrong_calls_of_pools(executable: Executable, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(executable.pool(3))


@pytest.mark.parametrize("count", (0, -1))
def test_wrong_pools(executable: Executable, count: int) -> None:
    with pytest.raises(InputError, match="expected 1 sequence or more"):
        executable.pool(count)


@pytest.mark.parametrize("grows", (False, True))
def test_rows_continue_other_sequences(executable: Executable, grows: bool) -> None:
    """A sequence begins with rows of another one, of a state or a pool."""
    if grows:
        options: dict[str, Any] = {"pairs": {"past": "present"}}
        compiled, new = mirlo.compile(grown_model()), [{"x": np.ones((1, 2, n, 4), np.float32) * n} for n in (5, 2)]
    else:
        options, compiled, new = {}, executable, [tokens(5, 0), tokens(2, 5)]
    state, pool = compiled.state(2, **options), compiled.pool(3, 2, **options)
    state.run(new[0], 5)
    rows = [state.rows(0, 2), state.rows(2, 5)]
    assert all(part is not None for part in rows)
    other = compiled.state(2, **options)
    other.extend(rows, 5, {}), pool.extend(1, rows, 5, {})
    again = pool.rows(1, 0, 5)
    for name, array in state.arrays.items():
        np.testing.assert_array_equal(again[name], array)
    expected, found = state.run(new[1], 2)["y"], pool.select([1]).run(new[1], 2)["y"]
    np.testing.assert_allclose(other.run(new[1], 2)["y"], expected, rtol=1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    batch = compiled.state(2, batch=2, **options)
    batch.join([state, other])
    for name, array in batch.arrays.items():
        np.testing.assert_array_equal(array, np.concatenate([state.arrays[name], other.arrays[name]]))
    with pytest.raises(InputError, match="expected 2 states of one sequence each, found 1"):
        batch.join([state])
    with pytest.raises(InputError, match="expected a state of one sequence, found 2"):
        batch.rows(0, 1)


def test_wrong_rows(executable: Executable) -> None:
    state, pool = executable.state(), executable.pool(2)
    good = {name: np.zeros((1, KV_HEADS, 3, SIZE), np.float32) for name in CACHES.values()}
    short = good | {"past_key": good["past_key"][:, :, :2]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"past_key": good["past_key"]}, "expected rows of past_key, past_value, found past_key"),
        (short, "rows of 'past_key': expected float32.1, 2, tokens, 16., found float32.1, 2, 2, 16."),
        (good | {"past_value": good["past_value"][0]}, "rows of 'past_"),
        (good | {"past_value": good["past_value"].astype(np.float64)}, "rows of 'past_value': .* found float64"),
    ]
    for rows, message in cases:
        for extend in (state.extend, lambda *given: pool.extend(0, *given)):
            with pytest.raises(InputError, match=message):
                extend([rows], 3, {})
    with pytest.raises(InputError, match="expected rows of 4 tokens, found 3"):
        state.extend([good], 4, {})
    with pytest.raises(InputError, match="there are 0 tokens, not those from 0 to 1"):
        state.rows(0, 1)
    with pytest.raises(InputError, match="expected the states none, found s"):
        state.extend([good], 3, {"s": np.zeros(1)})
    with pytest.raises(InputError, match="expected the states none, found s"):
        pool.extend(0, [good], 3, {"s": np.zeros(1)})
    assert state.length == 0 and pool.lengths == [0, 0]


@pytest.mark.parametrize("total", ("mask", "input"))
def test_constants_of_states(total: str) -> None:
    """Inputs that stay the same are given once."""
    compiled = mirlo.compile(attention_model(total=total))
    given = tokens(3, 0, total=total)
    expected = compiled.state().run(given, 3)["y"]
    constants = {name: given.pop(name) for name in ("value", "last")}
    state = compiled.state(constants=constants)
    np.testing.assert_array_equal(state.run(given, 3)["y"], expected)
    np.testing.assert_array_equal(compiled.pool(2).select([1], constants).run(given, 3)["y"], expected)


def test_constants_are_not_what_calls_update(executable: Executable) -> None:
    caches = {name: np.zeros((1, KV_HEADS, 8, SIZE), np.float32) for name in CACHES.values()}
    inside = caches["past_key"].reshape(-1)[:96].reshape(1, 3, 32)
    pairs = {name: output for output, name in CACHES.items()}
    with pytest.raises(InputError, match="input 'value' shares memory with an array that the call updates"):
        executable.updating(caches, pairs, {"value": inside})
