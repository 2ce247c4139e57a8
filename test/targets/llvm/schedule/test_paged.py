"""Attention to rows of caches in pages, in one kernel: against numpy, with heads that share keys and others."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from attention_cases import reference

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.trace import Trace
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.session import Session


@dataclass(frozen=True)
class Heads:
    """The heads of a model, and the pages of its caches."""

    queries: int
    keys: int
    size: int
    page_rows: int

    def text(self, tokens: int | None) -> str:
        """Return a module with this many new tokens of each sequence; None if callers decide."""
        extent, dim = ("?", '"s"') if tokens is None else (str(tokens), str(tokens))
        query = (
            f'tensor<?x{self.queries}x{extent}x{self.size}xf32, #relax.dims<["b", {self.queries}, {dim}, {self.size}]>>'
        )
        cache = (
            f"tensor<?x{self.page_rows}x{self.keys}x{self.size}xf32, "
            f'#relax.dims<["n", {self.page_rows}, {self.keys}, {self.size}]>>'
        )
        table, lengths = 'tensor<?x?xi64, #relax.dims<["b", "m"]>>', 'tensor<?xi64, #relax.dims<["b"]>>'
        return f"""func.func @main(%q: {query}, %k: {cache}, %v: {cache}, %t: {table}, %l: {lengths}) -> {query} {{
          %0 = "relax.paged_attention"(%q, %k, %v, %t, %l) {{operandSegmentSizes = array<i32: 1,1,1,1,1,0,0,0,0>}}
            : ({query}, {cache}, {cache}, {table}, {lengths}) -> {query}
          return %0 : {query}
        }}"""

    def arrays(self, lengths: list[int], tokens: int) -> list[np.ndarray]:
        """Return operands for sequences of these lengths; what is after the last row of a sequence is no number."""
        rng = np.random.default_rng(0)
        most = max(-(-length // self.page_rows) for length in lengths)
        count = most * len(lengths) + 2 if most else 0
        shape = (count, self.page_rows, self.keys, self.size)
        query, keys, values = (
            rng.standard_normal(each, dtype=np.float32)
            for each in ((len(lengths), self.queries, tokens, self.size), shape, shape)
        )
        table = rng.permutation(count)[: most * len(lengths)].reshape(len(lengths), most)
        for sequence, length in enumerate(lengths):
            for row in range(length, most * self.page_rows):
                for cache in (keys, values):
                    cache[table[sequence, row // self.page_rows], row % self.page_rows] = np.nan
        return [query, keys, values, table.astype(np.int64), np.array(lengths, np.int64)]

    def expected(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the result, sequence by sequence: rows after the last one are zero."""
        query, keys, values, table, lengths = arrays
        result = np.zeros(query.shape)
        for sequence, length in enumerate(lengths):
            rows = [cache[table[sequence]].reshape(-1, self.keys, self.size) for cache in (keys, values)]
            for each in rows:
                each[length:] = 0
            heads = (each.swapaxes(0, 1)[None] for each in rows)
            result[sequence] = reference(query[sequence : sequence + 1], *heads, None, None, None)[0]
        return result


HEADS = {
    "of their own": Heads(12, 12, 64, 16),
    "few of their own": Heads(3, 3, 8, 4),
    "shared": Heads(8, 2, 32, 16),
    "odd": Heads(6, 2, 40, 16),
    "one of keys": Heads(4, 1, 16, 8),
    "one": Heads(1, 1, 16, 8),
}
LENGTHS = ([37], [0], [64, 64], [5, 0, 70], [1, 1], [33, 100])


@pytest.mark.sample(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tokens", [1, None])
@pytest.mark.parametrize("name", HEADS)
def test_against_numpy(name: str, tokens: int | None, threads: int) -> None:
    """Whole pages, the rest of a page, sequences without rows, and no page at all."""
    heads = HEADS[name]
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(heads.text(tokens)), threads=threads, cache=False)
    for lengths in LENGTHS:
        for count in (1, 3) if tokens is None and min(lengths) >= 3 else (1,):
            arrays = heads.arrays(lengths, count)
            np.testing.assert_allclose(executable(*arrays), heads.expected(arrays), rtol=2e-5, atol=2e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tokens", [1, 3, None])
@pytest.mark.parametrize("name", HEADS)
def test_printed_primitives_make_the_same_code(name: str, tokens: int | None, threads: int) -> None:
    """Pages that are read where they are, and copies of them, are schedules that may be edited and given back."""
    texts: list[str] = []
    schedules: dict[str, object] = {}
    for _ in range(2):
        with make_context(), ir.Location.unknown():
            module = ir.Module.parse(HEADS[name].text(tokens))
            session = Session(options={"schedules": schedules})
            Pipeline(f"legalize{{target=llvm}},schedule{{target=llvm threads={threads}}}").run(module, session)
            texts.append(re.sub(r"attributes \{.*\} \{$", "", str(module), flags=re.MULTILINE))
        record = next(note for note in session.notes if isinstance(note, ScheduleRecord))
        schedules = {record.function: record.trace}
    trace = str(record.trace)
    assert texts[0] == texts[1] and "apply_rule" not in trace
    in_place, is_copied = "pages=" in trace, "copy_pages" in trace
    forms = {1: [(True, False)], 3: [(True, False), (False, True)], None: [(True, True)]}
    assert (in_place, is_copied) in forms[tokens]
    assert ("s_1 = s.specialize('s', 1)" in trace) == (tokens is None)


def test_refused_pages() -> None:
    """Blocks that read no pages, loops that are not over them, and blocks of rows that are no heads."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(HEADS["shared"].text(1))
        session = Session()
        Pipeline("legalize{target=llvm}").run(module, session)
        (function,) = prim_functions(module.operation)
        copy = function.operation.clone(ip=False)
        Pipeline("schedule{target=llvm}").run(module, session)
        note = next(note for note in session.notes if isinstance(note, ScheduleRecord))
        *before, blocks = note.trace
        for change, message in (
            ({"pages": blocks.named["pages"][:1]}, "a loop over pages of each product"),
            ({"pages": blocks.named["pages"][:1] * 2}, "has not the 16 rows of a page"),
            ({"threads": 0}, "threads"),
        ):
            s = Schedule(copy).replay(Trace(before))
            with pytest.raises(ScheduleError, match=message):
                s.block_rows(*blocks.arguments, **{**blocks.named, **change})
        with pytest.raises(ScheduleError, match="does not read the rows"):
            Schedule(copy).copy_pages("scores")
