"""Functions that a model calls by name at run time: `relax.call_dps_packed`.

A packed function gets the inputs, then the outputs, which it writes. It is either a Python callable on numpy arrays,
or a C function of type `CPackedFunction`; the arrays, or the `DLTensor`s, are valid during the call only.
"""

from __future__ import annotations

import ctypes
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

from mirlo.runtime.dlpack import DLTensor, array_of_tensor
from mirlo.runtime.errors import PackedFunctionError

CPackedFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.POINTER(DLTensor)), ctypes.c_int64)
"""`int fn(DLTensor** tensors, int64_t count)`: the inputs, then the outputs; anything but 0 means that it failed."""

_AnyCFunction: Any = CPackedFunction.__base__
_F = TypeVar("_F", bound=Callable[..., Any])
_FUNCTIONS: dict[str, Any] = {}
_state = threading.local()


def register(name: str, function: Any, override: bool = False) -> None:
    """Makes a function callable from models under a name; a name that is taken needs `override=True`."""
    if not callable(function):
        raise PackedFunctionError(f"packed function '{name}': expected a callable, found {type(function).__name__}")
    if name in _FUNCTIONS and not override:
        raise PackedFunctionError(f"packed function '{name}' is registered already; pass override=True to replace it")
    _FUNCTIONS[name] = as_c_function(name, function)


def as_c_function(name: str, function: Any) -> Any:
    """The C function that generated code calls for a callable; what a Python one raises is told with the name."""
    # A C function is called by its address, with no Python on the way, whatever types ctypes was told about it.
    is_c = isinstance(function, _AnyCFunction)
    return ctypes.cast(function, CPackedFunction) if is_c else _callback(name, function)


def packed(name: str, override: bool = False) -> Callable[[_F], _F]:
    """`register` as a decorator."""

    def decorate(function: _F) -> _F:
        register(name, function, override)
        return function

    return decorate


def unregister(name: str) -> None:
    """Forgets a function; models that were loaded with it keep it."""
    _FUNCTIONS.pop(name, None)


def resolve(names: Sequence[str], user: str, own: Mapping[str, Any] | None = None) -> list[Any]:
    """The C functions of these names; one that is missing is an error that names its user, whose `own` come first."""
    known = {**_FUNCTIONS, **(own or {})}
    missing = [name for name in names if name not in known]
    if missing:
        near = get_close_matches(missing[0], known, n=1)
        hint = f"; nearest: '{near[0]}'" if near else ""
        raise PackedFunctionError(
            f"{user} calls {', '.join(repr(name) for name in missing)}, not registered{hint}: register it with "
            "mirlo.runtime.packed.register(name, function) before loading"
        )
    return [known[name] for name in names]


@contextmanager
def failures() -> Iterator[list[tuple[str, BaseException]]]:
    """Collects what Python packed functions raise on this thread: no exception can pass through generated code."""
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
) -> None:
    """The error of a call in which functions raised, or number `failed - 1` of `names` returned `code`.

    `explain` says what the number means that a function of a name returned, where that is known.
    """
    if collected:
        name, error = collected[0]
        if not isinstance(error, Exception):  # a keyboard interrupt, an exit: not the function's own failure
            raise error
        raise PackedFunctionError(f"packed function '{name}' raised {type(error).__name__}: {error}") from error
    if failed:
        name = names[failed - 1] if 0 < failed <= len(names) else f"#{failed}"
        why = explain(name, code) if explain is not None else None
        raise PackedFunctionError(f"packed function '{name}' failed: {why or f'it returned {code}'}")


def _callback(name: str, function: Callable[..., Any]) -> Any:
    def call(tensors: Any, count: int) -> int:
        try:
            function(*(array_of_tensor(tensors[index].contents) for index in range(count)))
        except BaseException as error:
            collected = getattr(_state, "failures", None)
            if collected is None:  # on a thread that generated code made: no Python call is there to raise it from
                traceback.print_exc()
            else:
                collected.append((name, error))
            return 1
        return 0

    return CPackedFunction(call)


@packed("mirlo.require")
def _require(holds: Any, message: Any, held: Any) -> None:
    """What a model takes for granted at compile time of values that only run time knows."""
    if not holds.all():
        raise ValueError(bytes(message).decode())
    held[...] = 1


@packed("mirlo.random_seed")
def _random_seed(name: Any, seed: Any) -> None:
    """A seed that nobody gave; `name` is of the node that wants it."""
    import secrets

    seed[...] = secrets.randbits(32)
