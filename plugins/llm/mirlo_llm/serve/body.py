"""Request bodies: read with limits, parsed, and validated."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from types import TracebackType
from typing import Any

from mirlo.extend.options import nearest
from mirlo_llm.generate.json_file import is_count, is_number
from mirlo_llm.serve.errors import RequestError, refused
from mirlo_llm.serve.json_pieces import DEEP, MAX_DEPTH, JsonTooLarge, parse_json

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


BUDGET = "mirlo.budget"
"""The key of the budget in a request's scope."""


class Disconnected(Exception):
    """Raised when the client has disconnected, so that no answer can be sent."""


class BodyBudget:
    """Limits the total bytes of the bodies of all unanswered requests."""

    KEY = "mirlo.bodies"

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0

    def take(self, scope: Scope, nbytes: int) -> None:
        """Count bytes of a request's body; raise an error with status 503 above the limit."""
        if self._held + nbytes > self._most:
            raise RequestError(503, "the server holds too many bodies: try again", code="bodies", retry=2)
        self._held += nbytes
        scope[self.KEY] = scope.get(self.KEY, 0) + nbytes

    def release(self, scope: Scope) -> None:
        """Release the bytes of an answered request."""
        self._held -= scope.pop(self.KEY, 0)


class Deadline:
    """A time limit of a block; its error is raised where the block is."""

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        self._seconds, self._error, self._is_late = seconds, error, False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._is_late = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._timer.cancel()
        if self._is_late and kind is asyncio.CancelledError:
            getattr(self._task, "uncancel", lambda: None)()  # since Python 3.11
            raise self._error() from None


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header of a name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


async def read_body(scope: Scope, receive: Receive, most: int, seconds: float) -> bytes:
    """Return the body of a request; raise an error if it is too large or arrives too late."""
    budget: BodyBudget | None = scope.get(BUDGET)
    encoding = header(scope, b"content-encoding")
    if encoding not in (None, b"", b"identity"):
        raise RequestError(415, "Content-Encoding: compressed bodies are not supported: send the body as it is")
    length = header(scope, b"content-length")
    if length is not None and (not length.isdigit() or len(length) > 18 or int(length) > most):
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    with Deadline(seconds, lambda: RequestError(408, f"the body did not come within {seconds:g} s")):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise _too_large(most)
            if budget is not None:
                budget.take(scope, len(part))
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> RequestError:
    return RequestError(413, f"the body is too large: the server takes up to {most} bytes")


def parse_object(content: bytes) -> dict[str, object]:
    """Parse a body as a JSON object with valid Unicode, finite numbers and limited depth."""
    try:
        value = parse_json(content)
    except RecursionError:
        raise RequestError(400, DEEP) from None
    except JsonTooLarge as error:
        raise RequestError(400 if str(error) == DEEP else 413, str(error)) from None
    except ValueError as error:  # also of UTF-8
        raise RequestError(400, f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise RequestError(400, f"the body must be a JSON object, found {_kind(value)}")
    _require_plain(value)
    return value


def _require_plain(root: object) -> None:
    level: list[object] = [root]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for value in level:
            for item in value if isinstance(value, list) else _items(value):
                kind = type(item)
                if kind is list or kind is dict:
                    inner.append(item)
                elif kind is str:
                    _require_text(item)
                elif kind is float and not math.isfinite(item):
                    raise RequestError(400, "the body has a number that is too large for a float")
        if not inner:
            return
        level = inner
    raise RequestError(400, DEEP)


def _items(value: Any) -> Collection[Any]:
    for key in value:
        _require_text(key)
    items: Collection[Any] = value.values()
    return items


def _require_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise RequestError(400, "the body has a text that is not Unicode: half of a surrogate pair") from None


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


class BodyFields:
    """The JSON object of a body; null is the same as a missing key."""

    def __init__(self, value: Mapping[str, object], place: str = "") -> None:
        self._value, self._place = value, place

    def name(self, key: str) -> str:
        """Return the name of a key in errors."""
        return f"{self._place}.{key}" if self._place else key

    def require_known(self, known: Collection[str]) -> None:
        """Raise an error for an unknown key."""
        for key in self._value:
            if key not in known:
                raise refused(self.name(key)[:80], f"this key is not known{nearest(key[:80], known)}")

    def unknown(self, known: Collection[str]) -> list[str]:
        """Return the unknown keys."""
        return [key for key in self._value if key not in known]

    def has(self, key: str) -> bool:
        """Return whether a key has a value."""
        return self._value.get(key) is not None

    def value(self, key: str) -> object:
        """Return a value of any type; None if it is missing."""
        return self._value.get(key)

    def fail(self, key: str, expected: str) -> RequestError:
        """Return the error for an unexpected value."""
        value = self._value.get(key)
        shown = _kind(value) if isinstance(value, (dict, list, str)) else f"{value!r:.40}"
        return refused(self.name(key), f"expected {expected}, found {'nothing' if value is None else shown}")

    def text(self, key: str, default: str | None = None, most: int | None = None) -> str:
        """Return a text of limited length."""
        value = self._value.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.fail(key, "a text")
        if most is not None and len(value) > most:
            raise refused(self.name(key), f"expected up to {most} characters, found {len(value)}")
        return value

    def choice(self, key: str, among: Collection[str], default: str | None = None) -> str:
        """Return one of some allowed texts."""
        value = self.text(key, default)
        if value not in among:
            raise refused(self.name(key), f"expected one of {', '.join(among)}, found {value[:60]!a}")
        return value

    def count(self, key: str, least: int, most: int, default: int | None = None) -> int | None:
        """Return an integer in a range."""
        value = self._value.get(key)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not is_count(value, least, most):
            raise self.fail(key, f"an integer from {least} to {most}")
        return int(value)

    def number(self, key: str, least: float, most: float) -> float | None:
        """Return a number in a range."""
        value = self._value.get(key)
        if value is None:
            return None
        if not is_number(value) or not least <= value <= most:
            raise self.fail(key, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a truth value."""
        value = self._value.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, "true or false")
        return value

    def list(self, key: str, most: int) -> list[object]:
        """Return an array of limited length."""
        value = self._value.get(key)
        if not isinstance(value, list):
            raise self.fail(key, "an array")
        if len(value) > most:
            raise refused(self.name(key), f"expected up to {most} elements, found {len(value)}")
        return value

    def inner(self, key: str) -> BodyFields:
        """Return an object in this one."""
        return fields_of(self._value.get(key), self.name(key))

    def mapping(self, key: str) -> dict[str, object]:
        """Return an object as it is."""
        value = self._value.get(key)
        if not isinstance(value, dict):
            raise self.fail(key, "an object")
        return value


def fields_of(value: object, place: str) -> BodyFields:
    """Return an object's keys; `place` is the object's name in errors."""
    if not isinstance(value, dict):
        raise refused(place, f"expected an object, found {'nothing' if value is None else _kind(value)}")
    return BodyFields(value, place)
