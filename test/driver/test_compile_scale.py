"""The work of a compilation grows as the model does: calls of functions are counted, not seconds."""

from __future__ import annotations

import cProfile
import pstats

import pytest

import mirlo
from mirlo.benchmarks.compile_scale import SHAPES

SMALL, LARGE = 60, 240
"""Sizes that differ by a factor of 4: what is quadratic calls 16 times as many functions."""


def calls(name: str, size: int) -> int:
    """Return how many functions the compilation of a model of this size calls, without those of each compilation."""
    model = SHAPES[name][0](size)
    profile = cProfile.Profile()
    profile.runcall(mirlo.compile, model, cache=False, jobs=1)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined,no-any-return]


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["chain", "split", "inputs", "sum", "concat", "max"])
def test_work_is_near_linear(name: str) -> None:
    least = calls(name, 4)  # imports, caches, and what each compilation does
    least = calls(name, 4)
    small, large = (calls(name, size) - least for size in (SMALL, LARGE))
    assert large <= 5 * max(small, 1), (least, small, large)


def test_entry_has_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM gets pointers only: it takes seconds to remove the descriptors of thousands of arguments."""
    import llvmlite.binding as binding

    texts: list[str] = []
    parse = binding.parse_assembly

    def record(text: str, *context: object) -> object:
        texts.append(text)
        return parse(text, *context)

    monkeypatch.setattr(binding, "parse_assembly", record)
    mirlo.compile(SHAPES["inputs"][0](20), cache=False, jobs=1)
    (entry,) = (text for text in texts if "@mirlo_entry" in text)
    assert "@main(" in entry and "insertvalue" not in entry
