"""The processes of a StableHLO program, replicas times partitions, as ranks: partitions of a replica are adjacent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.extend.frontend import RankGroups, UnsupportedOperation, ir

REPLICAS, PARTITIONS = "mhlo.num_replicas", "mhlo.num_partitions"
"""Attributes of a module with the numbers of replicas and partitions."""
MOST_PROCESSES = 1024
"""Most processes of a program, since each is a rank with connections to all others."""
CROSS_PARTITION = ("stablehlo.all_to_all", "stablehlo.collective_broadcast", "stablehlo.collective_permute")
"""Collectives whose channel selects partitions; for others, it selects replicas and partitions."""


@dataclass(frozen=True)
class ProcessGrid:
    """The numbers of replicas and partitions of a program."""

    replicas: int = 1
    partitions: int = 1

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.replicas * self.partitions

    def rank(self, replica: int, partition: int) -> int:
        """Return the rank of a process."""
        return replica * self.partitions + partition

    def groups(self, op: ir.Operation) -> RankGroups:
        """Return the groups of ranks of a collective."""
        mode, rows = mode_of(op), replica_groups(op)
        limit = {"replica": self.replicas, "partition": self.partitions, "flat": self.ranks, "both": self.replicas}
        rows = rows or (tuple(range(limit[mode])),)
        if not all(0 <= number < limit[mode] for row in rows for number in row):
            raise UnsupportedOperation(
                f"has replica_groups {rows}, but the program has {self.replicas} replicas and {self.partitions} "
                f"partitions ('{REPLICAS}', '{PARTITIONS}' of the module)"
            )
        if mode == "flat":
            return rows
        if mode == "both":
            return tuple(tuple(self.rank(r, p) for p in range(self.partitions) for r in row) for row in rows)
        return self._each_of_the_other(mode, rows)

    def pairs(self, op: ir.Operation) -> RankGroups:
        """Return each source and target of a permutation."""
        listed = _rows(op, "source_target_pairs")
        mode = mode_of(op)
        limit = self.partitions if mode == "partition" else self.replicas
        if not all(len(pair) == 2 and all(0 <= number < limit for number in pair) for pair in listed):
            raise UnsupportedOperation(f"has source_target_pairs {listed}, but the program has {limit} {mode}s")
        return self._each_of_the_other(mode, listed)

    def _each_of_the_other(self, mode: str, rows: RankGroups) -> RankGroups:
        if mode == "replica":
            return tuple(tuple(self.rank(r, p) for r in row) for p in range(self.partitions) for row in rows)
        return tuple(tuple(self.rank(r, p) for p in row) for r in range(self.replicas) for row in rows)


def process_grid(module: ir.Operation) -> ProcessGrid:
    """Return the process grid that the module declares or that its collectives imply."""
    declared = {name: _count(module, name) for name in (REPLICAS, PARTITIONS)}
    counts = {name: count or 1 for name, count in declared.items()}
    for op in _operations(module):
        if not op.name.startswith("stablehlo.") or not {"replica_groups", "source_target_pairs"} & set(op.attributes):
            continue
        named = [number for row in (*replica_groups(op), *_rows(op, "source_target_pairs")) for number in row]
        which = REPLICAS if mode_of(op) in ("replica", "both") else PARTITIONS
        if declared[which] is None:
            counts[which] = max([counts[which], *[number + 1 for number in named]])
    if counts[REPLICAS] * counts[PARTITIONS] > MOST_PROCESSES:
        raise UnsupportedOperation(
            f"the program has {counts[REPLICAS]} replicas of {counts[PARTITIONS]} partitions: at most "
            f"{MOST_PROCESSES} processes are supported"
        )
    return ProcessGrid(counts[REPLICAS], counts[PARTITIONS])


def mode_of(op: ir.Operation) -> str:
    """Return what a collective's ids are: replicas, partitions, both flattened ("flat"), or replicas of all partitions.

    These are the strategies of StableHLO's process groups.
    """
    has_channel = "channel_handle" in op.attributes and _channel(op) > 0
    if "use_global_device_ids" in op.attributes:
        return "flat"
    if op.name in CROSS_PARTITION:
        return "partition" if has_channel else "replica"
    return "both" if has_channel else "replica"


def replica_groups(op: ir.Operation) -> RankGroups:
    """Return the replica groups without padding; empty for one group of all."""
    rows = _rows(op, "replica_groups")
    return tuple(row for row in (tuple(n for n in row if n != -1) for row in rows) if row)


def _rows(op: ir.Operation, name: str) -> RankGroups:
    if name not in op.attributes:
        return ()
    try:
        table = np.array(op.attributes[name])
    except (TypeError, ValueError, RuntimeError):
        raise UnsupportedOperation(f"has {name} = {op.attributes[name]}: expected a table of integers") from None
    if table.ndim != 2 or table.size > MOST_PROCESSES**2:
        raise UnsupportedOperation(f"has {name} = {op.attributes[name]!s:.80}: expected a table of integers")
    return tuple(tuple(int(number) for number in row) for row in table.tolist())


def _channel(op: ir.Operation) -> int:
    """Return the number of a channel handle, `#stablehlo.channel_handle<handle = 1, type = 0>`."""
    _, _, text = str(op.attributes["channel_handle"]).partition("handle = ")
    digits = text.partition(",")[0].strip()
    return int(digits) if digits.isdecimal() else 0


def _count(module: ir.Operation, name: str) -> int | None:
    if name not in module.attributes:
        return None
    attribute = module.attributes[name]
    count = attribute.value if isinstance(attribute, ir.IntegerAttr) else 0
    if not 1 <= count <= MOST_PROCESSES:
        raise UnsupportedOperation(f"the module has {name} = {attribute}: expected 1 to {MOST_PROCESSES}")
    return int(count)


def _operations(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the operations in an operation's regions."""
    waiting: Sequence[ir.Operation] = [op]
    while waiting:
        inner = [
            each.operation
            for outer in waiting
            for region in outer.regions
            for block in region.blocks
            for each in block.operations
        ]
        yield from inner
        waiting = inner
