"""Caches of language models: of a sequence of calls, of several sequences, and in pages that sequences share.

 from mirlo import caches

 state = caches.state(executable, capacity=256)

`UpdatingModel` is the interface that a compiled model must have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirlo.extend.runtime import Executable
from mirlo_llm.caches.cache_arrays import BLOCK
from mirlo_llm.caches.cache_pool import CachePool
from mirlo_llm.caches.new_pool import new_pool
from mirlo_llm.caches.page_pool import PagePool, find_tables
from mirlo_llm.caches.state import CacheState, new_state

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BLOCK", "CachePool", "CacheState", "PagePool", "pages", "pool", "state", "windows"]


def state(
    model: Executable,
    capacity: int = 256,
    batch: int = 1,
    *,
    limit: int | None = None,
    pairs: Mapping[str, str] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    states: Mapping[str, str] | None = None,
    block: int = BLOCK,
) -> CacheState:
    """Return caches for a sequence of calls, such as those of a language model, with no valid rows.

    They have room for `capacity` rows of `batch` sequences, and grow up to `limit`. `pairs` are the outputs that are
    the next values of the caches, by the names of inputs; without it, those that update inputs in place. `constants`
    are inputs that stay the same in all calls. `states` are further pairs, of arrays of a fixed size that a call
    replaces, such as those of linear attention. `block` is how many new tokens a call may have, where the model keeps
    windows of tokens only.
    """
    return new_state(model, capacity, batch, limit, pairs, constants, states, block)


def pool(
    model: Executable, count: int, capacity: int = 256, *, limit: int | None = None,
    pairs: Mapping[str, str] | None = None, states: Mapping[str, str] | None = None, block: int = BLOCK,
) -> CachePool:  # fmt: skip
    """Return caches for `count` sequences, each with a length of its own, with no valid rows.

    A call runs a subset of them. Use it for sequences that begin and end at any time, such as requests to a language
    model. The other arguments are those of `state`.
    """
    return new_pool(model, count, capacity, limit, pairs, states, block)


def pages(
    model: Executable, count: int, *, ends: str = "", past: str = "", table: str = "",
    pairs: Mapping[str, str] | None = None, rows: int | None = None, limit: int | None = None,
) -> PagePool:  # fmt: skip
    """Return caches in `count` pages that sequences share, for a model that finds rows by a table of blocks.

    `ends`, `past` and `table` are the names of the inputs with the ends of the sequences among the new tokens, their
    lengths before, and their pages: without them, those that `PagedAttention` reads. `pairs` are as in `state`; `rows`
    is the tokens of a page, if the model leaves them open; the pages grow up to `limit`.
    """
    tables = find_tables(model.artifact.pages, ends=ends, past=past, table=table)
    return PagePool(model, pairs, tables, count, limit, rows)


def windows(model: Executable) -> dict[str, int]:
    """Return the window size in tokens of each input that is a ring buffer, by input name."""
    return model.artifact.windows


WINDOWS = property(windows)
"""Replaces the former property `Executable.windows`."""
