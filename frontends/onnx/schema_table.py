"""A file with the signatures of ONNX's operators: `python -m mirlo.frontends.onnx.schema_table` regenerates it.

The `onnx` package defines all versions of all operators on first use, which takes longer than the import of a small
model. The file is used with the `onnx` release that it was generated from; with other releases the package is used.

Sets of types come first, then a line per operator and version; fields end with tabs, names in them with spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.values import AnyValue, onnx_type
from mirlo.runtime.entry_points import installed_version
from mirlo.runtime.files import write_regular
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import onnx

FILE = Path(__file__).with_name("schemas.txt")
_KINDS = {"Single": "1", "Optional": "?", "Variadic": "*"}
_MIXED = "-"
"""Marks variadic formals whose values may have different types."""
_REQUIRED = "!"


@dataclass(frozen=True)
class Formal:
    """A declared input or output."""

    name: str
    required: bool
    variadic: bool
    homogeneous: bool
    type_name: str
    """Name of the type constraint that several formals share, such as `T`."""
    allowed: frozenset[str]


@dataclass(frozen=True)
class Signature:
    """The declaration of an operator in one version."""

    operator: str
    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    min_inputs: int
    max_inputs: int
    max_outputs: int
    attributes: Mapping[str, int]
    """The kinds of its attributes, AttributeProto.AttributeType."""
    required_attributes: frozenset[str]

    def input_name(self, index: int) -> str:
        if not self.inputs:
            return f"#{index}"
        formal = self.inputs[min(index, len(self.inputs) - 1)]
        return f"{formal.name}[{index - len(self.inputs) + 1}]" if formal.variadic else formal.name


class SchemaTable:
    """The file; only requested lines are parsed."""

    def __init__(self, text: str) -> None:
        head, sets, self._operators = text.split("\n\n", 2)
        self.version = head.rpartition(" ")[2]
        self._sets = sets.split("\n")
        self._types = cache(lambda i: frozenset(self._sets[i].split("|")))

    def find(self, domain: str, operator: str, version: int) -> Signature | None:
        """Return the signature at an opset, or None if there is no such operator."""
        prefix = f"{domain}\t{operator}\t"
        at = self._operators.find(f"\n{prefix}")
        signature = None
        while at >= 0 and self._operators.startswith(prefix, at + 1):
            end = self._operators.find("\n", at + 1)
            fields = self._operators[at + 1 : end].split("\t")
            if int(fields[2]) > version:
                break
            signature, at = fields, end
        return None if signature is None else self._signature(signature)

    def _signature(self, fields: list[str]) -> Signature:
        _, operator, since, least, most, outputs, attributes, *formals = fields
        formal_inputs, formal_outputs = (tuple(map(self._formal, text.split())) for text in formals)
        pairs = [text.split(":") for text in attributes.split()]
        kinds = {name: int(kind.removesuffix(_REQUIRED)) for name, kind in pairs}
        required = frozenset(name for name, kind in pairs if kind.endswith(_REQUIRED))
        return Signature(
            operator, int(since), formal_inputs, formal_outputs, int(least), int(most), int(outputs),
            kinds, required,
        )  # fmt: skip

    def _formal(self, text: str) -> Formal:
        name, kind, type_name, number = text.split(":")
        return Formal(
            name, kind[0] == "1", kind[0] == "*", not kind.endswith(_MIXED), type_name, self._types(int(number))
        )


@cache
def table() -> SchemaTable | None:
    """Return the table if it fits the installed `onnx` package."""
    schema_table = SchemaTable(FILE.read_text(encoding="utf-8"))
    return schema_table if schema_table.version == installed_version("onnx") else None


def written(schemas: Iterable[onnx.defs.OpSchema], version: str) -> str:
    """Return the table's text for these schemas, those of `onnx.defs.get_all_schemas_with_history()`."""
    sets: dict[str, int] = {}

    def formals(parameters: Iterable[onnx.defs.OpSchema.FormalParameter]) -> str:
        return " ".join(map(formal, parameters))

    def formal(parameter: onnx.defs.OpSchema.FormalParameter) -> str:
        kind = _KINDS[parameter.option.name] + ("" if parameter.is_homogeneous else _MIXED)
        number = sets.setdefault("|".join(sorted(parameter.types)), len(sets))
        return f"{parameter.name}:{kind}:{parameter.type_str.replace(' ', '')}:{number}"

    lines = []
    for schema in sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version)):
        attributes = (
            f"{name}:{attribute.type.value}{_REQUIRED if attribute.required else ''}"
            for name, attribute in sorted(schema.attributes.items())
        )
        counts = (schema.since_version, schema.min_input, schema.max_input, schema.max_output)
        numbers = "\t".join(map(str, counts))
        fields = (schema.domain, schema.name, numbers, " ".join(attributes), formals(schema.inputs))
        lines.append("\t".join((*fields, formals(schema.outputs))))
    head = f"# Operators as onnx defines them, by mirlo.frontends.onnx.schema_table: onnx {version}"
    return "\n\n".join([head, "\n".join(sets), "\n" + "\n".join(lines) + "\n"])


def main() -> None:
    """Write the file."""
    import onnx

    write_regular(FILE, written(onnx.defs.get_all_schemas_with_history(), onnx.__version__))


if __name__ == "__main__":
    main()


@cache
def signature(domain: str, operator: str, version: int) -> Signature | None:
    """Return the signature of an operator at an opset, or None if there is no such operator."""
    known = table()
    return defined(domain, operator, version) if known is None else known.find(domain, operator, version)


def defined(domain: str, operator: str, version: int) -> Signature | None:
    """Return the signature from the `onnx` package itself."""
    schema = schema_of(domain, operator, version)
    if schema is None:
        return None
    attributes = schema.attributes
    return Signature(
        operator,
        schema.since_version,
        tuple(_formal(p) for p in schema.inputs),
        tuple(_formal(p) for p in schema.outputs),
        schema.min_input,
        schema.max_input,
        schema.max_output,
        {name: attribute.type.value for name, attribute in attributes.items()},
        frozenset(name for name, attribute in attributes.items() if attribute.required),
    )


def schema_of(domain: str, operator: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the `onnx` package's own schema, or None."""
    import onnx

    try:
        # Versions are 32-bit integers there; a file may have any.
        return onnx.defs.get_schema(operator, min(version, 2**31 - 1), domain)
    except onnx.defs.SchemaError:
        return None


def _formal(parameter: onnx.defs.OpSchema.FormalParameter) -> Formal:
    from onnx.defs import OpSchema

    option = OpSchema.FormalParameterOption
    return Formal(
        parameter.name,
        parameter.option == option.Single,
        parameter.option == option.Variadic,
        parameter.is_homogeneous,
        parameter.type_str,
        frozenset(parameter.types),
    )


def check_inputs(sig: Signature, inputs: Sequence[AnyValue | None]) -> None:
    """Check that required inputs are there, and those with a common type constraint have one allowed element type."""
    for i, formal in enumerate(sig.inputs):
        if formal.required and (i >= len(inputs) or inputs[i] is None):
            raise NodeError(f"input '{formal.name}' is missing")
    bound: dict[str, tuple[str, AnyValue]] = {}
    for i, value in enumerate(inputs):
        if value is None:
            continue
        formal = sig.inputs[min(i, len(sig.inputs) - 1)]
        name = sig.input_name(i)
        if formal.allowed and onnx_type(value) not in formal.allowed:
            allowed = ", ".join(sorted(t[7:-1] for t in formal.allowed if t.startswith("tensor(")))
            raise NodeError(f"input '{name}' is {value}; {sig.operator} accepts: {allowed or 'no tensor'}")
        if formal.variadic and not formal.homogeneous:
            continue
        first = bound.setdefault(formal.type_name, (name, value))
        if onnx_type(first[1]) != onnx_type(value):
            raise NodeError(f"inputs '{first[0]}' and '{name}' must have one element type, got {first[1]} and {value}")
