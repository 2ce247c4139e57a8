"""Pools of caches, whose sequences share calls, and rows that go from one sequence to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mirlo_llm import caches

import mirlo
from mirlo.extend.runtime import Executable, InputError
from mirlo.testing.cached_attention import CACHES, KV_HEADS, SIZE, attention_model, grown_model, tokens


@pytest.fixture(scope="module")
def executable() -> Executable:
    return mirlo.compile(attention_model())


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(5))
def test_pools_are_as_states(executable: Executable, seed: int) -> None:
    """Any sequences run together, rewind and begin as others do: each computes what it computes alone."""
    random = np.random.default_rng(seed)
    count = 5
    pool = caches.pool(executable, count, capacity=4)
    states = [caches.state(executable, capacity=64) for _ in range(count)]
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
    pool = caches.pool(mirlo.compile(grown_model()), 2, pairs={"past": "present"}, limit=4)
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
        call(caches.pool(executable, 3))


@pytest.mark.parametrize("count", (0, -1))
def test_wrong_pools(executable: Executable, count: int) -> None:
    with pytest.raises(InputError, match="expected 1 sequence or more"):
        caches.pool(executable, count)


@pytest.mark.parametrize("grows", (False, True))
def test_rows_continue_other_sequences(executable: Executable, grows: bool) -> None:
    """A sequence begins with rows of another one, of a state or a pool."""
    if grows:
        options: dict[str, Any] = {"pairs": {"past": "present"}}
        compiled, new = mirlo.compile(grown_model()), [{"x": np.ones((1, 2, n, 4), np.float32) * n} for n in (5, 2)]
    else:
        options, compiled, new = {}, executable, [tokens(5, 0), tokens(2, 5)]
    state, pool = caches.state(compiled, 2, **options), caches.pool(compiled, 3, 2, **options)
    state.run(new[0], 5)
    rows = [state.rows(0, 2), state.rows(2, 5)]
    assert all(part is not None for part in rows)
    other = caches.state(compiled, 2, **options)
    other.extend(rows, 5, {}), pool.extend(1, rows, 5, {})
    again = pool.rows(1, 0, 5)
    for name, array in state.arrays.items():
        np.testing.assert_array_equal(again[name], array)
    expected, found = state.run(new[1], 2)["y"], pool.select([1]).run(new[1], 2)["y"]
    np.testing.assert_allclose(other.run(new[1], 2)["y"], expected, rtol=1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    batch = caches.state(compiled, 2, batch=2, **options)
    batch.join([state, other])
    for name, array in batch.arrays.items():
        np.testing.assert_array_equal(array, np.concatenate([state.arrays[name], other.arrays[name]]))
    with pytest.raises(InputError, match="expected 2 states of one sequence each, found 1"):
        batch.join([state])
    with pytest.raises(InputError, match="expected a state of one sequence, found 2"):
        batch.rows(0, 1)


def test_wrong_rows(executable: Executable) -> None:
    state, pool = caches.state(executable), caches.pool(executable, 2)
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
