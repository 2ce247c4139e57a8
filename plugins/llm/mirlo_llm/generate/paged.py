"""A compiled language model with `PagedAttention`: packed new tokens, and caches in shared pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mirlo.extend.runtime import LAST_ROWS, Executable, InputError, TensorSpec
from mirlo_llm import caches
from mirlo_llm.caches.paged_inputs import TableInputs, find_tables
from mirlo_llm.caches.paged_state import PagedSlots, PagedState
from mirlo_llm.generate.adapters import AdapterFiles
from mirlo_llm.generate.caches import BatchCaches, CallCaches, EngineCaches
from mirlo_llm.generate.config import TABLES, ModelConfig
from mirlo_llm.generate.decoder import CompiledDecoder, Maker, PaddedTokens, find_caches, typed
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.prefixes import DEFAULT_BYTES, PrefixCache

DEFAULT_ROWS = 64
"""Default number of tokens of a page."""
FIRST_TOKENS = 256
"""Number of tokens that the first pages hold; the pool grows on demand."""
PLANES = 3
"""Rows of positions of models with positions in images; for text they are equal."""


class PagedDecoder(CompiledDecoder):
    """The compiled model with one pool of pages for all its sequences, of generators and of engines."""

    def __init__(
        self,
        config: ModelConfig,
        executable: Executable,
        adapters: AdapterFiles | None = None,
        prefix_bytes: int | None = None,
        limit: int | None = None,
    ) -> None:
        """Create the pages: up to `limit` of them, or as many as the folder says."""
        limit = config.page_count if limit is None else limit
        roles = executable.artifact.pages
        self._tables = _find_tables(config, roles)
        super().__init__(config, executable, adapters)
        declared = self.inputs[next(iter(self.caches))].shape[1]
        rows = config.page_rows or (declared if isinstance(declared, int) else DEFAULT_ROWS)
        first = -(-FIRST_TOKENS // rows)
        try:
            self.pool = caches.pages(
                executable,
                first if limit is None else min(first, limit), ends=self._tables.ends, past=self._tables.past,
                table=self._tables.table, pairs=self.caches, rows=rows, limit=limit,
            )  # fmt: skip
        except InputError as error:
            raise ModelFolderError(f"{config.source}: {error}") from None
        if self.pool.limit is not None:
            most = self.pool.limit * rows
            self.config = replace(config, context=min(config.context or most, most))
        if prefix_bytes is None:
            bounded = self.pool.limit is not None
            prefix_bytes = (self.pool.limit or 0) * self.pool.page_bytes if bounded else DEFAULT_BYTES
        self.prefixes = PrefixCache(prefix_bytes, rows, self.pool.lock)
        self.pool.reclaim = self.prefixes.shrink

    @property
    def pads_left(self) -> bool:
        """Return whether the model expects left padding; paged models remove all padding."""
        return False

    def new_state(self, capacity: int, batch: int, block: int) -> BatchCaches:
        """Return sequences without tokens."""
        return PagedState(self.pool, batch, self.constants)

    def cache_bytes(self, sequences: int, tokens: int) -> int:
        """Return the bytes of the pages of this many sequences of this many tokens, of which some may wait."""
        count = sequences * -(-tokens // self.pool.page_rows)
        return self.pool.page_bytes * (count if self.pool.limit is None else min(count, self.pool.limit))

    def new_pool(self, capacity: int, count: int, block: int) -> EngineCaches:
        """Return empty caches for calls of any of the sequences."""
        return PagedSlots(self.pool, count)

    def _find_caches(self, outputs: dict[str, TensorSpec]) -> dict[str, str]:
        if self.states:
            name = next(iter(self.states))
            what = "states of a fixed size beside caches in pages are not supported"
            raise ModelFolderError(f"{self.config.model}: input {self.inputs[name]}: {what}")
        pairs = self._tables.pairs(self.executable.aliases)
        if self.config.names.caches is None:
            return pairs
        named = find_caches(self.config.names, self.inputs, outputs, self.config, {})
        if named != pairs:
            wrong = sorted(dict(named.items() ^ pairs.items()))
            raise ModelFolderError(
                f"{self.config.source}: {', '.join(map(repr, wrong))}: attention with pages reads and updates other "
                f"caches than the file says: {', '.join(pairs)}"
            )
        return pairs

    def _vocabulary(self, logits: TensorSpec) -> int:
        if len(logits.shape) != 2 or not isinstance(logits.shape[1], int):
            raise ModelFolderError(f"{self.config.model}: expected logits [tokens, vocabulary], found {logits}")
        return logits.shape[1]

    def _made_elsewhere(self) -> set[str]:
        tables = self._tables
        return {LAST_ROWS, tables.ends, tables.past, tables.table, tables.hints, self.config.names.logits_rows}

    def _known_inputs(self) -> dict[str, Callable[[TensorSpec], Maker]]:
        names = self.config.names
        return {
            names.tokens: lambda spec: lambda new, state: self._packed(spec, new.tokens, new),
            names.positions: lambda spec: lambda new, state: self._packed(spec, new.positions, new),
        }

    def _packed(self, spec: TensorSpec, values: np.ndarray, new: PaddedTokens) -> np.ndarray:
        """Return values of the new tokens of all sequences, concatenated."""
        packed = typed(values[new.packed], spec)
        if len(spec.shape) == 1:
            return packed
        if len(spec.shape) == 2 and spec.shape[0] in (1, PLANES):
            return np.repeat(packed[None], int(spec.shape[0]), 0)
        raise ModelFolderError(f"{self.config.model}: expected packed tokens, [tokens], found the input {spec}")

    def _logits(self, state: CallCaches, inputs: dict[str, np.ndarray], new: PaddedTokens, rows: int) -> np.ndarray:
        batch, names = len(new.counts), self.config.names
        wanted = np.maximum(np.cumsum(new.counts)[:, None] - np.arange(rows, 0, -1), 0).reshape(-1)
        at = wanted
        if names.logits_rows in self.inputs:
            inputs[names.logits_rows] = typed(at, self.inputs[names.logits_rows])
            at = np.arange(len(wanted))
        if LAST_ROWS in self.inputs:
            inputs[LAST_ROWS] = at
            at = np.arange(len(wanted))
        logits = state.run(inputs, new.counts)[names.logits]
        if at is wanted and len(logits) != sum(new.counts):  # of the last token of each sequence
            at = np.arange(batch)
            if rows > 1 or len(logits) != batch:
                what = f"the model computes {len(logits)} rows of logits for {new.counts} new tokens of sequences"
                raise GenerationError(f"{self.config.model}: {what}: without those of all, use lookup=0 and no draft")
        return logits[at].reshape(batch, rows, self.vocabulary)


def _find_tables(config: ModelConfig, roles: dict[str, str]) -> TableInputs:
    """Return the inputs that address rows; raise an error if the folder names others."""
    try:
        tables = find_tables(roles, ends="", past="", table="")
    except InputError as error:
        raise ModelFolderError(f"{config.model}: {error}") from None
    for key, name in (config.names.tables or {}).items():
        expected = getattr(tables, TABLES[key])
        if name != expected:
            raise ModelFolderError(
                f"{config.source}: 'model.decoder.inputs.{key}' is {name!a:.60}, attention of the model reads "
                f"'{expected}'"
            )
    return tables
