"""Places of tensors in a memory of an accelerator: what stays there between operators, and what is stored and loaded.

A tensor stays from the operator that loads or computes it to the last one that reads it. If there is no room for a
new tensor, tensors that the current operator does not use are evicted: first those that main memory has as well, the
smallest ones first. A tensor that main memory lacks is stored before it is evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

from mirlo.runtime.records import dataclass

Layout = TypeVar("Layout")


class ScratchpadFull(ValueError):
    """There is no room for a tensor beside the others of its operator."""


@dataclass
class ScratchpadTensor(Generic[Layout]):
    """A tensor in a scratchpad."""

    layout: Layout
    at: int
    size: int
    is_stored: bool
    """Whether main memory has it as well."""


@dataclass
class Scratchpad(Generic[Layout]):
    """The tensors in bytes `begin` to `end` of a memory, while operators are planned in order.

    `reads` counts by name the operators that are still to read a value. `store` is called with the name of a tensor and
    the tensor, to add the command that copies it to main memory.
    """

    begin: int
    end: int
    reads: Counter[str]
    store_tensor: Callable[[str, ScratchpadTensor[Layout]], None]
    tensors: dict[str, ScratchpadTensor[Layout]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """The tensors that the current operator uses, which are not evicted."""

    def find(self, name: str) -> ScratchpadTensor[Layout] | None:
        """Return a tensor by name; None if it is not in the scratchpad."""
        return self.tensors.get(name)

    def plan(self, operator: Callable[[], None], commands: list[Any]) -> None:
        """Plan an operator, which appends commands; if others' tensors leave no room in one piece, without these."""
        before, count = {name: replace(each) for name, each in self.tensors.items()}, len(commands)
        try:
            operator()
        except ScratchpadFull:
            if not before:
                raise
            del commands[count:]
            self.tensors = before
            self.used.clear()
            self.drop(*before)
            operator()

    @property
    def largest(self) -> int:
        """Return the bytes of the largest tensor that has room beside those of the current operator."""
        used = (self.tensors[name] for name in self.used if name in self.tensors)
        kept = sorted(used, key=lambda each: (each.at, each.size))
        begins = [self.begin, *(each.at + each.size for each in kept)]
        return max(end - begin for begin, end in zip(begins, [*(each.at for each in kept), self.end], strict=True))

    def place(self, name: str, layout: Layout, size: int, is_stored: bool) -> int:
        """Return the place of a new tensor of the current operator, evicting others if needed."""
        self.tensors.pop(name, None)
        while (at := self._gap(size)) is None:
            others = [each for each in self.tensors if each not in self.used]
            if not others:
                raise ScratchpadFull(self._problem(size))
            self.drop(min(others, key=lambda each: (not self.tensors[each].is_stored, self.tensors[each].size)))
        self.tensors[name] = ScratchpadTensor(layout, at, size, is_stored)
        self.used.add(name)
        return at

    def store(self, name: str) -> None:
        """Copy a tensor to main memory, unless it is there already."""
        tensor = self.tensors.get(name)
        if tensor is not None and not tensor.is_stored:
            self.store_tensor(name, tensor)
            tensor.is_stored = True

    def drop(self, *names: str) -> None:
        """Store tensors, and free their places."""
        for name in names:
            self.store(name)
            self.tensors.pop(name, None)

    def finish(self, operands: Iterable[str], kept: Callable[[str], bool] = lambda name: False) -> None:
        """End an operator that read these values; free the tensors that no other one reads, unless they are `kept`."""
        self.reads.subtract(operands)
        self.used.clear()
        for name in [each for each in self.tensors if self.reads[each] <= 0 and not kept(each)]:
            del self.tensors[name]

    def _problem(self, size: int) -> str:
        """Return why there is no room for a tensor beside the others of its operator."""
        total, room = size + sum(each.size for each in self.tensors.values()), self.end - self.begin
        if total > room:
            return f"its operands and result take {total} of {room} bytes"
        return f"its operands leave no {size} of {room} bytes in a row"

    def _gap(self, size: int) -> int | None:
        """Return the lowest free place of this many bytes; None if there is none."""
        begin = self.begin
        for tensor in sorted(self.tensors.values(), key=lambda each: each.at):
            if tensor.at - begin >= size:
                return begin
            begin = max(begin, tensor.at + tensor.size)
        return begin if begin + size <= self.end else None
