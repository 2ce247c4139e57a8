"""Errors of a request, and the forms in which clients expect them."""

from __future__ import annotations

from mirlo.extend.runtime import MirloError


class ServeError(MirloError, ValueError):
    """An option or a model that cannot be served."""


class RequestError(MirloError):
    """A request that gets an error in place of an answer."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, parameter: str | None = None, retry: int = 0
    ) -> None:
        """`parameter` is the key of the body that is wrong, `retry` the seconds after which to try again."""
        super().__init__(message)
        self.status, self.message, self.code, self.parameter, self.retry = status, message, code, parameter, retry


def refused(parameter: str, message: str) -> RequestError:
    """Return the error for a value of a body."""
    return RequestError(400, f"{parameter}: {message}", parameter=parameter)


_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def openai_form(error: RequestError) -> dict[str, object]:
    """Return an error as clients of OpenAI's API read it."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.parameter, "code": error.code}}


def message_form(error: RequestError) -> dict[str, object]:
    """Return an error as clients of Anthropic's API read it."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def protocol_form(error: RequestError) -> dict[str, object]:
    """Return an error as clients of the Open Inference Protocol read it."""
    return {"error": error.message}
