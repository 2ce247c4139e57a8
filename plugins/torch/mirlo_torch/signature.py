"""The mapping of the arguments and results of `forward` to the inputs and outputs of the compiled model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.extend.frontend import FrontendError
from mirlo_torch.tensors import to_complex

if TYPE_CHECKING:
    import torch
    from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class ModuleSignature:
    """The structure of a module's arguments and results."""

    arguments: pytree.TreeSpec
    """The `TreeSpec` of `(args, kwargs)`."""
    constants: tuple[object, ...]
    """By leaf of the arguments: `TENSOR`, or its value at compilation."""
    results: pytree.TreeSpec
    """The `TreeSpec` of the result."""
    outputs: tuple[object, ...]
    """By leaf of the result: `TENSOR` or `COMPLEX` for the next output of the model, or a constant."""
    written: tuple[tuple[torch.Tensor | int, _Tensor], ...] = ()
    """By further output of the model, the tensor that holds it after the call: a buffer, or an argument by its number
    among the tensors; and whether it is complex."""

    @staticmethod
    def of(program: torch.export.ExportedProgram) -> ModuleSignature:
        """Return the signature of an exported program."""
        from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

        spec = program.graph_signature
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
        written = _written(program)
        return ModuleSignature(program.call_spec.in_spec, constants, program.call_spec.out_spec, outputs, written)

    @property
    def state(self) -> list[torch.Tensor]:
        """Return the buffers that a call writes, which are the model's inputs after the arguments."""
        return [target for target, _ in self.written if not isinstance(target, int)]

    def tensors(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[torch.Tensor]:
        """Return the tensors among the arguments of a call; other arguments must equal the compiled ones."""
        from torch.utils import _pytree as pytree

        leaves, structure = pytree.tree_flatten((args, kwargs))
        if structure != self.arguments:
            raise FrontendError(
                f"the arguments have another structure than those that the model was compiled with: expected "
                f"{self.arguments}, found {structure}"
            )
        result = []
        for index, (leaf, constant) in enumerate(zip(leaves, self.constants, strict=True)):
            if constant is TENSOR:
                result.append(leaf)
            elif leaf != constant:
                raise FrontendError(f"argument {index}: the model was compiled with {constant!r}, found {leaf!r}")
        return result

    def result(self, tensors: list[torch.Tensor], arguments: list[torch.Tensor]) -> object:
        """Return the result of `forward` from these tensors; write buffers and arguments in place."""
        import torch
        from torch.utils import _pytree as pytree

        count = len(tensors) - len(self.written)
        with torch.no_grad():
            for (target, kind), tensor in zip(self.written, tensors[count:], strict=True):
                into = arguments[target] if isinstance(target, int) else target
                into.copy_(to_complex(tensor) if kind is COMPLEX else tensor)
        rest = iter(tensors[:count])
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


def require_no_writes(program: torch.export.ExportedProgram, reason: str) -> None:
    """Raise an error for a program that writes its arguments or buffers; the reason says why this is not supported."""
    from torch.export.graph_signature import OutputKind

    for out in program.graph_signature.output_specs:
        if out.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            what = "buffer" if out.kind == OutputKind.BUFFER_MUTATION else "argument"
            raise FrontendError(f"the module writes its {what} '{out.target}' when it is called, {reason}")


def written_buffers(program: torch.export.ExportedProgram) -> list[str]:
    """Return the buffers that a program writes, in the order of their new values in its results."""
    from torch.export.graph_signature import OutputKind

    specs = program.graph_signature.output_specs
    return [str(out.target) for out in specs if out.kind == OutputKind.BUFFER_MUTATION]


def _written(program: torch.export.ExportedProgram) -> tuple[tuple[torch.Tensor | int, _Tensor], ...]:
    from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

    spec = program.graph_signature
    arguments = [
        entry.arg.name for entry in spec.input_specs
        if entry.kind == InputKind.USER_INPUT and not isinstance(entry.arg, ConstantArgument)
    ]  # fmt: skip
    buffers, written = dict(program.named_buffers()), []
    for out, node in zip(spec.output_specs, program.graph.output_node().args[0], strict=True):
        if out.kind == OutputKind.BUFFER_MUTATION:
            written.append((buffers[out.target], _kind_of(node)))
        elif out.kind == OutputKind.USER_INPUT_MUTATION:
            written.append((arguments.index(out.target), _kind_of(node)))
    return tuple(written)


def _kind_of(node: torch.fx.Node) -> _Tensor:
    """Return the kind of a result."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return COMPLEX if dtype is not None and dtype.is_complex else TENSOR
