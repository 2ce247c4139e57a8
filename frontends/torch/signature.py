"""How the arguments and results of `forward` map to the inputs and outputs of the compiled model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.frontends.foreign import FrontendError
from mirlo.frontends.torch.tensors import to_complex

if TYPE_CHECKING:
    import torch
    from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class ModuleSignature:
    """The structure of a module's arguments and results."""

    arguments: pytree.TreeSpec
    """The `TreeSpec` of `(args, kwargs)`."""
    constants: tuple[object, ...]
    """By leaf of the arguments: `TENSOR`, or the value that was compiled in."""
    results: pytree.TreeSpec
    """The `TreeSpec` of the result."""
    outputs: tuple[object, ...]
    """By leaf of the result: `TENSOR` or `COMPLEX` for the next output of the model, or a constant."""

    @staticmethod
    def of(program: torch.export.ExportedProgram) -> ModuleSignature:
        """Return the signature of an exported program; what writes its inputs or its state is an error."""
        from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

        spec = program.graph_signature
        written = [out.target for out in spec.output_specs if out.kind == OutputKind.BUFFER_MUTATION]
        if written:
            raise FrontendError(
                f"the module writes its buffer '{written[0]}' when it is called; compiled models keep no state"
            )
        written = [out.target for out in spec.output_specs if out.kind == OutputKind.USER_INPUT_MUTATION]
        if written:
            raise FrontendError(
                f"the module writes its argument '{written[0]}'; compiled models leave their inputs unchanged: return "
                "the new value"
            )
        constants = tuple(
            entry.arg.value if isinstance(entry.arg, ConstantArgument) else TENSOR
            for entry in spec.input_specs
            if entry.kind == InputKind.USER_INPUT
        )
        nodes = program.graph.output_node().args[0]
        outputs = tuple(
            entry.arg.value if isinstance(entry.arg, ConstantArgument) else _kind_of(node)
            for entry, node in zip(spec.output_specs, nodes, strict=True)
            if entry.kind == OutputKind.USER_OUTPUT
        )
        return ModuleSignature(program.call_spec.in_spec, constants, program.call_spec.out_spec, outputs)

    def tensors(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[torch.Tensor]:
        """Return the tensors among the arguments of a call; others must be what the model was compiled with."""
        from torch.utils import _pytree as pytree

        leaves, found = pytree.tree_flatten((args, kwargs))
        if found != self.arguments:
            raise FrontendError(
                f"the arguments have another structure than those that the model was compiled with: expected "
                f"{self.arguments}, found {found}"
            )
        made = []
        for index, (leaf, constant) in enumerate(zip(leaves, self.constants, strict=True)):
            if constant is TENSOR:
                made.append(leaf)
            elif leaf != constant:
                raise FrontendError(f"argument {index}: the model was compiled with {constant!r}, found {leaf!r}")
        return made

    def result(self, tensors: list[torch.Tensor]) -> object:
        """Return the result of `forward` that consists of these tensors."""
        from torch.utils import _pytree as pytree

        rest = iter(tensors)
        leaves = [
            to_complex(next(rest)) if constant is COMPLEX else next(rest) if constant is TENSOR else constant
            for constant in self.outputs
        ]
        return pytree.tree_unflatten(leaves, self.results)


class _Tensor:
    """The type of `TENSOR` and `COMPLEX`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


TENSOR = _Tensor("tensor")
"""Stands for a tensor among the leaves of arguments and results."""
COMPLEX = _Tensor("complex tensor")
"""Stands for a tensor of complex numbers among the leaves of results."""


def _kind_of(node: torch.fx.Node) -> _Tensor:
    """Return what stands for a result."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return COMPLEX if dtype is not None and dtype.is_complex else TENSOR
