"""Packed functions, which a model calls by name at run time: `relax.call_dps_packed`.

A packed function is passed the inputs, then the outputs, which it writes. It is either a Python callable on numpy
arrays, or a C function of type `CPackedFunction`; the arrays, or the `DLTensor`s, are valid during the call only.
"""

from __future__ import annotations

import ctypes
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from mirlo.runtime.dlpack import DLTensor, array_of_tensor
from mirlo.runtime.errors import PackedFunctionError, UnmetAssumption, nearest
from mirlo.runtime.names import REQUIRE

if TYPE_CHECKING:
    import numpy as np

CPackedFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.POINTER(DLTensor)), ctypes.c_int64)
"""`int fn(DLTensor** tensors, int64_t count)`: the inputs, then the outputs; a nonzero result is a failure."""

C_FUNCTION: Any = CPackedFunction.__mro__[1]
"""The class of all function pointers of ctypes, whatever types they declare."""
_F = TypeVar("_F", bound=Callable[..., object])
_FUNCTIONS: dict[str, ctypes._CFunctionType] = {}
_state = threading.local()


def register(name: str, function: Callable[..., object], override: bool = False) -> None:
    """Register a packed function under a name; a name in use needs `override=True`."""
    if not callable(function):
        raise PackedFunctionError(f"packed function '{name}': expected a callable, found {type(function).__name__}")
    if name in _FUNCTIONS and not override:
        raise PackedFunctionError(f"packed function '{name}' is registered already; pass override=True to replace it")
    _FUNCTIONS[name] = as_c_function(name, function)


def as_c_function(name: str, function: Callable[..., object]) -> ctypes._CFunctionType:
    """Return the C function that generated code calls for a callable.

    Errors of Python callables are reported by name.
    """
    # A C function is called directly by its address, whatever types ctypes declares for it.
    if isinstance(function, C_FUNCTION):
        return ctypes.cast(function, CPackedFunction)
    return _callback(name, function)


def packed(name: str, override: bool = False) -> Callable[[_F], _F]:
    """Register the decorated function: `register` as a decorator."""

    def decorate(function: _F) -> _F:
        register(name, function, override)
        return function

    return decorate


def unregister(name: str) -> None:
    """Unregister a function; models that are already loaded keep it."""
    _FUNCTIONS.pop(name, None)


def resolve(
    names: Sequence[str], user: str, own: Mapping[str, ctypes._CFunctionType] | None = None
) -> list[ctypes._CFunctionType]:
    """Return the C functions of these names, those in `own` first; the error of a missing one names its user."""
    known = {**_FUNCTIONS, **(own or {})}
    missing = [name for name in names if name not in known]
    if missing:
        hint = nearest(missing[0], known)
        raise PackedFunctionError(
            f"{user} calls {', '.join(repr(name) for name in missing)}, not registered: register it with "
            f"mirlo.runtime.packed.register(name, function) before loading{hint}"
        )
    return [known[name] for name in names]


@contextmanager
def failures() -> Iterator[list[tuple[str, BaseException]]]:
    """Collect exceptions of Python packed functions on this thread: they cannot propagate through generated code."""
    outer = getattr(_state, "failures", None)
    collected: list[tuple[str, BaseException]] = []
    _state.failures = collected
    try:
        yield collected
    finally:
        _state.failures = outer


def raise_first(
    collected: list[tuple[str, BaseException]],
    names: Sequence[str],
    failed: int,
    code: int,
    explain: Callable[[str, int], str | None] | None = None,
    calls: Sequence[tuple[str, str]] = (),
) -> None:
    """Raise the error of a call in which functions raised, or number `failed - 1` of `names` returned `code`.

    `explain` returns the meaning of a function's return code, if it is known; `calls` are the functions that the model
    calls, each with the nodes that it computes.
    """
    if collected:
        name, error = collected[0]
        if not isinstance(error, Exception):  # a keyboard interrupt or an exit is not the function's own failure
            raise error
        if isinstance(error, UnmetAssumption):  # the call's own fault, of which the text names the node
            raise UnmetAssumption(str(error)) from error
        nodes = _computed_by(name, calls)
        raise PackedFunctionError(f"packed function '{name}' raised {type(error).__name__}: {error}{nodes}") from error
    if failed:
        name = names[failed - 1] if 0 < failed <= len(names) else f"#{failed}"
        why = explain(name, code) if explain is not None else None
        problem = why or f"it returned {code}"
        raise PackedFunctionError(f"packed function '{name}' failed: {problem}{_computed_by(name, calls)}")


def _computed_by(name: str, calls: Sequence[tuple[str, str]]) -> str:
    """Return the nodes that a function computes, for the end of an error; nothing where several calls may be meant."""
    sources = [source for function, source in calls if function == name and source]
    return f" (it computes {sources[0]})" if len(sources) == 1 else ""


def _callback(name: str, function: Callable[..., object]) -> ctypes._CFunctionType:
    def call(tensors: ctypes._Pointer[ctypes._Pointer[DLTensor]], count: int) -> int:
        try:
            function(*(array_of_tensor(tensors[index].contents) for index in range(count)))
        except BaseException as error:
            collected = getattr(_state, "failures", None)
            if collected is None:  # on a thread of generated code, no Python call can raise it
                traceback.print_exc()
            else:
                collected.append((name, error))
            return 1
        return 0

    return CPackedFunction(call)


@packed(REQUIRE)
def _require(holds: np.ndarray, message: np.ndarray, held: np.ndarray) -> None:
    """Check an assumption of compile time about values that are known only at run time."""
    if not holds.all():
        raise UnmetAssumption(bytes(message).decode())
    held[...] = 1


@packed("mirlo.random_seed")
def _random_seed(name: np.ndarray, seed: np.ndarray) -> None:
    """Write a random seed for a node without one; `name` is derived from the node."""
    import secrets

    seed[...] = secrets.randbits(32)
