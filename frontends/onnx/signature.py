"""Signatures of ONNX operators: declared inputs, outputs and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
