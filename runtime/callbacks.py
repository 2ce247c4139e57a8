"""Functions of users that Mirlo calls: errors for their exceptions and wrong results name them and their place.

    @dataclass(frozen=True)
    class FileForm:
        name: str
        matches: Callable[[bytes], bool] = required_callback("True or False", is_flag)

        def __post_init__(self) -> None:
            check_callbacks(self, f"form of files '{self.name}'", FrontendError)

A function of Mirlo itself is called directly: type checkers check its result.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[[Any], bool]


def describe_raised(error: BaseException) -> str:
    """Return the text of an exception, and the file and line that raised it."""
    text = f"{type(error).__name__}: {error}{_meant(error)}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} (at {frames[-1].filename}:{frames[-1].lineno})" if frames else text


def _meant(error: BaseException) -> str:
    """Return a hint for an attribute that an object does not have."""
    if not isinstance(error, AttributeError) or error.obj is None or not error.name:
        return ""
    import difflib  # start-up does not need it

    known = [name for name in dir(error.obj) if not name.startswith("_")]
    near = difflib.get_close_matches(error.name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def place_of(function: object) -> str:
    """Return the `file:line` of a function's definition; empty where Python does not know it."""
    plain = inspect.unwrap(function) if callable(function) else function
    plain = plain.func if isinstance(plain, functools.partial) else plain
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None) or getattr(_call_of(plain), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _call_of(function: object) -> object:
    """Return the method by which an object of a class is called."""
    return next((vars(base)["__call__"] for base in type(function).__mro__ if "__call__" in vars(base)), None)


def name_of(function: object) -> str:
    """Return a function and its place for messages: `lanes() at my.py:12`."""
    plain = inspect.unwrap(function) if callable(function) else function
    name = getattr(plain, "__name__", type(plain).__name__)
    place = place_of(function)
    return f"{name}()" + (f" at {place}" if place else "")


def is_foreign(function: object) -> bool:
    """Return whether a function is not part of Mirlo."""
    return not (getattr(function, "__module__", None) or "").startswith("mirlo.")


class Expected(NamedTuple):
    """The expected result of a function: a description, and a test."""

    text: str
    holds: Test


ANYTHING = Expected("anything", lambda value: True)
"""What a function returns of which only what it raises is checked."""


class CheckedCallback:
    """A function of a user that is called with a check of its result."""

    def __init__(self, function: Callable[..., Any], expected: Expected, owner: str, error: type[Exception]) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function, self.expected, self.owner, self.error = function, expected, owner, error

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        try:
            result = self.function(*arguments, **named)
        except (MirloError, MemoryError):
            raise
        except Exception as error:
            if not is_foreign(type(error)):
                raise
            raise self.error(f"{self.owner}: {name_of(self.function)} raised {describe_raised(error)}") from error
        return check_result(result, self.function, self.expected, self.owner, self.error)


def checked(function: F, expected: Expected, owner: str, error: type[Exception]) -> F:
    """Return a function of a user with a check of its result and exceptions, a function of Mirlo unchanged."""
    plain = function.function if isinstance(function, CheckedCallback) else function
    if not is_foreign(plain):
        return function
    return CheckedCallback(plain, expected, owner, error)  # type: ignore[return-value] # called like the function


def check_result(
    result: Any, function: object, expected: Expected, owner: str, error: type[Exception] = MirloError
) -> Any:
    """Return the result of a user's function; raise an error if it is not the expected one."""
    if not expected.holds(result):
        raise error(f"{owner}: {name_of(function)} returned {describe_value(result)}: expected {expected.text}")
    return result


def describe_value(value: object) -> str:
    """Return a value for messages, shortened: `3, an int`."""
    if value is None:
        return "None"
    text = repr(value)
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"{text if len(text) <= 40 else text[:37] + '...'}, {article} {kind}"


def callback(text: str, holds: Test, default: Any = None) -> Any:
    """Declare a field that is a function of a user, or None, and the expected result of the function."""
    return dataclasses.field(default=default, metadata={"returns": Expected(text, holds)})


def required_callback(text: str, holds: Test) -> Any:
    """Declare a field that is a function of a user, and the expected result of the function."""
    return dataclasses.field(metadata={"returns": Expected(text, holds)})


def check_callbacks(record: Any, owner: str, error: type[Exception]) -> None:
    """Check, in `__post_init__`, the functions in the fields of a frozen dataclass, and later their results."""
    for each in dataclasses.fields(record):
        expected: Expected | None = each.metadata.get("returns")
        if expected is None:
            continue
        function = getattr(record, each.name)
        if function is None:
            continue
        if not callable(function):
            raise error(
                f"{owner}: '{each.name}' is {describe_value(function)}: expected a function that returns "
                f"{expected.text}"
            )
        object.__setattr__(record, each.name, checked(function, expected, owner, error))


@dataclass(frozen=True)
class CheckedMethods:
    """Checks of the results of methods of a class that users derive from."""

    expected: Mapping[str, Expected]
    error: type[Exception]

    def add_to(self, cls: type, owner: str) -> None:
        """Check the methods that a class defines."""
        for name, expected in self.expected.items():
            declared = cls.__dict__.get(name)
            function = getattr(declared, "__func__", declared)
            if not inspect.isfunction(function) or not is_foreign(function):
                continue
            method = self._checked(function, expected, owner)
            setattr(cls, name, type(declared)(method) if isinstance(declared, (staticmethod, classmethod)) else method)

    def _checked(self, function: Callable[..., Any], expected: Expected, owner: str) -> Callable[..., Any]:
        callback = CheckedCallback(function, expected, owner, self.error)

        @functools.wraps(function)
        def method(*arguments: Any, **named: Any) -> Any:
            return callback(*arguments, **named)

        return method


# Tests of results.

_NOT_LISTS = (str, bytes, range)


def is_a(*addresses: str) -> Test:
    """Return a test for instances of classes, by address: `mirlo.runtime.artifact:Artifact`.

    A class whose module was not imported has no instances, so that no test imports one.
    """

    def holds(value: object) -> bool:
        for address in addresses:
            module, _, name = address.partition(":")
            cls: object = sys.modules.get(module)
            for part in name.split("."):
                cls = getattr(cls, part, None)
            if isinstance(cls, type) and isinstance(value, cls):
                return True
        return False

    return holds


def optional(holds: Test) -> Test:
    """Return a test for None or a value that another test accepts."""
    return lambda value: value is None or holds(value)


def is_none(value: object) -> bool:
    """Return whether a value is None."""
    return value is None


def is_text(value: object) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    """Return whether a value is a bool, or numpy's."""
    return isinstance(value, bool) or type(value).__name__ == "bool" and type(value).__module__ == "numpy"


def is_count(value: object) -> bool:
    """Return whether a value is an integer of at least 1."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def is_integer(value: object) -> bool:
    """Return whether a value is an integer, which True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_time(value: object) -> bool:
    """Return whether a value is a real number, not NaN, not negative."""
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= 0


def each_is(holds: Test) -> Test:
    """Return a test for lists and tuples of values that another test accepts."""
    return lambda value: isinstance(value, Sequence) and not isinstance(value, _NOT_LISTS) and _all(holds, value)


def maps(keys: Test, values: Test) -> Test:
    """Return a test for mappings of keys and values that two other tests accept."""

    def holds(value: object) -> bool:
        return isinstance(value, Mapping) and _all(keys, value.keys()) and _all(values, value.values())

    return holds


def _all(holds: Test, values: Iterable[object]) -> bool:
    return all(map(holds, values))
