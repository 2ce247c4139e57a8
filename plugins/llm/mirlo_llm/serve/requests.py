"""Facts about requests for metrics and traces, and the parsing of bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mirlo_llm.serve.body import BodyFields, Receive, Scope, header, parse_object, read_body
from mirlo_llm.serve.errors import RequestError
from mirlo_llm.serve.state import ServerState
from mirlo_llm.serve.threads import run_in_thread

T = TypeVar("T")
SIMPLE = (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data")
"""Content types that pages of other sites may send without a preflight request."""
NOTES = "mirlo.notes"


def note(scope: Scope, **facts: str | int | float) -> None:
    """Record facts about a request for metrics and traces."""
    scope.setdefault(NOTES, {}).update(facts)


def notes(scope: Scope) -> dict[str, str | int | float]:
    """Return the recorded facts about a request."""
    noted: dict[str, str | int | float] = scope.get(NOTES, {})
    return noted


def require_type(scope: Scope) -> None:
    """Raise an error for a content type that a page of another site could send."""
    kind = (header(scope, b"content-type") or b"").partition(b";")[0].strip().lower()
    if kind in SIMPLE:
        raise RequestError(415, "Content-Type: expected application/json")


async def read_json_body(state: ServerState, scope: Scope, receive: Receive, read: Callable[[BodyFields], T]) -> T:
    """Parse a JSON body, and return the result of a function of it."""
    require_type(scope)
    options = state.options
    content = await read_body(scope, receive, options.max_body, options.body_seconds)
    return await run_in_thread(len(content), lambda: read(BodyFields(parse_object(content))))
