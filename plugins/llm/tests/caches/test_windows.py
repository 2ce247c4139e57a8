"""Rings of rows for sliding windows, against attention in numpy over all rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from mirlo_llm import caches

import mirlo
from mirlo.extend.runtime import ArtifactError, Executable, InputError
from mirlo.testing.window_models import BLOCK, CACHES, HEADS, KV_HEADS, SIZE, WIDTHS, WINDOW, window_model


@pytest.fixture(scope="module")
def executable() -> Executable:
    return mirlo.compile(window_model(), ring_caches=True)


class AllRows:
    """A sequence whose keys and values are all kept."""

    def __init__(self, rows: dict[str, list[np.ndarray]] | None = None) -> None:
        self.rows = {name: list(each) for name, each in (rows or {"key": [], "value": []}).items()}

    @property
    def length(self) -> int:
        return len(self.rows["key"])

    def first(self, length: int) -> AllRows:
        return AllRows({name: each[:length] for name, each in self.rows.items()})

    def run(self, given: dict[str, np.ndarray]) -> np.ndarray:
        """Return the results of new tokens, [tokens, heads * size]."""
        count, first = len(given["query"]), self.length
        for name, rows in self.rows.items():
            rows.extend(given[name].reshape(count, KV_HEADS, SIZE))
        keys, values = (np.array(self.rows[name], np.float64) for name in ("key", "value"))
        made = np.zeros((count, HEADS, SIZE))
        for i, query in enumerate(given["query"].reshape(count, HEADS, SIZE).astype(np.float64)):
            seen = slice(max(0, first + i - WINDOW + 1), first + i + 1)
            for head in range(HEADS):
                shared = head * KV_HEADS // HEADS
                scores = keys[seen, shared] @ query[head] / SIZE**0.5
                weights = np.exp(scores - scores.max())
                made[i, head] = weights / weights.sum() @ values[seen, shared]
        return made.reshape(count, -1)


def tokens(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    return {name: random.standard_normal((count, heads * SIZE)).astype(np.float32) for name, heads in WIDTHS.items()}


def call(some: Any, lengths: list[int], new: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Run new tokens of several sequences."""
    count = len(new[0]["query"])
    after = np.array(lengths) + count
    given = {name: np.stack([each[name] for each in new]) for name in WIDTHS}
    mask = (np.arange(after.max()) < after[:, None]).astype(np.int64)
    found: np.ndarray = some.run(given | {"last": (after - 1).astype(np.int32), "mask": mask}, count)["y"]
    return found


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(4))
def test_pools_of_rings(executable: Executable, seed: int) -> None:
    """Any sequences run together, go back, begin as others and take over rows; what is left is what numpy computes."""
    random, count = np.random.default_rng(seed), 4
    pool = caches.pool(executable, count, capacity=2, block=BLOCK)
    whole, gone, longest = [AllRows() for _ in range(count)], 0, 0
    for _ in range(150):
        source, target = (int(i) for i in random.permutation(count)[:2])
        length = max(0, pool.lengths[source] - int(random.choice([0, 1, 2, 3, 3, 5])))
        action = int(random.integers(6))
        if action == 0:
            kept = pool.rewind(source, length)
            whole[source] = whole[source].first(kept)
            gone += kept < length
        elif action == 1:
            kept = pool.copy(source, target, length)
            whole[target] = whole[source].first(kept)
        elif action == 2:
            start = max(0, length - int(random.integers(9)))
            rows = pool.rows(source, start, length)
            if start == 0 and rows is not None:
                pool.rewind(target, 0)
                pool.extend(target, [rows], length, {})
                whole[target] = whole[source].first(length)
            for name, each in (rows or {}).items():
                wanted = np.array(whole[source].rows[name.removeprefix("past_")][start:length])
                np.testing.assert_array_equal(each[0], wanted.reshape(-1, KV_HEADS, SIZE).swapaxes(0, 1))
        else:
            some = pool.select([int(i) for i in random.permutation(count)[: random.integers(1, count + 1)]])
            new = [tokens(random, int(random.integers(1, BLOCK + 1)))]
            new += [tokens(random, len(new[0]["query"])) for _ in some.sequences[1:]]
            found = call(some, [pool.lengths[i] for i in some.sequences], new)
            for row, i, each in zip(found, some.sequences, new, strict=True):
                np.testing.assert_allclose(row, whole[i].run(each), rtol=1e-4, atol=1e-5)
        assert pool.lengths == [each.length for each in whole]
        longest = max(longest, *pool.lengths)
    assert longest > 3 * (WINDOW + BLOCK) and gone
    assert {array.shape[2] for array in pool._caches.arrays.values()} == {WINDOW - 1 + BLOCK}  # type: ignore[attr-defined]


@pytest.mark.sample(0)
@pytest.mark.parametrize("rows", ("rows", 9))
def test_states_of_rings(rows: int | str) -> None:
    """A state of a ring whose rows are fixed has no limit of tokens; forks go on by themselves."""
    random, compiled = np.random.default_rng(1), mirlo.compile(window_model(rows=rows), ring_caches=True)
    state, whole = caches.state(compiled, 4, block=5), AllRows()
    assert caches.windows(compiled) == dict.fromkeys(CACHES.values(), WINDOW)
    for count in (5, 1, 5, 2, 1, 1, 5, 5, 1, 3, 1):
        other, fork = AllRows(whole.rows), state.fork()
        for each, oracle in ((state, whole), (fork, other)):
            new = tokens(random, count)
            np.testing.assert_allclose(call(each, [oracle.length], [new])[0], oracle.run(new), rtol=1e-4, atol=1e-5)
    assert {array.shape[2] for array in state.arrays.values()} == {9}
    assert state.rewind(-2) == whole.length - 2 and state.rewind(8) == 0 == state.length
    with pytest.raises(InputError, match="'past_key' keeps a window of 5 tokens and has room for 5 new ones"):
        call(caches.state(compiled, block=5), [0], [tokens(random, 10)])
    assert len(call(caches.state(compiled, block=5), [0], [tokens(random, 9)])[0]) == 9  # nothing is overwritten


@pytest.mark.sample(0)
@pytest.mark.parametrize("rows", ("rows", 9))
def test_calls_beyond_the_rows_of_a_ring(rows: int | str) -> None:
    """A call is an error exactly where new tokens overwrite what they see; it writes nothing, and names what fits."""
    random, compiled = np.random.default_rng(4), mirlo.compile(window_model(rows=rows), ring_caches=True)
    refused = 0
    for _ in range(60):
        size = int(random.integers(1, 14)) if rows == "rows" else 9
        past, count = (int(random.integers(first, 14)) for first in (0, 1))
        if size < WINDOW and past > size:
            continue
        whole, rings = AllRows(), {name: np.zeros((1, KV_HEADS, size, SIZE), np.float32) for name in CACHES.values()}
        if past:
            whole.run(tokens(random, past))
        for name, ring in rings.items():
            for i, row in enumerate(whole.rows[name.removeprefix("past_")]):
                ring[0, :, i % size] = row
        new, before = tokens(random, count), {name: ring.copy() for name, ring in rings.items()}
        given = {name: each[None] for name, each in new.items()} | rings
        given |= {"last": np.array([past + count - 1], np.int32), "mask": np.ones((1, past + count), np.int64)}
        out = {after: rings[name] for after, name in CACHES.items()}
        largest = max(size - WINDOW + 1, size - past)
        if count <= largest:
            np.testing.assert_allclose(compiled.run(given, out=out)["y"][0], whole.run(new), rtol=1e-4, atol=1e-5)
            continue
        refused += 1
        limit = "5" if rows == 9 else "window_5_rows - 4"
        text = rf"input 'past_key' is a ring of .* pass at most {limit} in a call, .* where s = {count}, "
        with pytest.raises(InputError, match=text):
            compiled.run(given, out=out)
        assert all((ring == before[name]).all() for name, ring in rings.items())
    assert 10 < refused < 50
    state = caches.state(compiled, block=5)
    with pytest.raises(InputError, match="pass at most"):  # the caller counts other tokens than the model gets
        state.run({name: each[None] for name, each in tokens(random, 12).items()}
                  | {"last": np.array([11], np.int32), "mask": np.ones((1, 12), np.int64)}, 1)  # fmt: skip


@pytest.mark.sample(0)
def test_other_attributes() -> None:
    """Attributes mean the same; a ring takes the place of a window's cache in ONNX Runtime's order."""
    random, attributes = np.random.default_rng(2), {"softcap": 2.0, "smooth_softmax": 1}
    ring = caches.state(
        mirlo.compile(window_model(rows=9, sliding_window_cache=1, **attributes), ring_caches=True), block=5
    )
    whole, length = caches.state(mirlo.compile(window_model(**attributes))), 0
    for count in (5, 1, 4, 1, 1, 5):
        new = [tokens(random, count)]
        np.testing.assert_allclose(call(ring, [length], new), call(whole, [length], new), rtol=1e-4, atol=1e-5)
        length += count


def require_equal(state: Any, whole: AllRows, new: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(call(state, [whole.length], [new])[0], whole.run(new), rtol=1e-4, atol=1e-5)


def shared(states: list[Any]) -> int:
    """Return how many of these states have arrays that an earlier one has, too."""
    return len(states) - len({id(state._caches.arrays["past_key"]) for state in states})


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_ring", (False, True))
def test_forks_share_rows_until_they_write(executable: Executable, is_ring: bool) -> None:
    """Any number of forks go on, go back and take over rows as if each had arrays of its own."""
    compiled = executable if is_ring else mirlo.compile(window_model())
    random, most = np.random.default_rng(5), 0
    states: list[tuple[Any, AllRows]] = [(caches.state(compiled, 2, block=BLOCK), AllRows())]
    for _ in range(200):
        state, whole = states[int(random.integers(len(states)))]
        action = int(random.integers(8))
        if action < 2 and len(states) < 8:
            states.append((state.fork(), AllRows(whole.rows)))
        elif action == 2 and len(states) > 1:
            states = [each for each in states if each[0] is not state]
        elif action == 3:
            whole.rows = whole.first(state.rewind(max(0, whole.length - int(random.integers(5))))).rows
        elif action == 4 and whole.length:
            start = int(random.integers(whole.length))
            rows = state.rows(start, whole.length)
            if rows is not None and state.rewind(start) == start:
                state.extend([rows], whole.length - start, {})
            else:
                whole.rows = whole.first(state.length).rows
        else:
            new = tokens(random, int(random.integers(1, BLOCK + 1)))
            require_equal(state, whole, new)
        assert [each.length for each, _ in states] == [each.length for _, each in states]
        most = max(most, shared([each for each, _ in states]))
    assert most >= 3


@pytest.mark.sample(0)
def test_the_first_fork_that_writes_stays_in_place() -> None:
    random, compiled = np.random.default_rng(6), mirlo.compile(window_model())
    state, whole = caches.state(compiled, 64), AllRows()
    require_equal(state, whole, tokens(random, 9))
    forks, arrays = [state.fork() for _ in range(3)], state.arrays
    assert shared([state, *forks]) == 3
    require_equal(forks[0], AllRows(whole.rows), tokens(random, 1))
    assert shared([state, *forks]) == 3  # after the rows of the others
    require_equal(forks[1], AllRows(whole.rows), tokens(random, 2))
    assert shared([state, *forks]) == 2
    del forks[0]
    require_equal(state, AllRows(whole.rows), tokens(random, 2))
    assert shared([state, *forks]) == 1 and np.shares_memory(state.arrays["past_key"], arrays["past_key"])
    assert state.rewind(4) == 4
    require_equal(state, whole.first(4), tokens(random, 1))
    assert shared([state, *forks]) == 0
    require_equal(forks[1], AllRows(whole.rows), tokens(random, 1))


@pytest.mark.sample(0)
def test_forks_in_threads(executable: Executable) -> None:
    """Forks of one state run at once."""
    random, compiled = np.random.default_rng(8), mirlo.compile(window_model(), threads=1)
    for model in (compiled, executable):
        state, whole = caches.state(model, 256, block=BLOCK), AllRows()
        require_equal(state, whole, tokens(random, BLOCK))
        forks = [(state.fork(), AllRows(whole.rows)) for _ in range(4)]
        new = [[tokens(random, 1) for _ in range(20)] for _ in forks]
        with ThreadPoolExecutor(4) as pool:
            found = [
                pool.submit(lambda fork=fork, each=each: [call(fork, [BLOCK + i], [t])[0] for i, t in enumerate(each)])
                for (fork, _), each in zip(forks, new, strict=True)
            ]
        for result, (_, oracle), each in zip(found, forks, new, strict=True):
            for row, some in zip(result.result(), each, strict=True):
                np.testing.assert_allclose(row, oracle.run(some), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_ring", (False, True))
def test_selected_sequences_of_a_batch(executable: Executable, is_ring: bool) -> None:
    """The sequences of a batch that are kept hold what they held, whichever rows they have in common."""
    compiled = executable if is_ring else mirlo.compile(window_model())
    random, count = np.random.default_rng(7), 4
    single, oracle = caches.state(compiled, 4, block=BLOCK), AllRows()
    new = tokens(random, 3)
    call(single, [0], [new]), oracle.run(new)
    state, whole = caches.state(compiled, 4, count, block=BLOCK), [AllRows(oracle.rows) for _ in range(count)]
    state.join([single] * count)
    for step in range(40):
        if step % 10 == 9:
            left = state.rewind(max(0, state.length - 2))
            whole = [each.first(left) for each in whole]
        chosen = random.integers(count, size=count) if step % 2 else np.arange(count)
        state.select(chosen)
        whole = [AllRows(whole[i].rows) for i in chosen]
        given = [tokens(random, 1 + step % 2) for _ in range(count)]
        found = call(state, [each.length for each in whole], given)
        for row, each, some in zip(found, whole, given, strict=True):
            np.testing.assert_allclose(row, each.run(some), rtol=1e-4, atol=1e-5)


def test_interrupted_calls_lose_what_they_overwrote(executable: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    random, state = np.random.default_rng(3), caches.state(executable, block=BLOCK)
    for length in range(0, 12, 3):
        call(state, [length], [tokens(random, 3)])
    monkeypatch.setattr(state, "_run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        call(state, [12], [tokens(random, 3)])
    assert state.length == 12  # the window is still there
    state.rewind(11)
    with pytest.raises(KeyboardInterrupt):
        call(state, [11], [tokens(random, 3)])
    assert state.length == 0


@pytest.mark.parametrize(
    "windows", ([], {"none": 3}, {"last": 3}, {"past_key": 0}, {"past_key": "3"}, {"past_key": True})
)
def test_hostile_windows(executable: Executable, windows: Any) -> None:
    artifact = replace(executable.artifact, metadata=executable.artifact.metadata | {"windows": windows})
    with pytest.raises(ArtifactError, match="metadata 'windows'"):
        Executable(artifact, executable._store)


def test_windows_that_calls_do_not_update(executable: Executable) -> None:
    metadata = {key: value for key, value in executable.artifact.metadata.items() if key != "aliases"}
    loaded = Executable(replace(executable.artifact, metadata=metadata), executable._store)
    pairs = {name: output for output, name in CACHES.items()}
    for make in (partial(caches.state, loaded), partial(caches.pool, loaded, 2)):
        with pytest.raises(InputError, match="'past_key' is the cache of a window, which calls of this model do not"):
            make(pairs=pairs)
    small = replace(executable.artifact, metadata=executable.artifact.metadata | {"windows": {"past_key": 1 << 41}})
    with pytest.raises(ArtifactError, match="expected a number of tokens for 'past_key'"):
        Executable(small, executable._store)
    with pytest.raises(InputError, match="expected a block of 1 token or more, found 0"):
        caches.state(executable, block=0)


def test_windows_are_saved(executable: Executable, tmp_path: Any) -> None:
    executable.save(tmp_path / "model.mirlo")
    assert caches.windows(mirlo.load(tmp_path / "model.mirlo")) == dict.fromkeys(CACHES.values(), WINDOW)


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match=r"ring_caches: target 'spirv' does not update caches in place: use .* 'llvm'"):
        mirlo.compile(window_model(), target="spirv", ring_caches=True)
