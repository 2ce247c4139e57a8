"""Functions of the run time that work on objects: sequences, optional values, tensors of strings.

    @host_function("mine.longest")
    def longest(words, *, least=0):
        return max((len(word) for word in words.flat), default=least)

A program passes to a host function: numpy arrays for tensors, arrays of Python strings (dtype `object`) for tensors of
strings, tuples for sequences, dictionaries of Python scalars for maps, and None for an optional value without an
element. It returns one value for one result, a tuple for several; tensors may be views; no function writes to its
arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from mirlo.runtime.errors import PackedFunctionError, nearest

_F = TypeVar("_F", bound=Callable[..., object])
_FUNCTIONS: dict[str, Callable[..., object]] = {}
_MAKES_NEW: set[str] = set()
_PREPARED: set[str] = set()

_RESERVED_PREFIX = "mirlo."
_FAMILIES = ("sequence", "string", "image", "map")
"""`mirlo.sequence.at` is in the module of its family, which is imported when it is needed."""


def host_function(
    name: str, override: bool = False, *, new: bool = False, prepared: bool = False
) -> Callable[[_F], _F]:
    """Register a host function under a name; a name in use needs `override=True`.

    With `new=True` its results must be of the kinds that the program expects, and nothing else may refer to them: they
    are neither checked nor copied. With `prepared=True` the function is passed the keyword arguments alone, when the
    model is loaded, and returns the function of the values.
    """

    def register(function: _F) -> _F:
        if name in _FUNCTIONS and not override:
            raise PackedFunctionError(f"host function '{name}' is registered already; pass override=True to replace it")
        _FUNCTIONS[name] = function
        (_MAKES_NEW.add if new else _MAKES_NEW.discard)(name)
        (_PREPARED.add if prepared else _PREPARED.discard)(name)
        return function

    return register


def makes_new(name: str) -> bool:
    """Return whether the host function of a name was registered with `new=True`."""
    return name in _MAKES_NEW


def is_prepared(name: str) -> bool:
    """Return whether the host function of a name was registered with `prepared=True`."""
    return name in _PREPARED


def resolve_host(names: Sequence[str], user: str) -> dict[str, Callable[..., object]]:
    """Return the functions of these names; the error of a missing one names its user."""
    for name in names:
        family = name.removeprefix(_RESERVED_PREFIX).partition(".")[0]
        if name not in _FUNCTIONS and name.startswith(_RESERVED_PREFIX) and family in _FAMILIES:
            importlib.import_module(f"{__package__}.host_functions.{family}")
    missing = [name for name in names if name not in _FUNCTIONS]
    if missing:
        hint = nearest(missing[0], _FUNCTIONS)
        raise PackedFunctionError(
            f"{user} calls {', '.join(map(repr, missing))}, not registered: register it with "
            f"mirlo.runtime.host.host_function(name) before loading{hint}"
        )
    return {name: _FUNCTIONS[name] for name in names}
