"""The inputs that address the rows of sequences, and the caches that are in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.extend.runtime import CACHE_RANK, InputError, TensorSpec, numpy_dtype
from mirlo_llm.caches.paged_sequence import PagedSequence
from mirlo_llm.caches.state import UpdatingModel

MAX_ROWS = 1 << 16
"""Most tokens of a page."""
MAX_HINTS = 3
"""The elements of the input with bounds: most new tokens of a sequence, most tokens of one, fewest tokens of one."""


@dataclass(frozen=True)
class TableInputs:
    """The names of the inputs that address the rows of sequences."""

    ends: str
    """Where each sequence ends among the new tokens, after a leading 0: integers [sequences + 1]."""
    past: str
    """The tokens of each sequence before the call: integers [sequences]."""
    table: str
    """The pages of each sequence: integers [sequences, pages]."""
    hints: str = ""
    """Bounds of the sizes, integers [2] or [3]; empty if the model does not take them."""
    caches: tuple[str, ...] = ()
    """The caches that attention reads, if known."""

    def pairs(self, aliases: Mapping[str, str]) -> dict[str, str]:
        """Return the outputs with the next values of the caches, by inputs."""
        outputs = {source: output for output, source in aliases.items()}
        return {name: outputs.get(name, "") for name in self.caches} or outputs

    def arrays(
        self, specs: Mapping[str, TensorSpec], sequences: Sequence[PagedSequence], tokens: Sequence[int]
    ) -> dict[str, np.ndarray]:
        """Return the inputs for these numbers of new tokens."""
        most = max(len(sequence.pages) for sequence in sequences)
        table = np.zeros((len(sequences), most), np.int64)
        for row, sequence in zip(table, sequences, strict=True):
            row[: len(sequence.pages)] = sequence.pages
        past = np.array([sequence.length for sequence in sequences])
        values = {self.ends: np.cumsum([0, *tokens]), self.past: past, self.table: table}
        if self.hints:
            longest = int((past + tokens).max())
            values[self.hints] = np.array([max(tokens), longest, longest])[: specs[self.hints].shape[0]]
        return {name: value.astype(numpy_dtype(specs[name].dtype)) for name, value in values.items()}


def find_tables(roles: Mapping[str, str], *, ends: str, past: str, table: str) -> TableInputs:
    """Return the names of the inputs: those that the caller names, otherwise those that attention reads, by role."""

    def name(role: str, override: str) -> str:
        names = [override] if override else [each for each, its in roles.items() if its == role]
        if len(names) != 1:
            known = ", ".join(names) or "none"
            raise InputError(f"pages: expected one input of PagedAttention as '{role}', found {known}: pass {role}=")
        return names[0]

    caches = tuple(each for each, role in roles.items() if role == "cache")
    hints = next((each for each, role in roles.items() if role == "hints"), "")
    return TableInputs(name("ends", ends), name("past", past), name("table", table), hints, caches)


def cache_specs(model: UpdatingModel, pairs: Mapping[str, str], rows: int | None) -> tuple[list[TensorSpec], int]:
    """Check the types of the caches in pages; return their specs and the number of tokens of a page."""
    inputs = {spec.name: spec for spec in model.inputs}
    wrong = sorted(name for name, output in pairs.items() if model.aliases.get(output) != name or name not in inputs)
    if wrong or not pairs:
        known = ", ".join(sorted(model.aliases.values())) or "none"
        raise InputError(
            f"pages: calls do not update {wrong or 'any input'} in place, but {known}: name caches in pairs"
        )
    specs = [inputs[name] for name in pairs]
    for spec in specs:
        if len(spec.shape) != CACHE_RANK or not all(isinstance(dim, int) for dim in spec.shape[2:]):
            raise InputError(f"pages: expected caches [pages, rows, heads, size], found {spec}")
        if spec.shape[1] != specs[0].shape[1]:
            raise InputError(f"pages: expected pages of as many rows in all caches, found {specs[0]} and {spec}")
    declared = specs[0].shape[1]
    page_rows = declared if isinstance(declared, int) else rows
    if page_rows is None or not 1 <= page_rows <= MAX_ROWS or (rows is not None and rows != page_rows):
        raise InputError(f"pages: expected 1 to {MAX_ROWS} rows of a page as {specs[0]} has them, found {rows}")
    return specs, page_rows


def fixed_pages(specs: Sequence[TensorSpec]) -> int | None:
    """Return the number of pages of the caches, if the model fixes it."""
    counts = {spec.shape[0] for spec in specs if isinstance(spec.shape[0], int)}
    if len(counts) > 1 or 0 in counts:
        raise InputError(f"pages: expected caches of as many pages each, 1 or more, found {', '.join(map(str, specs))}")
    return int(counts.pop()) if counts else None


def table_inputs(model: UpdatingModel, names: TableInputs) -> dict[str, TensorSpec]:
    """Check the types of the inputs that address rows; return them by name."""
    inputs = {spec.name: spec for spec in model.inputs}
    tables = {}
    wanted = [(names.ends, 1), (names.past, 1), (names.table, 2), *([(names.hints, 1)] if names.hints else [])]
    for name, rank in wanted:
        if name not in inputs or len(inputs[name].shape) != rank or numpy_dtype(inputs[name].dtype).kind != "i":
            known = ", ".join(map(str, model.inputs))
            raise InputError(f"pages: expected an input '{name}' of integers with {rank} dims, found {known}")
        tables[name] = inputs[name]
    if names.hints and not (isinstance(size := tables[names.hints].shape[0], int) and 1 <= size <= MAX_HINTS):
        raise InputError(f"pages: expected 1 to {MAX_HINTS} numbers, found the input {tables[names.hints]}")
    return tables
