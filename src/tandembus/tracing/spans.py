"""Spans of this process, each a child of the trace that its message belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tandembus import __version__

Attributes = Mapping[str, str | int]

MESSAGING: Final = {"messaging.system": "tandembus"}
_PROPAGATOR: Final = TraceContextTextMapPropagator()


@final
class Spans:
    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Final = provider.get_tracer("tandembus", __version__)

    def begin(self, name: str, context: Mapping[str, str], attributes: Attributes, start_ns: int | None = None) -> Span:
        """`context`: a sampled one."""
        parent = _PROPAGATOR.extract(context)
        return self._tracer.start_span(
            name, parent, SpanKind.SERVER, attributes={**MESSAGING, **attributes}, start_time=start_ns
        )


def end(spans: Sequence[Span], error: BaseException | None) -> None:
    for span in spans:
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR, str(error))
        span.end()
