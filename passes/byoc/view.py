"""External modules as plain Python, for authors of code generators: functions, nodes, values, constants as numpy.

    for function in module.functions:
        for step in function.steps:              # what patterns matched (Composite), or single operators (Node)
            for node in step.nodes:
                node.op, node["x"], node["strides"], node.output.shape

After legalization nodes call prim functions: `node.prim` has their buffers, blocks and loops (`prim_view.py`).

A function is flat: operators inside composites read and give the values of the function. Everything else is in
`operation`, the operation of the bindings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from mirlo.passes.byoc.prim_view import ExternalPrim


@dataclass(eq=False)
class ExternalValue:
    """A tensor: an input of the function, a constant, or the result of a node. Compared by identity."""

    name: str
    """The name, unique in its function; inputs of the model keep the user's names."""
    type: TensorType
    producer: ExternalNode | None = None
    constant: str | None = None
    """A constant's name: that of the parameter, or one made from its content, stable across edits."""
    users: list[ExternalNode] = field(default_factory=list)
    _load: Callable[[], np.ndarray] | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the dims: numbers, and symbolic ones."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def array(self) -> np.ndarray | None:
        """Return the elements of a constant, else None."""
        return self._load() if self._load is not None else None

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(eq=False)
class ExternalNode:
    """An operator."""

    op: str
    """The operator, such as `relax.conv`."""
    name: str
    """The name in the user's model; may be empty."""
    inputs: tuple[ExternalValue, ...]
    outputs: tuple[ExternalValue, ...]
    operands: Mapping[str, ExternalValue | None | tuple[ExternalValue, ...]]
    """The operands by declared name: None for an absent one, a tuple for a variadic one."""
    attributes: Mapping[str, Any]
    """All declared attributes as Python values, including defaults."""
    operation: ir.Operation = field(repr=False)
    composite: Composite | None = None
    prim: ExternalPrim | None = None
    """The prim function that a `relax.call_tir` calls."""

    @property
    def output(self) -> ExternalValue:
        """Return the first result."""
        return self.outputs[0]

    @property
    def nodes(self) -> tuple[ExternalNode, ...]:
        """Return the node itself, so that all steps have the same interface."""
        return (self,)

    def __getitem__(self, name: str) -> Any:
        """Return an operand or attribute by its declared name."""
        if name in self.operands:
            return self.operands[name]
        if name in self.attributes:
            return self.attributes[name]
        raise KeyError(f"{self.op} has no '{name}'; it has: {', '.join([*self.operands, *self.attributes])}")

    def __str__(self) -> str:
        return f"{self.op} {self.name}".rstrip()


@dataclass(eq=False)
class Composite:
    """The operators of one match of a pattern."""

    name: str
    """The full name, such as `mytarget.conv_relu`."""
    inputs: tuple[ExternalValue, ...]
    outputs: tuple[ExternalValue, ...]
    nodes: tuple[ExternalNode, ...]
    operation: ir.Operation = field(repr=False)
    """The composite's `func.func`."""

    @property
    def pattern(self) -> str:
        """Return the name of the pattern, without the target's."""
        return self.name.partition(".")[2]

    def __str__(self) -> str:
        return self.name


Step = Composite | ExternalNode


def key_hash(key: str) -> str:
    """Return a short text for the key of a part of a region."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(eq=False)
class ExternalFunction:
    """A region: a function that the model calls."""

    name: str
    inputs: tuple[ExternalValue, ...]
    outputs: tuple[ExternalValue, ...]
    steps: tuple[Step, ...]
    constants: tuple[ExternalValue, ...]
    """The constants, each once, in the order in which nodes read them; two may be the same parameter."""
    operation: ir.Operation = field(repr=False)

    @property
    def nodes(self) -> tuple[ExternalNode, ...]:
        """Return all operators in topological order."""
        return tuple(node for step in self.steps for node in step.nodes)

    @property
    def composites(self) -> tuple[Composite, ...]:
        """Return the composites in order."""
        return tuple(step for step in self.steps if isinstance(step, Composite))


@dataclass(eq=False)
class ExternalModule:
    """All regions of one target."""

    target: str
    functions: tuple[ExternalFunction, ...]
    constants: Mapping[str, np.ndarray]
    """The constants of all functions by name; arrays are loaded on access."""
    operation: ir.Operation = field(repr=False)
    tuned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What `mirlo tune` found for parts of regions, by a hash of their keys."""

    def tuned_values(self, key: str) -> Mapping[str, int]:
        """Return the choices that `mirlo tune` found for a part; empty if there are none."""
        return self.tuned.get(key_hash(key), {})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the functions."""
        return tuple(function.name for function in self.functions)

    def function(self, name: str) -> ExternalFunction:
        """Return the function of a name."""
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(f"the external module of '{self.target}' has no function '{name}'; it has: {self.names}")
