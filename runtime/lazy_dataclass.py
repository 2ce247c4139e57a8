"""Dataclasses whose methods are compiled when they are first looked up.

`dataclasses.dataclass` makes each method as text, which it compiles when the class is declared. A process that compiles
a model declares 400 dataclasses with 2,100 methods, and calls a fifth of them. The decorator here is that of the
standard library, but for when the text is compiled.
"""

from __future__ import annotations

import dataclasses
from functools import cache, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass

_FACTORY = "def __create_fn__("
"""How the text begins with which the standard library makes methods: of a function that returns one, or a tuple."""


class _LazyMethod:
    """A method in the dictionary of a class; what looks it up replaces it by the function."""

    def __init__(self, name: str, compiled: Callable[[], FunctionType]) -> None:
        self.__name__ = self.__qualname__ = name
        self.compiled = compiled

    def __get__(self, instance: object, owner: type) -> object:
        function = self.compiled()
        for cls in owner.__mro__:
            if cls.__dict__.get(self.__name__) is self:
                function.__qualname__ = f"{cls.__qualname__}.{self.__name__}"
                setattr(cls, self.__name__, function)
        return function.__get__(instance, owner)


def _execute_later(text: str, names: dict[str, object], results: dict[str, object]) -> None:
    """Execute text of the standard library: `__create_fn__` compiles it when its methods are looked up."""
    if not text.startswith(_FACTORY):
        exec(text, names, results)
        return
    returned = text.rpartition("return ")[2]

    def make_methods(**values: object) -> _LazyMethod | tuple[_LazyMethod, ...]:
        @cache
        def compiled() -> dict[str, FunctionType]:
            namespace: dict[str, Callable[..., FunctionType | tuple[FunctionType, ...]]] = {}
            # What this module imports from `__future__` is not for that text.
            exec(compile(text, "<string>", "exec", dont_inherit=True), names, namespace)
            functions = namespace["__create_fn__"](**values)
            return {f.__name__: f for f in (functions if isinstance(functions, tuple) else (functions,))}

        def method(name: str) -> _LazyMethod:
            return _LazyMethod(name, lambda: compiled()[name])

        if not returned.startswith("("):
            return method(returned)
        return tuple(method(name) for name in returned.strip("()").split(",") if name)

    results["__create_fn__"] = make_methods


def _decorate_later(decorate: Callable[[FunctionType], FunctionType], method: _LazyMethod) -> _LazyMethod:
    return _LazyMethod(method.__name__, lambda: decorate(method.compiled()))


def _with_globals(function: FunctionType, names: dict[str, object]) -> FunctionType:
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _lazy_decorator() -> object:
    """Return the standard library's decorator with another `exec` in its functions and in its builder of methods."""
    names: dict[str, Any] = dict(vars(dataclasses))
    for name, value in vars(dataclasses).items():
        if isinstance(value, FunctionType) and value.__globals__ is vars(dataclasses):
            names[name] = _with_globals(value, names)
    names["exec"] = _execute_later
    actions: dict[object, FunctionType | None] = names.get("_hash_action", {})
    names["_hash_action"] = {key: action and names[action.__name__] for key, action in actions.items()}
    # Python 3.12 and before decorate the function, later versions its text.
    if "_recursive_repr" in names:
        names["_recursive_repr"] = partial(_decorate_later, names["_recursive_repr"])
    if "_FuncBuilder" in names:
        builder = vars(dataclasses)["_FuncBuilder"]
        methods = {n: _with_globals(f, names) for n, f in vars(builder).items() if isinstance(f, FunctionType)}
        names["_FuncBuilder"] = type(builder.__name__, builder.__bases__, methods)
    return names["dataclass"]


if not TYPE_CHECKING:
    dataclass = _lazy_decorator()
