"""Declared operands and results of a class, and their layout in the operation.

IRDL requires all values of one variadic group to have one type. A variadic operand of mixed types is therefore
declared as several groups, and `operandSegmentSizes` holds the lengths of the runs of equal types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.errors import OpError

Held = TypeVar("Held")
Member = TypeVar("Member")

OPERAND_RUNS = 16
RESULT_RUNS = 4
"""The most runs of equally typed values in a variadic operand or result of mixed types."""


class ValueDeclaration:
    """A declared operand or result: single, optional or variadic."""

    def __init__(self, kind: str, is_result: bool, doc: str, runs: int = 1):
        self.kind = kind
        self.is_result = is_result
        self.doc = doc
        self.runs = runs
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class DeclaredValue(ValueDeclaration, Generic[Held]):
    """A declaration that reads as what it holds: a value, a value or None, or a list of values."""

    @overload
    def __get__(self, op: None, owner: type) -> DeclaredValue[Held]: ...
    @overload
    def __get__(self, op: ir.OpView, owner: type) -> Held: ...
    def __get__(self, op: ir.OpView | None, owner: type) -> DeclaredValue[Held] | Held:
        if op is None:
            return self
        layout = owner._result_layout if self.is_result else owner._operand_layout  # type: ignore[attr-defined]
        values = op.operation.results if self.is_result else op.operation.operands
        value: Held = layout.pick(self, op.operation, values)
        return value


def operand(doc: str = "") -> DeclaredValue[ir.Value]:
    """Declare exactly one operand."""
    return DeclaredValue("single", False, doc)


def optional(doc: str = "") -> DeclaredValue[ir.Value | None]:
    """Declare an operand that may be absent."""
    return DeclaredValue("optional", False, doc)


def operands(doc: str = "", runs: int = OPERAND_RUNS) -> DeclaredValue[list[ir.Value]]:
    """Declare any number of operands, in at most `runs` runs of equal types."""
    return DeclaredValue("variadic", False, doc, runs)


def result(doc: str = "") -> DeclaredValue[ir.Value]:
    """Declare exactly one result."""
    return DeclaredValue("single", True, doc)


def results(doc: str = "", runs: int = RESULT_RUNS) -> DeclaredValue[list[ir.Value]]:
    """Declare any number of results, in at most `runs` runs of equal types."""
    return DeclaredValue("variadic", True, doc, runs)


class ValueLayout:
    """The layout of declared operands, or of declared results, in the flat list of the operation."""

    def __init__(self, fields: list[ValueDeclaration], segments: str):
        self.side = segments.removesuffix("SegmentSizes") + "s"
        self.fields = fields
        self.groups = {f: f.runs for f in fields}
        loose = sum(self.groups[f] for f in fields if f.kind != "single")
        self.segments = segments if loose > 1 else None
        self.least = sum(f.kind == "single" for f in fields)
        self.most = None if any(f.kind == "variadic" for f in fields) else len(fields)
        bounds = {"single": (1, 1), "optional": (0, 1), "variadic": (0, None)}
        self.limits = [bounds[f.kind] for f in fields for _ in range(f.runs)]

    def irdl(self) -> tuple[list[str], list[str]]:
        """Return the IRDL lines of the constraints, and the list of named groups."""
        lines, names = [], []
        keyword = {"single": "", "optional": "optional ", "variadic": "variadic "}
        for field in self.fields:
            for i in range(self.groups[field]):
                name = f"{field.name}{i}" if self.groups[field] > 1 else field.name
                variable = f"%{self.segments or 'v'}_{name}_{int(field.is_result)}"
                lines.append(f"{variable} = irdl.any")
                names.append(f"{name}_: {keyword[field.kind]}{variable}")
        return lines, names

    def sizes(self, op: ir.Operation, count: int) -> list[int]:
        """Return how many values each field has."""
        if self.segments is not None:
            flat = list(ir.DenseI32ArrayAttr(op.attributes[self.segments]))
            sizes, start = [], 0
            for field in self.fields:
                sizes.append(sum(flat[start : start + self.groups[field]]))
                start += self.groups[field]
            return sizes
        spare = count - self.least
        return [1 if field.kind == "single" else spare for field in self.fields]

    def complaint(self, op: ir.Operation, values: Sequence[ir.Value]) -> str | None:
        """Return what is wrong with the number of values or with the segment sizes, or None."""
        count = len(values)
        if self.segments is None:
            if count < self.least or (self.most is not None and count > self.most):
                upper = "or more" if self.most is None else f"to {self.most}"
                wanted = str(self.least) if self.most == self.least else f"{self.least} {upper}"
                return f"needs {wanted} {self.side}, got {count}"
            return None
        attribute = op.attributes.get(self.segments)
        if not isinstance(attribute, ir.DenseI32ArrayAttr):
            return f"needs the attribute '{self.segments}', {len(self.limits)} numbers as array<i32: ...>"
        sizes = list(attribute)
        if len(sizes) != len(self.limits) or sum(sizes) != count:
            wanted = f"{len(self.limits)} numbers with the sum {count}"
            return f"attribute '{self.segments}' must be {wanted}, got {attribute}"
        described = ", ".join(f"{f.name}: {f.kind}" for f in self.fields)
        for size, (least, most) in zip(sizes, self.limits, strict=True):
            if not least <= size <= (count if most is None else most):
                return f"attribute '{self.segments}' does not fit the {self.side} ({described}), got {attribute}"
        if any(len(set(types)) > 1 for types in _cut([value.type for value in values], sizes)):
            return f"attribute '{self.segments}' must count runs of equal types, got {attribute}"
        return None

    def pick(
        self, wanted: ValueDeclaration, op: ir.Operation, values: Sequence[Member]
    ) -> Member | list[Member] | None:
        if self.segments is None and wanted.kind == "single" and self.most == len(self.fields) == self.least:
            return values[self.fields.index(wanted)]
        start = 0
        for field, size in zip(self.fields, self.sizes(op, len(values)), strict=True):
            if field is wanted:
                if field.kind == "variadic":
                    return [values[i] for i in range(start, start + size)]
                return values[start] if size else None
            start += size
        raise AttributeError(wanted.name)

    def pick_all(self, op: ir.Operation, values: Sequence[Member]) -> list[Member | list[Member] | None]:
        """Return what each field has of the values of an operation."""
        return [self.pick(each, op, values) for each in self.fields]

    def fits(self, types: list[ir.Type]) -> int:
        """Return how many of these types the variadic field can hold: the leading runs of equal types."""
        return sum(_runs(types)[: self.fields[0].runs])

    def flatten(
        self, values: Sequence[Any], type_of: Callable[[Member], ir.Type], op_name: str
    ) -> tuple[list[Member], list[int] | None]:
        """Return the flat list of values, and the segment sizes if the operation needs them."""
        flat: list[Member] = []
        sizes: list[int] = []
        for field, value in zip(self.fields, values, strict=True):
            members = list(value) if field.kind == "variadic" else [] if value is None else [value]
            flat += members
            if self.groups[field] == 1:
                sizes.append(len(members))
                continue
            runs = _runs([type_of(member) for member in members])
            if len(runs) > field.runs:
                most = f"at most {field.runs} runs of equal types"
                raise OpError(f"'{op_name}' holds its {self.side} in {most}, got {len(runs)}")
            sizes += runs + [0] * (field.runs - len(runs))
        return flat, sizes if self.segments else None


def _cut(items: list[ir.Type], sizes: list[int]) -> Iterator[list[ir.Type]]:
    start = 0
    for size in sizes:
        yield items[start : start + size]
        start += size


def _runs(items: list[ir.Type]) -> list[int]:
    runs: list[int] = []
    for i, item in enumerate(items):
        if i and item == items[i - 1]:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs
