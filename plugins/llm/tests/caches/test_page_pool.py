"""Pages that sequences share, against attention in numpy over the rows of each sequence."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mirlo_llm import caches
from mirlo_llm.caches.cache_arrays import Rows
from mirlo_llm.caches.page_pool import PagedSequence, PagePool
from mirlo_llm.caches.paged_sequence import PagedRows
from onnx import helper

import mirlo
from mirlo.extend.runtime import ArtifactError, Executable, InputError

ROWS = 4
CACHES = ("key_cache", "value_cache")
NAMES = {"ends": "ends", "past": "past", "table": "table"}


@dataclass(frozen=True)
class Form:
    """How a model has its caches."""

    dtype: str | None = None
    """What they are narrowed to."""
    rows: int = ROWS
    window: int = -1
    heads: tuple[int, int] = (4, 2)
    """Of queries, and of keys."""
    size: int = 16
    threads: int = 1

    @property
    def widths(self) -> dict[str, int]:
        heads, shared = self.heads
        return {"query": heads * self.size, "key": shared * self.size, "value": shared * self.size}

    def executable(self) -> Executable:
        info = helper.make_tensor_value_info
        inputs = [info(name, 1, ["t", width]) for name, width in self.widths.items()]
        inputs += [info(name, 1, ["n", self.rows, self.heads[1], self.size]) for name in CACHES]
        inputs += [info("ends", 6, ["ends"]), info("past", 6, ["batch"]), info("table", 6, ["batch", "blocks"])]
        outputs = [info(name, 1, None) for name in ("y", "key_out", "value_out")]
        names = [each.name for each in inputs]
        node = helper.make_node(
            "PagedAttention", names, [each.name for each in outputs], domain="com.microsoft",
            num_heads=self.heads[0], kv_num_heads=self.heads[1], local_window_size=self.window,
        )  # fmt: skip
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph([node], "g", inputs, outputs)
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return mirlo.compile(model, kv_cache_dtype=self.dtype, threads=self.threads)

    def stored(self, rows: np.ndarray) -> np.ndarray:
        """Return what attention reads of rows that are written."""
        if self.dtype == "i8":
            scale = np.maximum(np.abs(rows).max(-1, keepdims=True), np.float32(1e-30)) / np.float32(127)
            return np.rint(rows / scale) * scale
        kinds = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
        return rows.astype(kinds.get(self.dtype or "", np.float32)).astype(np.float32)

    def read(self, rows: Rows) -> np.ndarray:
        """Return keys of a pool."""
        keys = np.asarray(rows["key_cache"], np.float32)
        return keys * rows["key_cache.scale"] if self.dtype == "i8" else keys


PLAIN = Form()
KINDS: dict[str, tuple[Any, ...]] = {
    "dtype": (None, "f16", "bf16", "i8"), "rows": (1, 3, 16, 64), "window": (-1, 5), "heads": ((4, 2), (3, 3), (6, 1)),
    "size": (16, 20, 64), "threads": (1, 2, 3),
}  # fmt: skip
DRAWN = [np.random.default_rng(seed) for seed in range(24)]
FORMS = [Form(**{name: kinds[int(random.integers(len(kinds)))] for name, kinds in KINDS.items()}) for random in DRAWN]
"""Some of all combinations."""


@functools.cache
def executable_of(form: Form) -> Executable:
    return form.executable()


@pytest.fixture(scope="module")
def executable() -> Executable:
    return executable_of(PLAIN)


def pages_of(executable: Executable, count: int = 2, **options: Any) -> PagePool:
    return caches.pages(executable, count, **NAMES, **options)


def new_tokens(random: np.random.Generator, count: int, form: Form = PLAIN) -> dict[str, np.ndarray]:
    return {name: random.standard_normal((count, width)).astype(np.float32) for name, width in form.widths.items()}


class Whole:
    """A sequence with rows of its own."""

    def __init__(self, rows: dict[str, np.ndarray] | None = None, form: Form = PLAIN) -> None:
        self.form = form
        self.rows = rows or {name: np.zeros((0, form.heads[1], form.size), np.float32) for name in ("key", "value")}

    def first(self, length: int) -> Whole:
        return Whole({name: each[:length] for name, each in self.rows.items()}, self.form)

    def run(self, new: dict[str, np.ndarray]) -> np.ndarray:
        first, form, (heads, shared) = len(self.rows["key"]), self.form, self.form.heads
        self.rows = {
            name: np.concatenate([each, form.stored(new[name].reshape(-1, shared, form.size))])
            for name, each in self.rows.items()
        }
        made = np.zeros((len(new["query"]), heads, form.size))
        for i, query in enumerate(new["query"].reshape(-1, heads, form.size).astype(np.float64)):
            for head in range(heads):
                last = first + i + 1
                start = max(0, last - form.window) if form.window > 0 else 0
                keys, values = (self.rows[name][start:last, head * shared // heads] for name in ("key", "value"))
                scores = keys @ query[head] / form.size**0.5
                weights = np.exp(scores - scores.max())
                made[i, head] = weights / weights.sum() @ values
        return made.reshape(len(made), heads * form.size)


def step(pool: PagePool, chosen: list[tuple[PagedSequence, Whole]], new: list[dict[str, np.ndarray]]) -> None:
    """Run new tokens of some sequences together, and compare."""
    given = {name: np.concatenate([each[name] for each in new]) for name in new[0]}
    found = pool.run(given, [sequence for sequence, _ in chosen], [len(each["query"]) for each in new])["y"]
    wanted = np.concatenate([whole.run(each) for (_, whole), each in zip(chosen, new, strict=True)])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def require_shared_once(pool: PagePool, sequences: list[PagedSequence], held: list[list[PagedRows]]) -> None:
    pages = {page for sequence in sequences for page in sequence.pages} | {p.page for parts in held for p in parts}
    assert pool.used == len(pages)
    assert sorted({*pool.counts._free, *pages}) == list(range(len(pool.arrays["key_cache"])))


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(2))
def test_sequences_are_as_with_rows_of_their_own(seed: int) -> None:
    """Sequences run together, fork, go back and are freed; pages are used by those that have their tokens."""
    assert run_at_random(PLAIN, seed, 160) < 0.75


@pytest.mark.sample(24)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_caches_of_any_form(form: Form) -> None:
    run_at_random(form, 0, 40)


def run_at_random(form: Form, seed: int, steps: int) -> float:
    """Run, fork and free sequences, and compare; return the least share of their pages that is in memory."""
    random, pool = np.random.default_rng(seed), pages_of(executable_of(form))
    known, least = [(pool.sequence(), Whole(form=form))], 1.0
    held: list[tuple[list[PagedRows], Whole]] = []
    for _ in range(steps):
        sequence, whole = known[int(random.integers(len(known)))]
        action = int(random.integers(8))
        if action == 0 and len(known) < 7:
            length = int(random.integers(sequence.length + 1)) if random.random() < 0.5 else sequence.length
            known.append((sequence.fork(length), whole.first(length)))
        elif action == 6:  # what a cache of beginnings does
            length = int(random.integers(sequence.length + 1))
            held = [
                *held[-2:],
                (
                    [sequence.rows(i, min(i + form.rows, length)) for i in range(0, length, form.rows)],
                    whole.first(length),
                ),
            ]
        elif action == 7 and held and len(known) < 7:
            parts, kept = held[int(random.integers(len(held)))]
            made = pool.sequence()
            made.adopt(parts)
            known.append((made, Whole(dict(kept.rows), form)))
            del made, parts
        elif action == 1 and len(known) > 2:
            known = [each for each in known if each[0] is not sequence]
        elif action == 2:
            length = max(0, sequence.length - int(random.integers(2 * ROWS)))
            sequence.rewind(length)
            whole.rows = whole.first(length).rows
        else:
            chosen = [known[i] for i in random.permutation(len(known))[: random.integers(1, len(known) + 1)]]
            # A token of each of them as often as any numbers.
            is_decoding = random.random() < 0.5
            counts = [1 if is_decoding else int(random.integers(0, ROWS + 2)) for _ in chosen]
            counts[0] += not any(counts)
            step(pool, chosen, [new_tokens(random, count, form) for count in counts])
        del sequence, whole
        chosen = []
        require_shared_once(pool, [each for each, _ in known], [parts for parts, _ in held])
        separate = sum(len(each.pages) for each, _ in known)
        together = len({page for each, _ in known for page in each.pages})
        least = min(least, together / separate if separate else 1)
        for i in range(len(known)):
            keys = form.read(pool.rows(known[i][0]))
            np.testing.assert_allclose(keys, known[i][1].rows["key"], rtol=1e-6 if form.dtype == "i8" else 0)
    return least


@pytest.mark.sample(0)
def test_forks_share_all_but_the_last_page(executable: Executable) -> None:
    random, pool = np.random.default_rng(4), pages_of(executable)
    first, whole = pool.sequence(), Whole()
    step(pool, [(first, whole)], [new_tokens(random, 5 * ROWS + 2)])
    forks = [(first.fork(), Whole(dict(whole.rows))) for _ in range(3)]
    assert pool.used == 6 and all(fork.pages == first.pages for fork, _ in forks)
    step(pool, forks, [new_tokens(random, 1) for _ in forks])
    assert pool.used == 6 + 3 and {fork.pages[:5] for fork, _ in forks} == {first.pages[:5]}
    del first
    gc.collect()
    assert pool.used == 5 + 3
    forks[0][0].rewind(-3)
    assert pool.used == 5 + 2


@pytest.mark.sample(0)
def test_a_limit_of_pages(executable: Executable) -> None:
    """A call that needs more pages than there may be changes nothing."""
    random, pool = np.random.default_rng(5), pages_of(executable, limit=3)
    one, two = (pool.sequence(), Whole()), (pool.sequence(), Whole())
    step(pool, [one, two], [new_tokens(random, ROWS), new_tokens(random, ROWS + 1)])
    new = new_tokens(random, 4)
    with pytest.raises(InputError, match="pages: 4 pages of 4 tokens are needed, there may be 3: free or rewind"):
        pool.run(new, [one[0]], [4])
    assert (one[0].length, two[0].length) == (ROWS, ROWS + 1) and pool.used == 3
    two[0].rewind(2)
    step(pool, [one], [new])


def test_a_call_that_fails_adds_no_tokens(executable: Executable) -> None:
    random, pool = np.random.default_rng(6), pages_of(executable)
    sequence, whole = pool.sequence(), Whole()
    step(pool, [(sequence, whole)], [new_tokens(random, ROWS)])
    with pytest.raises(InputError):
        pool.run({"query": np.zeros((1, 1), np.float32)}, [sequence], [1])
    both = [(sequence, whole), (sequence.fork(), Whole(dict(whole.rows)))]
    assert [each.length for each, _ in both] == [ROWS, ROWS]
    for _ in range(2):
        step(pool, both, [new_tokens(random, 2) for _ in both])


@pytest.mark.parametrize(
    ("call", "message"),
    (
        (lambda e, p: caches.pages(e, 0, **NAMES), "expected 1 page or more, and no more than the limit, found 0"),
        (lambda e, p: caches.pages(e, 2, **NAMES, limit=1), "no more than the limit, found 2 and 1"),
        (
            lambda e, p: caches.pages(e, 2, ends="none", past="past", table="table"),
            "expected an input 'none' of integers",
        ),
        (lambda e, p: caches.pages(e, 2, ends="ends", past="past", table="past"), "'past' of integers with 2 dims"),
        (lambda e, p: caches.pages(e, 2, **NAMES, pairs={"query": "y"}), "do not update .'query'. in place, but key_c"),
        (lambda e, p: caches.pages(e, 2, **NAMES, pairs={}), "do not update any input in place"),
        (lambda e, p: p.run({}, [], []), "expected different sequences, each with new tokens, found 0"),
        (lambda e, p: p.run({}, [p.sequence()], [0]), "expected sequences of this pool and 1 token or more, found .0."),
        (lambda e, p: p.run({}, [pages_of(e).sequence()], [1]), "expected sequences of this pool"),
        (lambda e, p: p.sequence().rewind(1), "cannot go back to 1 tokens: there are 0"),
    ),
)  # fmt: skip
def test_wrong_calls(executable: Executable, call: Callable[[Executable, PagePool], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(executable, pages_of(executable))


@pytest.mark.parametrize("pages", ([], {"none": "past"}, {"past": "mask"}, {"past": ["past"]}, {"past": 1}))
def test_hostile_inputs_of_pages(executable: Executable, pages: Any) -> None:
    artifact = replace(executable.artifact, metadata=executable.artifact.metadata | {"pages": pages})
    with pytest.raises(ArtifactError, match="metadata 'pages': expected one of cache, ends"):
        caches.pages(Executable(artifact, executable._store), 2)


def test_inputs_are_those_that_attention_reads(executable: Executable) -> None:
    expected = {"key_cache": "cache", "value_cache": "cache", "ends": "ends", "past": "past", "table": "table"}
    assert executable.artifact.pages == expected
    assert (
        caches.pages(executable, 2).table_names
        == caches.pages(executable, 2, **NAMES).table_names
        == ("ends", "past", "table")
    )
    bare = replace(
        executable.artifact, metadata={k: v for k, v in executable.artifact.metadata.items() if k != "pages"}
    )
    with pytest.raises(InputError, match="expected one input of PagedAttention as 'ends', found none: pass ends="):
        caches.pages(Executable(bare, executable._store), 2)
