"""Errors of requests, and their formats in the APIs."""

from __future__ import annotations

from mirlo.extend.runtime import MirloError


class ServeError(MirloError, ValueError):
    """An option or a model that cannot be served."""


class RequestError(MirloError):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, parameter: str | None = None, retry: int = 0
    ) -> None:
        """Store the error; `parameter` is the wrong key of the body, `retry` the seconds before a new attempt."""
        super().__init__(message)
        self.status, self.message, self.code, self.parameter, self.retry = status, message, code, parameter, retry


def refused(parameter: str, message: str) -> RequestError:
    """Return the error for an invalid value of a body."""
    return RequestError(400, f"{parameter}: {message}", parameter=parameter)


_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def openai_form(error: RequestError) -> dict[str, object]:
    """Return an error in the format of OpenAI's API."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.parameter, "code": error.code}}


def message_form(error: RequestError) -> dict[str, object]:
    """Return an error in the format of Anthropic's API."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def protocol_form(error: RequestError) -> dict[str, object]:
    """Return an error in the format of the Open Inference Protocol."""
    return {"error": error.message}
