"""Pieces of assembly that multiply by warpgroups, as the PTX manual says: factors in registers, sums, waits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from fragments import KINDS

GROUP = 128
_MULTIPLY = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(?P<n>\d+)k(?P<k>\d+)\.(?P<sum>\w+)\.(?P<a>\w+)\.(?P<b>\w+) "
    r"\{(?P<total>[^}]*)\}, (?P<left>\{[^}]*\}|\w+), (?P<right>\w+), (?P<adds>\w+), (?P<rest>[\d, ]+);"
)
_SET = re.compile(r"setp\.ne\.b32 (\w+), (\d+), (\d+);")
_ADD = re.compile(r"add\.s64 (\w+), \$(\d+), (\d+);")
_WAIT = re.compile(r"wgmma\.wait_group\.sync\.aligned (\d+);")


@dataclass(frozen=True)
class Register:
    """One of the sums of products that are under way: nobody knows its numbers yet."""

    sums: Any
    position: int


def run_assembly(group: Any, op: Any, text: str) -> None:
    """Run a piece on a warpgroup; its operands are sums, then others."""
    constraints = op.attributes["constraints"].value.split(",")
    count = sum(c.startswith("=") for c in constraints)
    operands = list(op.operands)
    tied = [operands[i] for i, c in enumerate(constraints[count:]) if c.isdigit()]
    assert [c for c in constraints[count:] if c.isdigit()] == [str(i) for i in range(len(tied))]
    assert len(tied) in (0, count) and str(op.results[0].type).count("f32") == count
    wait = _WAIT.fullmatch(text)
    if wait:
        _wait(group, int(wait.group(1)))
    sums = _sums(group, [group.env[value] for value in tied], count, bool(wait))
    if not wait:
        # Numbers of operands: results first.
        _products(group, text, sums, {count + i: value for i, value in enumerate(operands)}, count)
    group.env[op.results[0]] = sums


def _wait(group: Any, under_way: int) -> None:
    while len(group.under_way) > under_way:
        for finish in group.under_way.pop(0):
            finish()
    group.fenced = False


def _sums(group: Any, values: list[Any], count: int, waited: bool) -> Any:
    """The registers that a piece works on."""
    from warpgroups import Sums

    held = {id(v.sums): v.sums for v in values if isinstance(v, Register)}
    if held:
        ((_, sums),) = held.items()
        assert [v.position for v in values] == list(range(count)), "registers of several products"
        assert waited or sums.under_way == 0, "sums are added to while they are under way"
        assert not waited or sums.under_way == 0, "a wait that leaves these products under way"
        return sums
    made = Sums(count, np.dtype(np.float32))
    for i, value in enumerate(values):
        made.values[:, i] = value
    return made


def _products(group: Any, text: str, sums: Any, operands: dict[int, Any], count: int) -> None:
    env: dict[str, Any] = {}
    for line in text.splitlines():
        if line in ("{", "}", ".reg .pred adds;", ".reg .b64 left, right;"):
            continue
        if line == "wgmma.fence.sync.aligned;":
            group.fenced = True
        elif line == "wgmma.commit_group.sync.aligned;":
            group.under_way.append(group.products)
            group.products = []
        elif match := _SET.fullmatch(line):
            env[match[1]] = match[2] != match[3]
        elif match := _ADD.fullmatch(line):
            env[match[1]] = group._one(operands[int(match[2])], np.ones(GROUP, bool)) + int(match[3])
        else:
            match = _MULTIPLY.fullmatch(line)
            assert match, f"unknown assembly: {line}"
            _multiply(group, match, sums, operands, env, count)


def _multiply(group: Any, match: Any, sums: Any, operands: dict[int, Any], env: dict[str, Any], count: int) -> None:
    from warpgroups import Matrix

    columns, steps, kind = int(match["n"]), int(match["k"]), KINDS[match["b"]]
    assert group.fenced and match["sum"] == "f32" and match["a"] == match["b"] and steps == 16
    assert columns % 8 == 0 and columns <= 256 and count == columns // 2
    assert match["total"] == ", ".join(f"${i}" for i in range(count))
    scale_a, scale_b, *turned = map(int, match["rest"].split(", "))
    assert (scale_a, scale_b) == (1, 1)
    right = Matrix(env[match["right"]], kind, not turned[-1])
    adds = env[match["adds"]]
    if match["left"].startswith("{"):
        assert len(turned) == 1
        numbers = [int(name[1:]) for name in match["left"][1:-1].split(", ")]
        words = [group.env[operands[number]] for number in numbers]
        rows = from_registers(words, kind)
    else:
        left = Matrix(env[match["left"]], kind, not turned[0])
        rows = None
    sums.under_way += 1

    def finish() -> None:
        a = left.read(group.unit.memory, 64, steps) if rows is None else rows
        b = right.read(group.unit.memory, columns, steps)
        sums.add(a.astype(np.float32) @ b.astype(np.float32).T, begins=not adds)

    group.products.append(finish)


def from_registers(words: list[np.ndarray], kind: Any) -> np.ndarray:
    """64 rows by 16 steps from four registers of each thread: both halves of the rows, then both of the steps."""
    made = np.zeros((64, 16), kind)
    lanes = np.arange(GROUP)
    for number, word in enumerate(words):
        assert word.dtype.itemsize == 4
        pair = np.ascontiguousarray(word).view(kind).reshape(GROUP, 2)
        row = lanes // 32 * 16 + lanes % 32 // 4 + 8 * (number % 2)
        for i in range(2):
            made[row, lanes % 4 * 2 + 8 * (number // 2) + i] = pair[:, i]
    return made
