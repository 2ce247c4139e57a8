"""Traces of requests, where the package `opentelemetry-api` is installed; what exports them is configured there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from mirlo_llm.serve.body import Scope


class Tracer:
    """Begins a span for each request, below the span of the client that a header `traceparent` names."""

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
        """Return the span of a request; it holds None where there are no traces."""
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
    """Name a span and add what is known at its end."""
    if span is not None and span.is_recording():
        span.update_name(name)
        for key, value in attributes.items():
            span.set_attribute(key, value)
