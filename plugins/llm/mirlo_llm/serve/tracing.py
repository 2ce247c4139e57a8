"""Traces of requests through `opentelemetry-api`, if installed; its configuration selects the exporter."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from mirlo_llm.serve.body import Scope


class Tracer:
    """Starts a span for each request, as a child of the client's span in the header `traceparent`."""

    def __init__(self) -> None:
        self._tracer: Any = None
        if find_spec("opentelemetry") is not None:
            try:
                from opentelemetry import propagate, trace
            except ImportError:  # a part of the package
                return
            if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
                return  # nothing is configured: spans would lead nowhere, and still cost time
            self._kind, self._extract = trace.SpanKind.SERVER, propagate.extract
            self._tracer = trace.get_tracer(__package__)

    def span(self, scope: Scope) -> AbstractContextManager[Any]:
        """Return a context with the span of a request, or with None without tracing."""
        if self._tracer is None:
            return nullcontext()
        names = (b"traceparent", b"tracestate", b"baggage")
        carrier = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"] if key in names}
        context = self._extract(carrier) if carrier else None
        attributes = {"http.request.method": scope["method"]}
        result: AbstractContextManager[Any] = self._tracer.start_as_current_span(
            scope["method"], context=context, kind=self._kind, attributes=attributes
        )
        return result


def describe_span(span: Any, name: str, attributes: Mapping[str, str | int | float]) -> None:
    """Set the name and the attributes of a span at its end."""
    if span is not None and span.is_recording():
        span.update_name(name)
        for key, value in attributes.items():
            span.set_attribute(key, value)
