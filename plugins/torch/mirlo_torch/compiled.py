"""A compiled module of PyTorch: an executable that is also called with tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirlo_torch.frozen import FrozenWeights
from mirlo_torch.signature import TENSOR, ModuleSignature
from mirlo_torch.tensors import to_input, to_tensor

if TYPE_CHECKING:
    from mirlo.extend.frontend import CompiledModel


class CompiledModule:
    """The executable of a module, whose inputs are named as the arguments of `forward`.

    `torch(...)` takes the arguments of `forward` and returns what it returns, with tensors over the same memory. All
    else is the executable's: call it with arrays, `run`, `profile`, `save`.
    """

    def __init__(
        self, executable: CompiledModel, signature: ModuleSignature | None, frozen: FrozenWeights | None
    ) -> None:
        self.executable = executable
        self._signature = signature
        self._frozen = frozen

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the model on arrays or tensors and return arrays."""
        self._check()
        return self.executable(*map(_array, arrays), out=out, **{name: _array(value) for name, value in named.items()})

    def run(self, inputs: Any, out: Any = None) -> Any:
        """Run the model on arrays by input name, and return arrays by output name."""
        self._check()
        return self.executable.run({name: _array(value) for name, value in inputs.items()}, out=out)

    def torch(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on the arguments of `forward`; return the result, whose tensors have no gradients.

        Arguments and buffers of the module that `forward` writes are written.
        """
        self._check()
        if self._signature is None:
            tensors, kept = [*args, *kwargs.values()], None
        else:
            tensors, kept = self._signature.tensors(args, kwargs), self._signature
        state = kept.state if kept is not None else []
        results = self.executable(*map(_array, (*tensors, *state)))
        outputs = [to_tensor(array) for array in (results if isinstance(results, tuple) else (results,))]
        if kept is not None:
            return kept.result(outputs, tensors)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def __repr__(self) -> str:
        return repr(self.executable)

    def _check(self) -> None:
        if self._frozen is not None:
            self._frozen.require()


def _array(value: object) -> object:
    return to_input(value) if hasattr(value, "detach") else value


__all__ = ["TENSOR", "CompiledModule"]
