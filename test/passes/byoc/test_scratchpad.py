"""Places of tensors in a scratchpad: no overlap, no loss, and evictions in the documented order."""

from __future__ import annotations

import copy
import random
from collections import Counter

import pytest

from mirlo.extend.codegen import Scratchpad, ScratchpadFull, ScratchpadTensor


class Planned:
    """A scratchpad of bytes 64 to 164, with main memory as a record of the stored tensors."""

    def __init__(self, reads: Counter[str] | None = None) -> None:
        self.stored: list[str] = []
        self.pad = Scratchpad[str](64, 164, reads or Counter(), self._store)

    def _store(self, name: str, tensor: ScratchpadTensor[str]) -> None:
        assert not tensor.is_stored and name not in self.stored
        self.stored.append(name)

    def require_valid(self) -> None:
        """Require places within the scratchpad that do not overlap."""
        tensors = sorted((each for each in self.pad.tensors.values() if each.size), key=lambda each: each.at)
        ends = [64, *(each.at + each.size for each in tensors)]
        assert all(end <= each.at for end, each in zip(ends, tensors, strict=False)) and ends[-1] <= 164


@pytest.mark.parametrize("seed", range(20))
def test_random_operators(seed: int) -> None:
    """Each operator finds its operands in the scratchpad or in main memory, whatever was evicted before."""
    rng = random.Random(seed)
    known = [("x0", rng.randrange(1, 21))]
    operators = []
    for number in range(30):
        operands = rng.sample(known, min(len(known), rng.randrange(1, 3)))
        operators.append((operands, (f"y{number}", rng.randrange(0, 21))))
        known.append(operators[-1][1])
    planned = Planned(Counter(name for operands, _ in operators for name, _ in operands))
    pad, main = planned.pad, {"x0"}
    for operands, (name, size) in operators:
        for operand, operand_size in operands:
            if pad.find(operand) is None:
                assert operand in main | set(planned.stored), f"{operand} is lost"
                pad.place(operand, "tiles", operand_size, True)
            pad.used.add(operand)
            planned.require_valid()
        largest = pad.largest
        with pytest.raises(ScratchpadFull):
            copy.deepcopy(planned).pad.place("one more", "tiles", largest + 1, False)
        copy.deepcopy(planned).pad.place("one more", "tiles", largest, False)
        pad.place(name, "tiles", size, False)
        planned.require_valid()
        assert all(pad.find(each) is not None for each in [name, *(operand for operand, _ in operands)])
        pad.finish(operand for operand, _ in operands)
        assert all(pad.reads[each] > 0 for each in pad.tensors)


def test_evictions_prefer_stored_and_small_tensors() -> None:
    names = ("large", "small", "computed", "new", "next")
    planned = Planned(Counter(dict.fromkeys(names, 1)))
    pad = planned.pad
    for name, size, is_stored in (("large", 40, True), ("small", 30, True), ("computed", 20, False)):
        pad.place(name, "", size, is_stored)
    pad.finish(())
    assert pad.place("new", "", 25, True) == 104 and pad.find("small") is None
    assert pad.place("next", "", 40, False) == 64 and pad.find("large") is None
    assert planned.stored == [], "both are in main memory"
    pad.finish(())
    assert pad.place("last", "", 35, True) == 104 and [*pad.tensors] == ["next", "last"]
    assert planned.stored == ["computed"], "of those that main memory lacks, the smaller one"


def test_tensors_of_one_operator_must_fit() -> None:
    pad = Planned().pad
    pad.place("a", "", 60, True)
    with pytest.raises(ScratchpadFull, match="take 101 of 100 bytes"):
        pad.place("b", "", 41, False)
    assert pad.place("c", "", 40, False) == 124, "a tensor fits exactly"
    pad.place("d", "", 0, False)
    assert [*pad.tensors] == ["a", "c", "d"], "a tensor without elements takes no room"


def test_used_tensors_may_leave_no_gap() -> None:
    pad = Planned(Counter({"a": 1, "b": 1})).pad
    pad.place("a", "", 40, True)
    pad.place("b", "", 20, True)
    pad.finish(())
    pad.used.add("b")
    with pytest.raises(ScratchpadFull, match="leave no 50 of 100 bytes in a row"):
        pad.place("c", "", 50, False)


def test_values_without_readers_are_freed() -> None:
    planned = Planned(Counter({"a": 2}))
    pad = planned.pad
    pad.place("a", "", 10, False)
    pad.place("table", "", 10, True)
    pad.finish(["a"], lambda name: name == "table")
    assert [*pad.tensors] == ["a", "table"]
    pad.finish(["a"], lambda name: name == "table")
    assert [*pad.tensors] == ["table"] and planned.stored == [], "nothing reads it: it is not stored"
    pad.store("table")
    pad.drop("table", "never there")
    assert not pad.tensors and planned.stored == []


def test_a_tensor_is_stored_once() -> None:
    planned = Planned()
    planned.pad.place("a", "", 10, False)
    planned.pad.store("a")
    planned.pad.drop("a")
    assert planned.stored == ["a"] and planned.pad.find("a") is None


def test_an_operator_without_room_in_one_piece_is_planned_again() -> None:
    commands = ["before"]
    pad = Scratchpad[str](0, 100, Counter({"a": 1, "b": 1, "c": 2}), lambda name, _: commands.append(f"store {name}"))
    for name in "abc":
        pad.place(name, "tiles", 30, False)
    pad.finish(["a"])

    def operator() -> None:
        for name, size in (("b", 30), ("x", 10), ("y", 60)):  # beside b, in the middle, no 60 bytes are left
            if pad.find(name) is None:
                commands.append(f"load {name}")
                pad.place(name, "tiles", size, True)
            pad.used.add(name)

    pad.plan(operator, commands)
    assert commands == ["before", "store b", "store c", "load b", "load x", "load y"]
    for _ in range(2):  # with other tensors, and in an empty scratchpad
        with pytest.raises(ScratchpadFull, match="its operands and result take 101 of 100 bytes"):
            pad.plan(lambda: commands.append(str(pad.place("z", "tiles", 101, False))), commands)
    assert not pad.tensors and len(commands) == 6
