"""Faults planted in PTX: for the comparison of kernels on the emulator."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Line = Callable[[str, random.Random], str | None]
"""Return a line with a fault, or None where it has no place for one."""

_WITHOUT_RESULT = re.compile(
    r"\t(st\.|mbarrier\.(arrive|init)|wgmma\.(fence|commit|wait)|fence\.|bar\.|cp\.async\.bulk|barrier\.cluster"
    r"|tcgen05\.(mma|commit|ld|wait|fence))"
)
_NUMBER = re.compile(r"(?<=[ ,+])\d+(?=[,;\]])")
_GUARD = re.compile(r"@(!?)(%p\d+)")


def _delete(line: str, rng: random.Random) -> str | None:
    return "" if _WITHOUT_RESULT.match(line) else None


def _drop_wait(line: str, rng: random.Random) -> str | None:
    """Go on at a barrier, whatever its phase is."""
    return "\tsetp.eq.u32 P1, 0, 0;" if line.startswith("\tmbarrier.try_wait") else None


def _negate(line: str, rng: random.Random) -> str | None:
    guard = _GUARD.search(line)
    return None if guard is None else line.replace(guard[0], f"@{'' if guard[1] else '!'}{guard[2]}", 1)


def _change_number(line: str, rng: random.Random) -> str | None:
    """Change a number, but those of the timeout of waits and of registers."""
    if not re.match(
        r"\t(add|mad|mul|and|or|shl|shr|bfe|mov\.b32|setp|selp|mbarrier|wgmma\.wait|st|ld\.(shared|global))", line
    ):
        return None
    places = list(_NUMBER.finditer(line))
    if not places:
        return None
    place = rng.choice(places)
    number = int(place[0])
    other = rng.choice([number + 1, number * 2, max(number - 1, 0), number + 16])
    return None if other == number else line[: place.start()] + str(other) + line[place.end() :]


def _swap(line: str, rng: random.Random) -> str | None:
    """Swap the coordinates of a box, the descriptors of a product, or operands whose order matters."""
    box = re.search(r"\{(%r\d+), (%r\d+)\}\]", line)
    if box is not None and box[1] != box[2]:
        return line.replace(box[0], f"{{{box[2]}, {box[1]}}}]")
    product = re.search(r"(%rd\d+), (%rd\d+), (%r\d+, %p\d+;|p, )", line)
    if product is not None:
        return line.replace(product[0], f"{product[2]}, {product[1]}, {product[3]}")
    operands = re.match(r"(\t(?:sub|shl|shr|setp|selp)\S* *\t%\w+, )(%\w+), (%?\w+)(.*)", line)
    if operands is not None and operands[3].startswith("%") and operands[2] != operands[3]:
        return f"{operands[1]}{operands[3]}, {operands[2]}{operands[4]}"
    return None


def _change_product(line: str, rng: random.Random) -> str | None:
    """Add to other sums, transpose a factor or negate it, in a product of a warpgroup; change the sums of a unit."""
    if "wgmma.mma_async" in line:
        head, _, flags = line.rpartition("p, ")
        numbers = flags.rstrip(";").split(", ")
        place = rng.randrange(len(numbers))
        numbers[place] = str(-int(numbers[place])) if place < 2 else str(1 - int(numbers[place]))
        return f"{head}p, {', '.join(numbers)};"
    if line.startswith("setp.ne.b32 p, "):
        return line.replace("p, 1,", "p, 0,") if "p, 1," in line else line.replace("p, 0,", "p, 1,")
    return None


FAULTS: dict[str, Line] = {
    "deleted instruction": _delete, "dropped wait": _drop_wait, "negated condition": _negate,
    "wrong number": _change_number, "swapped operands": _swap, "wrong product": _change_product,
}  # fmt: skip


def planted(ptx: str, kind: str, seed: int) -> str | None:
    """Return a text of PTX with one fault of a kind; None if there is no place for it."""
    rng, lines = random.Random(f"{kind} {seed}"), ptx.splitlines()
    places = [i for i, line in enumerate(lines) if FAULTS[kind](line, random.Random(0)) is not None]
    if not places:
        return None
    at = rng.choice(places)
    faulty = FAULTS[kind](lines[at], rng)
    return None if faulty is None else "\n".join([*lines[:at], faulty, *lines[at + 1 :]])


def changed_line(before: str, after: str) -> tuple[str, str]:
    """Return the line that a fault changed, as it was and as it is."""
    pairs: Sequence[tuple[str, str]] = list(zip(before.splitlines(), after.splitlines(), strict=True))
    return next((x, y) for x, y in pairs if x != y)
