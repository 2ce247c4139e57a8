"""Arrays that are bound to the inputs and outputs of a session."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mirlo.driver.inference.devices import require_cpu
from mirlo.driver.inference.errors import BindingError
from mirlo.driver.inference.values import ElementType, OrtValue, array_type

if TYPE_CHECKING:
    from mirlo.driver.inference.nodes import NodeArg


class BoundSession(Protocol):
    """The interface of a session for a binding."""

    def get_inputs(self) -> list[NodeArg]: ...

    def get_outputs(self) -> list[NodeArg]: ...


class IOBinding:
    """Arrays for the inputs and outputs of a session's calls, set once and used by `run_with_iobinding`."""

    def __init__(self, session: BoundSession) -> None:
        self._names = {
            "input": [argument.name for argument in session.get_inputs()],
            "output": [argument.name for argument in session.get_outputs()],
        }
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, np.ndarray | None] = {}
        """By name the caller's array, or None for a new one of each call."""
        self.results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, array: np.ndarray) -> None:
        """Bind an array to an input."""
        self.inputs[self._known("input", name)] = np.asarray(array)

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Bind a value to an input."""
        self.inputs[self._known("input", name)] = value.numpy()

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: ElementType,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind memory, by its address, to an input; it must stay valid and hold an array of this type and shape."""
        require_cpu(f"input '{name}'", device_type)
        self.inputs[self._known("input", name)] = _array_at(buffer_ptr, element_type, shape)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: ElementType | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind memory, by its address, to an output; without one each call allocates it."""
        require_cpu(f"output '{name}'", device_type)
        self._known("output", name)
        if buffer_ptr is None:
            self.outputs[name] = None
            return
        if element_type is None or shape is None:
            raise BindingError(f"output '{name}': a buffer needs its element type and shape")
        self.outputs[name] = _array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Bind a value to an output, which calls write."""
        self.outputs[self._known("output", name)] = value.numpy()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the outputs of the last call, in the order in which they were bound."""
        return [self.results[name] for name in self.outputs]

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last call as values."""
        return [OrtValue(self.results[name]) for name in self.outputs]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.outputs.clear()
        self.results.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: inputs are in the memory of the CPU."""

    def synchronize_outputs(self) -> None:
        """Do nothing: outputs are in the memory of the CPU when a call returns."""

    def _known(self, what: str, name: str) -> str:
        names = self._names[what]
        if name not in names:
            raise BindingError(f"no {what} is named '{name}'; {what}s: {', '.join(names)}")
        return name


def _array_at(address: int, element_type: ElementType, shape: Sequence[int]) -> np.ndarray:
    dtype = array_type(element_type)
    count = int(np.prod(tuple(shape), dtype=np.int64))
    if not count:
        return np.empty(tuple(shape), dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(buffer), dtype).reshape(tuple(shape))
