"""Choice of the caches of several sequences by how a model updates them."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.extend.runtime import InputError
from mirlo_llm.caches.cache_arrays import BLOCK
from mirlo_llm.caches.cache_pool import CachePool
from mirlo_llm.caches.growing_pool import GrowingPool
from mirlo_llm.caches.in_place_pool import InPlacePool
from mirlo_llm.caches.state import UpdatingModel, find_caches, is_in_place


def new_pool(
    model: UpdatingModel,
    count: int,
    capacity: int,
    limit: int | None,
    pairs: Mapping[str, str] | None,
    states: Mapping[str, str] | None = None,
    block: int = BLOCK,
) -> CachePool:
    """Return empty caches for a number of sequences; the arguments are those of `caches.state`."""
    if count < 1 or capacity < 1:
        raise InputError(f"caches: expected 1 sequence or more with room for 1 token, found {count} and {capacity}")
    caches = find_caches(model, count, pairs, states)
    if is_in_place(model, caches):
        return InPlacePool(model, caches, count, capacity, limit, states or {}, block)
    return GrowingPool(model, caches, count, limit, states or {})
